/* forms.h - models in the forms of others: what Hugging Face's config.json and tensors, and GGUF's values and
   tensors, say in this library's words. Two tables hold it all, one of tensors and one of settings; reading
   and writing walk them. Static functions, after cmha.h; they return 1 for success, or 0 and one line. */
#ifndef FORMS_H
#define FORMS_H

#include "gguf.h"
#include "streams.h"

#include <cjson/cJSON.h>

typedef enum form {
    OURS, LLAMA, QWEN3, GEMMA2, GEMMA3, OLMO2, PHI3, SMOLLM3, GRANITE, STABLELM, PHI, NEOX, GPTJ, GPT2, BERT,
    ROBERTA, DISTILBERT, MODERNBERT, NOMIC,
    GGUF_LLAMA, GGUF_QWEN3, GGUF_GEMMA2, GGUF_GEMMA3, GGUF_OLMO2, GGUF_PHI3, GGUF_SMOLLM3, GGUF_GRANITE,
    GGUF_STABLELM, GGUF_PHI2, GGUF_NEOX, GGUF_GPT2, GGUF_BERT, GGUF_MODERNBERT, GGUF_NOMIC, FORMS
} form;

/* Sets of forms, a bit each. */
typedef uint64_t form_bits;
#define IN(f) ((form_bits)1 << (f))
#define IN_GEMMA (IN(GEMMA2) | IN(GEMMA3))
#define IN_RMS_NORMED (IN(LLAMA) | IN(QWEN3) | IN(OLMO2) | IN(PHI3) | IN(SMOLLM3) | IN(GRANITE))
#define IN_NAMED_AS_LLAMA ((IN_RMS_NORMED & ~IN(PHI3)) | IN_GEMMA | IN(STABLELM))
#define IN_MODEL (IN_NAMED_AS_LLAMA | IN(PHI3) | IN(PHI))
#define IN_TURNED_ENCODERS (IN(MODERNBERT) | IN(NOMIC))
#define IN_ROTARY (IN_MODEL | IN(NEOX) | IN(GPTJ) | IN_TURNED_ENCODERS)
#define IN_BERTS (IN(BERT) | IN(ROBERTA))
#define IN_UNTURNED_ENCODERS (IN_BERTS | IN(DISTILBERT))
#define IN_ENCODERS (IN_UNTURNED_ENCODERS | IN_TURNED_ENCODERS)
#define IN_JSON (IN_ROTARY | IN(GPT2) | IN_ENCODERS)
#define IN_GGUF_GEMMA (IN(GGUF_GEMMA2) | IN(GGUF_GEMMA3))
#define IN_GGUF_SWIGLU \
    (IN(GGUF_LLAMA) | IN(GGUF_QWEN3) | IN(GGUF_OLMO2) | IN(GGUF_PHI3) | IN(GGUF_SMOLLM3) | \
     IN(GGUF_GRANITE) | IN(GGUF_STABLELM))
#define IN_GGUF_RMS_NORMED ((IN_GGUF_SWIGLU & ~IN(GGUF_STABLELM)) | IN_GGUF_GEMMA)
#define IN_GGUF_PLAIN (IN(GGUF_PHI2) | IN(GGUF_NEOX) | IN(GGUF_GPT2) | IN(GGUF_BERT))
#define IN_GGUF_POST (IN(GGUF_BERT) | IN(GGUF_NOMIC)) /* norms behind the sums */
#define IN_GGUF_ENCODERS (IN_GGUF_POST | IN(GGUF_MODERNBERT))
#define IN_GGUF_ROTARY \
    (IN_GGUF_SWIGLU | IN_GGUF_GEMMA | IN(GGUF_PHI2) | IN(GGUF_NEOX) | IN(GGUF_MODERNBERT) | IN(GGUF_NOMIC))
#define IN_GGUF (IN_GGUF_ROTARY | IN(GGUF_GPT2) | IN(GGUF_BERT))
/* positions are embeddings */
#define IN_UNTURNED (IN(GPT2) | IN_UNTURNED_ENCODERS | IN(GGUF_GPT2) | IN(GGUF_BERT))

enum {
    ROBERTA_ROWS = 2, /* of RoBERTa's positions, which count from behind its padding: never read */
    NOMIC_BLOCK = 256, /* nomic-bert's feed-forward layers are a multiple of it wide */
    FORM_PAIRS = 512 /* of a head with longrope */
};

/* Models of others by their own name: model_type and the classes of transformers whose tensors are all that
   they compute with, the first of which is written, or (no classes) GGUF's architecture. */
static const struct form_class { form in; const char *type, *architectures; } form_classes[] = {
    {LLAMA, "llama", "LlamaForCausalLM LlamaModel LLaMAForCausalLM"},
    {LLAMA, "mistral", "MistralForCausalLM MistralModel"}, {LLAMA, "qwen2", "Qwen2ForCausalLM Qwen2Model"},
    {QWEN3, "qwen3", "Qwen3ForCausalLM Qwen3Model"}, {GEMMA2, "gemma2", "Gemma2ForCausalLM Gemma2Model"},
    {GEMMA3, "gemma3_text", "Gemma3ForCausalLM Gemma3TextModel"},
    {OLMO2, "olmo2", "Olmo2ForCausalLM Olmo2Model"}, {PHI3, "phi3", "Phi3ForCausalLM Phi3Model"},
    {SMOLLM3, "smollm3", "SmolLM3ForCausalLM SmolLM3Model"},
    {GRANITE, "granite", "GraniteForCausalLM GraniteModel"},
    {STABLELM, "stablelm", "StableLmForCausalLM StableLmModel"}, {PHI, "phi", "PhiForCausalLM PhiModel"},
    {NEOX, "gpt_neox", "GPTNeoXForCausalLM GPTNeoXModel"}, {GPTJ, "gptj", "GPTJForCausalLM GPTJModel"},
    {GPT2, "gpt2", "GPT2LMHeadModel GPT2Model"},
    {BERT, "bert", "BertModel BertForMaskedLM BertForPreTraining BertForSequenceClassification"},
    {ROBERTA, "roberta", "RobertaModel RobertaForMaskedLM RobertaForSequenceClassification"},
    {ROBERTA, "xlm-roberta",
     "XLMRobertaModel XLMRobertaForMaskedLM XLMRobertaForSequenceClassification"},
    {DISTILBERT, "distilbert", "DistilBertModel DistilBertForMaskedLM"},
    {MODERNBERT, "modernbert", "ModernBertModel ModernBertForMaskedLM"},
    {NOMIC, "nomic_bert", "NomicBertModel"},
    {GGUF_LLAMA, "llama", NULL}, {GGUF_LLAMA, "qwen2", NULL}, {GGUF_QWEN3, "qwen3", NULL},
    {GGUF_GEMMA2, "gemma2", NULL}, {GGUF_GEMMA3, "gemma3", NULL}, {GGUF_OLMO2, "olmo2", NULL},
    {GGUF_PHI3, "phi3", NULL}, {GGUF_SMOLLM3, "smollm3", NULL}, {GGUF_GRANITE, "granite", NULL},
    {GGUF_STABLELM, "stablelm", NULL}, {GGUF_PHI2, "phi2", NULL}, {GGUF_NEOX, "gptneox", NULL},
    {GGUF_GPT2, "gpt2", NULL}, {GGUF_BERT, "bert", NULL}, {GGUF_MODERNBERT, "modern-bert", NULL},
    {GGUF_NOMIC, "nomic-bert", NULL}};
enum { FORM_CLASSES = sizeof form_classes / sizeof *form_classes };

/* The first name of a form. */
static inline const struct form_class *form_class_of(form f) {
    size_t i = 0;
    while (form_classes[i].in != f) i++;
    return &form_classes[i];
}

/* ---- Tensors ---- */

/* What stands before the names of a form's tensors. */
static inline const char *form_prefix(form f) {
    if (IN(f) & (IN_MODEL | IN(MODERNBERT))) return "model.";
    if (IN(f) & (IN(GPT2) | IN(GPTJ))) return "transformer.";
    if (f == ROBERTA) return "roberta.";
    if (f == DISTILBERT) return "distilbert.";
    return f == NEOX ? "gpt_neox." : f == BERT ? "bert." : "";
}

/* Every tensor by our name and by theirs, without ".weight" or ".bias"; % is the layer's number. What begins
   with / is never behind the form's prefix. Rows of one name are one tensor there, one after another. */
static const struct form_tensor { const char *ours; form_bits forms; const char *theirs; } form_tensors[] = {
    {"tok_emb", IN_MODEL, "embed_tokens"}, {"tok_emb", IN(GPT2) | IN(GPTJ), "wte"},
    {"tok_emb", IN(NEOX), "embed_in"}, {"tok_emb", IN(MODERNBERT), "embeddings.tok_embeddings"},
    {"tok_emb", IN_ENCODERS, "embeddings.word_embeddings"}, {"tok_emb", IN_GGUF, "token_embd"},
    {"pos_emb", IN(GPT2), "wpe"}, {"pos_emb", IN_UNTURNED_ENCODERS, "embeddings.position_embeddings"},
    {"pos_emb", IN(GGUF_GPT2) | IN(GGUF_BERT), "position_embd"},
    {"type_emb", IN_BERTS | IN(NOMIC), "embeddings.token_type_embeddings"},
    {"type_emb", IN_GGUF_POST, "token_types"}, {"emb_norm", IN(MODERNBERT), "embeddings.norm"},
    {"emb_norm", IN(NOMIC), "emb_ln"}, {"emb_norm", IN_ENCODERS, "embeddings.LayerNorm"},
    {"emb_norm", IN_GGUF_ENCODERS, "token_embd_norm"},
    {"blocks.%.ln1", IN_MODEL | IN(NEOX), "layers.%.input_layernorm"},
    {"blocks.%.ln1", IN(GPT2) | IN(GPTJ), "h.%.ln_1"},
    {"blocks.%.ln1", IN_BERTS, "encoder.layer.%.attention.output.LayerNorm"},
    {"blocks.%.ln1", IN_GGUF_POST, "blk.%.attn_output_norm"}, {"blocks.%.ln1", IN_GGUF, "blk.%.attn_norm"},
    {"blocks.%.attn.wq", IN_NAMED_AS_LLAMA | IN(PHI), "layers.%.self_attn.q_proj"},
    {"blocks.%.attn.wk", IN_NAMED_AS_LLAMA | IN(PHI), "layers.%.self_attn.k_proj"},
    {"blocks.%.attn.wv", IN_NAMED_AS_LLAMA | IN(PHI), "layers.%.self_attn.v_proj"},
    {"blocks.%.attn.wq", IN(PHI3), "layers.%.self_attn.qkv_proj"},
    {"blocks.%.attn.wk", IN(PHI3), "layers.%.self_attn.qkv_proj"},
    {"blocks.%.attn.wv", IN(PHI3), "layers.%.self_attn.qkv_proj"},
    {"blocks.%.attn.wq", IN(NEOX), "layers.%.attention.query_key_value"},
    {"blocks.%.attn.wk", IN(NEOX), "layers.%.attention.query_key_value"},
    {"blocks.%.attn.wv", IN(NEOX), "layers.%.attention.query_key_value"},
    {"blocks.%.attn.wq", IN(GPTJ), "h.%.attn.q_proj"}, {"blocks.%.attn.wk", IN(GPTJ), "h.%.attn.k_proj"},
    {"blocks.%.attn.wv", IN(GPTJ), "h.%.attn.v_proj"},
    {"blocks.%.attn.wq", IN(GPT2), "h.%.attn.c_attn"}, {"blocks.%.attn.wk", IN(GPT2), "h.%.attn.c_attn"},
    {"blocks.%.attn.wv", IN(GPT2), "h.%.attn.c_attn"},
    {"blocks.%.attn.wq", IN_BERTS, "encoder.layer.%.attention.self.query"},
    {"blocks.%.attn.wk", IN_BERTS, "encoder.layer.%.attention.self.key"},
    {"blocks.%.attn.wv", IN_BERTS, "encoder.layer.%.attention.self.value"},
#define IN_GGUF_JOINED \
    (IN(GGUF_GPT2) | IN(GGUF_NEOX) | IN(GGUF_PHI3) | IN(GGUF_MODERNBERT) | IN(GGUF_NOMIC))
    {"blocks.%.attn.wq", IN_GGUF_JOINED, "blk.%.attn_qkv"},
    {"blocks.%.attn.wk", IN_GGUF_JOINED, "blk.%.attn_qkv"},
    {"blocks.%.attn.wv", IN_GGUF_JOINED, "blk.%.attn_qkv"},
    {"blocks.%.attn.wq", IN_GGUF, "blk.%.attn_q"}, {"blocks.%.attn.wk", IN_GGUF, "blk.%.attn_k"},
    {"blocks.%.attn.wv", IN_GGUF, "blk.%.attn_v"},
    {"blocks.%.attn.wo", IN_MODEL & ~IN(PHI), "layers.%.self_attn.o_proj"},
    {"blocks.%.attn.wo", IN(PHI), "layers.%.self_attn.dense"},
    {"blocks.%.attn.wo", IN(NEOX), "layers.%.attention.dense"},
    {"blocks.%.attn.wo", IN(GPTJ), "h.%.attn.out_proj"}, {"blocks.%.attn.wo", IN(GPT2), "h.%.attn.c_proj"},
    {"blocks.%.attn.wo", IN_BERTS, "encoder.layer.%.attention.output.dense"},
    {"blocks.%.attn.wo", IN_GGUF, "blk.%.attn_output"},
    {"blocks.%.attn.q_norm", IN_MODEL, "layers.%.self_attn.q_norm"},
    {"blocks.%.attn.k_norm", IN_MODEL, "layers.%.self_attn.k_norm"},
    {"blocks.%.attn.q_norm", IN_GGUF, "blk.%.attn_q_norm"},
    {"blocks.%.attn.k_norm", IN_GGUF, "blk.%.attn_k_norm"},
    {"blocks.%.ln1_out", IN_MODEL, "layers.%.post_attention_layernorm"},
    {"blocks.%.ln1_out", IN_GGUF, "blk.%.post_attention_norm"},
    {"blocks.%.ln2", IN_GEMMA, "layers.%.pre_feedforward_layernorm"},
    {"blocks.%.ln2", IN_MODEL | IN(NEOX), "layers.%.post_attention_layernorm"},
    {"blocks.%.ln2", IN(GPT2), "h.%.ln_2"}, {"blocks.%.ln2", IN_BERTS, "encoder.layer.%.output.LayerNorm"},
    {"blocks.%.ln2", IN_GGUF_POST, "blk.%.layer_output_norm"}, {"blocks.%.ln2", IN_GGUF, "blk.%.ffn_norm"},
    {"blocks.%.ffn.w1", IN_NAMED_AS_LLAMA, "layers.%.mlp.gate_proj"},
    {"blocks.%.ffn.w3", IN_NAMED_AS_LLAMA, "layers.%.mlp.up_proj"},
    {"blocks.%.ffn.w1", IN(PHI3), "layers.%.mlp.gate_up_proj"},
    {"blocks.%.ffn.w3", IN(PHI3), "layers.%.mlp.gate_up_proj"},
    {"blocks.%.ffn.w1", IN(PHI), "layers.%.mlp.fc1"},
    {"blocks.%.ffn.w1", IN(NEOX), "layers.%.mlp.dense_h_to_4h"},
    {"blocks.%.ffn.w1", IN(GPTJ), "h.%.mlp.fc_in"}, {"blocks.%.ffn.w1", IN(GPT2), "h.%.mlp.c_fc"},
    {"blocks.%.ffn.w1", IN_BERTS, "encoder.layer.%.intermediate.dense"},
    {"blocks.%.ffn.w1", IN_GGUF_PLAIN | IN(GGUF_PHI3) | IN(GGUF_MODERNBERT), "blk.%.ffn_up"},
    {"blocks.%.ffn.w1", IN_GGUF, "blk.%.ffn_gate"}, {"blocks.%.ffn.w3", IN_GGUF, "blk.%.ffn_up"},
    {"blocks.%.ffn.w2", IN_MODEL & ~IN(PHI), "layers.%.mlp.down_proj"},
    {"blocks.%.ffn.w2", IN(PHI), "layers.%.mlp.fc2"},
    {"blocks.%.ffn.w2", IN(NEOX), "layers.%.mlp.dense_4h_to_h"},
    {"blocks.%.ffn.w2", IN(GPTJ), "h.%.mlp.fc_out"}, {"blocks.%.ffn.w2", IN(GPT2), "h.%.mlp.c_proj"},
    {"blocks.%.ffn.w2", IN_BERTS, "encoder.layer.%.output.dense"},
    {"blocks.%.ffn.w2", IN_GGUF, "blk.%.ffn_down"},
    {"blocks.%.ln2_out", IN_MODEL, "layers.%.post_feedforward_layernorm"},
    {"blocks.%.ln2_out", IN_GGUF, "blk.%.post_ffw_norm"},
    {"ln_f", IN(PHI), "final_layernorm"}, {"ln_f", IN_MODEL, "norm"}, {"ln_f", IN(NEOX), "final_layer_norm"},
    {"ln_f", IN(GPT2) | IN(GPTJ), "ln_f"}, {"ln_f", IN_GGUF & ~IN_GGUF_POST, "output_norm"},
#define BLOCK "blocks.%."
#define LAYER "transformer.layer.%."
    {BLOCK "ln1", IN(DISTILBERT), LAYER "sa_layer_norm"},
    {BLOCK "ln2", IN(DISTILBERT), LAYER "output_layer_norm"},
    {BLOCK "attn.wq", IN(DISTILBERT), LAYER "attention.q_lin"},
    {BLOCK "attn.wk", IN(DISTILBERT), LAYER "attention.k_lin"},
    {BLOCK "attn.wv", IN(DISTILBERT), LAYER "attention.v_lin"},
    {BLOCK "attn.wo", IN(DISTILBERT), LAYER "attention.out_lin"},
    {BLOCK "ffn.w1", IN(DISTILBERT), LAYER "ffn.lin1"}, {BLOCK "ffn.w2", IN(DISTILBERT), LAYER "ffn.lin2"},
    {BLOCK "ln1", IN(MODERNBERT), "layers.%.attn_norm"}, {BLOCK "ln2", IN(MODERNBERT), "layers.%.mlp_norm"},
    {BLOCK "attn.wq", IN(MODERNBERT), "layers.%.attn.Wqkv"},
    {BLOCK "attn.wk", IN(MODERNBERT), "layers.%.attn.Wqkv"},
    {BLOCK "attn.wv", IN(MODERNBERT), "layers.%.attn.Wqkv"},
    {BLOCK "attn.wo", IN(MODERNBERT), "layers.%.attn.Wo"},
    {BLOCK "ffn.w1", IN(MODERNBERT), "layers.%.mlp.Wi"},
    {BLOCK "ffn.w3", IN(MODERNBERT), "layers.%.mlp.Wi"}, {BLOCK "ffn.w2", IN(MODERNBERT), "layers.%.mlp.Wo"},
    {"ln_f", IN(MODERNBERT), "final_norm"}, {"head_dense", IN(MODERNBERT), "/head.dense"},
    {"head_norm", IN(MODERNBERT), "/head.norm"}, {"head", IN(MODERNBERT), "/decoder"},
#define NOMIC_LAYER "encoder.layers.%."
    {BLOCK "ln1", IN(NOMIC), NOMIC_LAYER "norm1"}, {BLOCK "ln2", IN(NOMIC), NOMIC_LAYER "norm2"},
    {BLOCK "attn.wq", IN(NOMIC), NOMIC_LAYER "attn.Wqkv"},
    {BLOCK "attn.wk", IN(NOMIC), NOMIC_LAYER "attn.Wqkv"},
    {BLOCK "attn.wv", IN(NOMIC), NOMIC_LAYER "attn.Wqkv"},
    {BLOCK "attn.wo", IN(NOMIC), NOMIC_LAYER "attn.out_proj"},
    {BLOCK "ffn.w1", IN(NOMIC), NOMIC_LAYER "mlp.fc12"}, {BLOCK "ffn.w3", IN(NOMIC), NOMIC_LAYER "mlp.fc11"},
    {BLOCK "ffn.w2", IN(NOMIC), NOMIC_LAYER "mlp.fc2"},
    {"head_dense", IN(ROBERTA), "/lm_head.dense"}, {"head_norm", IN(ROBERTA), "/lm_head.layer_norm"},
    {"head", IN(ROBERTA), "/lm_head"}, {"pool", IN(ROBERTA), "/classifier.dense"},
    {"class", IN(ROBERTA), "/classifier.out_proj"}, {"head_dense", IN(DISTILBERT), "/vocab_transform"},
    {"head_norm", IN(DISTILBERT), "/vocab_layer_norm"}, {"head", IN(DISTILBERT), "/vocab_projector"},
    {"head_dense", IN(BERT), "/cls.predictions.transform.dense"},
    {"head_norm", IN(BERT), "/cls.predictions.transform.LayerNorm"},
    {"head", IN_MODEL | IN(GPT2) | IN(GPTJ), "/lm_head"}, {"head", IN(NEOX), "/embed_out"},
    {"head", IN(BERT), "/cls.predictions"}, {"head", IN_GGUF & ~IN_GGUF_ENCODERS, "output"},
    {"pool", IN(BERT), "pooler.dense"}, {"class", IN(BERT), "/classifier"}};

/* Their name for a tensor of ours; NULL: they have none. */
static inline const char *form_theirs(const char *ours, form f) {
    for (size_t i = 0; i < sizeof form_tensors / sizeof *form_tensors; i++)
        if (form_tensors[i].forms & IN(f) && !strcmp(form_tensors[i].ours, ours))
            return form_tensors[i].theirs;
    return NULL;
}

/* Tensors that may be there besides: what the program computes itself, copies of tied matrices, and (`said` =
   1) heads that the model here does not have, of which a line is printed. */
static const struct form_spare { form_bits forms; int said; const char *name; } form_spares[] = {
    {IN_MODEL, 0, "layers.%.self_attn.rotary_emb.inv_freq"}, {IN_MODEL, 0, "rotary_emb.inv_freq"},
    {IN(NEOX), 0, "layers.%.attention.rotary_emb.inv_freq"}, {IN(NEOX), 0, "rotary_emb.inv_freq"},
    {IN(NEOX), 0, "layers.%.attention.bias"}, {IN(NEOX), 0, "layers.%.attention.masked_bias"},
    {IN(GPT2) | IN(GPTJ), 0, "h.%.attn.bias"}, {IN(GPT2) | IN(GPTJ), 0, "h.%.attn.masked_bias"},
    {IN_MODEL | IN(GPT2), 0, "/lm_head.weight"}, {IN(NEOX), 0, "/embed_out.weight"},
    {IN_ENCODERS, 0, "embeddings.position_ids"}, {IN(ROBERTA), 0, "/lm_head.decoder.weight"},
    {IN(ROBERTA), 0, "/lm_head.decoder.bias"}, {IN(DISTILBERT), 0, "/vocab_projector.weight"},
    {IN(MODERNBERT), 0, "/decoder.weight"},
    {IN(BERT), 0, "/cls.predictions.decoder.weight"}, {IN(BERT), 0, "/cls.predictions.decoder.bias"},
    {IN_BERTS, 1, "pooler.dense.weight"}, {IN_BERTS, 1, "pooler.dense.bias"},
    {IN(BERT), 1, "/cls.seq_relationship.weight"}, {IN(BERT), 1, "/cls.seq_relationship.bias"},
    {IN(GGUF_LLAMA) | IN(GGUF_GRANITE), 0, "rope_freqs.weight"}};

/* Writes a name of the tables with its prefix (or without), the layer's number and what follows it. */
static inline void form_name(char *out, size_t size, form f, const char *row, int prefixed, size_t layer,
                             const char *suffix) {
    size_t before = strcspn(row, "%");
    char number[24] = "";
    if (*row == '/') row++, before--, prefixed = 0;
    if (row[before]) snprintf(number, sizeof number, "%lu", (unsigned long)layer);
    snprintf(out, size, "%s%.*s%s%s%s", prefixed ? form_prefix(f) : "", (int)before, row, number,
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
    form_bits forms;
    form_use use;
    const char *key, *field, *value;
} form_key;

static const form_key form_keys[] = {
#define IN_HIDDEN (IN_MODEL | IN(NEOX) | IN_BERTS | IN(MODERNBERT))
#define IN_SHORT (IN(GPT2) | IN(GPTJ) | IN(NOMIC))
#define IN_GROUPED (IN_MODEL)
    {IN_HIDDEN, FIELD, "hidden_size", "d_model", NULL},
    {IN_SHORT, FIELD, "n_embd", "d_model", NULL},
    {IN(DISTILBERT), FIELD, "dim", "d_model", NULL}, {IN(DISTILBERT), FIELD, "n_layers", "n_layers", NULL},
    {IN(DISTILBERT), FIELD, "n_heads", "n_heads", NULL}, {IN(DISTILBERT), FIELD, "hidden_dim", "d_ff", NULL},
    {IN(DISTILBERT), FIELD, "max_position_embeddings", "max_positions", "512"},
    {IN(DISTILBERT), FIELD, "activation", "activation", "gelu_erf"},
    {IN(DISTILBERT), FIELD, "dropout", "dropout", "0"},
    {IN(DISTILBERT), FIELD, "attention_dropout", "attention_dropout", "0"},
    {IN(DISTILBERT), ALWAYS, NULL, "norm_eps", "1e-12"},
    {IN(DISTILBERT), ONLY, "sinusoidal_pos_embds", NULL, "0"},
    {IN(DISTILBERT), ONLY, "tie_weights_", NULL, "1"},
    {IN(DISTILBERT), HARMLESS, "qa_dropout", NULL, NULL},
    {IN(DISTILBERT), HARMLESS, "seq_classif_dropout", NULL, NULL},
    {IN(ROBERTA), ONLY, "pad_token_id", NULL, "1"}, /* positions count from behind it */
    {IN_GGUF, FIELD, "embedding_length", "d_model", NULL},
    {IN_HIDDEN, FIELD, "num_hidden_layers", "n_layers", NULL},
    {IN_SHORT, FIELD, "n_layer", "n_layers", NULL},
    {IN_GGUF, FIELD, "block_count", "n_layers", NULL},
    {IN_HIDDEN, FIELD, "num_attention_heads", "n_heads", NULL},
    {IN_SHORT, FIELD, "n_head", "n_heads", NULL},
    {IN_GGUF, FIELD, "attention.head_count", "n_heads", NULL},
    {IN_GROUPED, FIELD, "num_key_value_heads", "n_kv_heads", "0"},
    {IN_GGUF, FIELD, "attention.head_count_kv", "n_kv_heads", "0"},
    {IN_HIDDEN, FIELD, "intermediate_size", "d_ff", NULL},
    {IN(NOMIC), FIELD, "n_inner", "d_ff", NULL}, {IN_SHORT, FIELD, "n_inner", "d_ff", ""},
    {IN_GGUF, FIELD, "feed_forward_length", "d_ff", NULL},
    {IN_JSON, FIELD, "vocab_size", "vocabulary", NULL},
    {IN_GGUF, FIELD, "vocab_size", "vocabulary", ""},
    {IN_HIDDEN, FIELD, "max_position_embeddings", "max_positions", NULL},
    {IN_SHORT, FIELD, "n_positions", "max_positions", NULL},
    {IN_GGUF, FIELD, "context_length", "max_positions", NULL},
    {IN_BERTS | IN(NOMIC), FIELD, "type_vocab_size", "token_types", "2"},
    {IN(MODERNBERT), FIELD, "norm_eps", "norm_eps", "1e-5"},
    {IN(MODERNBERT), FIELD, "norm_bias", "norm", "layernorm_gain"},
    {IN(OLMO2) | IN(PHI3), FIELD, "rms_norm_eps", "norm_eps", "1e-5"},
    {IN_RMS_NORMED | IN_GEMMA, FIELD, "rms_norm_eps", "norm_eps", "1e-6"},
    {IN_SHORT, FIELD, "layer_norm_epsilon", "norm_eps", "1e-5"},
    {IN(STABLELM) | IN(PHI) | IN(NEOX), FIELD, "layer_norm_eps", "norm_eps", "1e-5"},
    {IN_BERTS, FIELD, "layer_norm_eps", "norm_eps", "1e-12"},
    {IN_GGUF_RMS_NORMED, FIELD, "attention.layer_norm_rms_epsilon", "norm_eps", NULL},
    {IN_GGUF & ~IN_GGUF_RMS_NORMED, FIELD, "attention.layer_norm_epsilon", "norm_eps", NULL},
    {IN(GEMMA3), FIELD, "rope_theta", "base", "1000000"},
    {IN(SMOLLM3), FIELD, "rope_theta", "base", "2000000"},
    {IN_MODEL, FIELD, "rope_theta", "base", "10000"},
    {IN(NEOX) | IN(NOMIC), FIELD, "rotary_emb_base", "base", "10000"},
    {IN(MODERNBERT), FIELD, "global_rope_theta", "base", "160000"},
    {IN(MODERNBERT), FIELD, "local_rope_theta", "local_base", "10000"},
    {IN_GGUF_ROTARY, FIELD, "rope.freq_base", "base", "10000"},
    {IN(GGUF_GEMMA3), FIELD, "rope.freq_base_swa", "local_base", "10000"},
    {IN(GGUF_MODERNBERT), FIELD, "rope.freq_base_swa", "local_base", "0"}, /* as of other layers */
    {IN(GEMMA3), FIELD, "rope_local_base_freq", "local_base", "10000"},
    {IN_GEMMA | IN(SMOLLM3) | IN(GPT2), FIELD, "tie_word_embeddings", "tied", "1"},
    {IN_ROTARY & ~IN_ENCODERS, FIELD, "tie_word_embeddings", "tied", "0"},
    {IN(LLAMA) | IN(QWEN3) | IN_GEMMA | IN(OLMO2) | IN(SMOLLM3) | IN(GRANITE), FIELD, "attention_bias",
     "attention_bias", "0"},
    {IN(NEOX), FIELD, "attention_bias", "attention_bias", "1"},
    {IN(MODERNBERT), FIELD, "attention_bias", "attention_bias", "0"},
    {IN(NOMIC), FIELD, "qkv_proj_bias", "attention_bias", "1"},
    {IN(NOMIC), FIELD, "mlp_fc1_bias", "ffn_bias", "1"},
    {IN(STABLELM), FIELD, "use_qkv_bias", "qkv_bias", "0"},
    {IN(LLAMA) | IN(SMOLLM3) | IN(GRANITE), FIELD, "mlp_bias", "ffn_bias", "0"},
    {IN(NOMIC), FIELD, "activation_function", "activation", NULL},
    {IN_SHORT, FIELD, "activation_function", "activation", "gelu_tanh"},
    {IN(MODERNBERT) | IN(GGUF_MODERNBERT), FIELD, "hidden_activation", "activation", "geglu_erf"},
    {IN(PHI), FIELD, "hidden_act", "activation", "gelu_tanh"},
    {IN_BERTS | IN(NEOX), FIELD, "hidden_act", "activation", "gelu_erf"},
    {IN_GEMMA, FIELD, "hidden_activation", "activation", "geglu_tanh"},
    {IN(NEOX), FIELD, "use_parallel_residual", "parallel", "norms"},
    {IN(STABLELM), FIELD, "use_parallel_residual", "parallel", "none"},
    {IN(GGUF_NEOX) | IN(GGUF_STABLELM), FIELD, "use_parallel_residual", "parallel", "none"},
    {IN(GEMMA2), FIELD, "attn_logit_softcapping", "score_softcap", "50"},
    {IN(GEMMA2), FIELD, "final_logit_softcapping", "logit_softcap", "30"},
    {IN(GEMMA3), FIELD, "attn_logit_softcapping", "score_softcap", "0"},
    {IN(GEMMA3), FIELD, "final_logit_softcapping", "logit_softcap", "0"},
    {IN(GGUF_GEMMA2), FIELD, "attn_logit_softcapping", "score_softcap", "50"},
    {IN(GGUF_GEMMA2), FIELD, "final_logit_softcapping", "logit_softcap", "30"},
    {IN(GRANITE), FIELD, "embedding_multiplier", "embedding_factor", "1"},
    {IN(GRANITE), FIELD, "residual_multiplier", "residual_scale", "1"},
    {IN(GGUF_GRANITE), FIELD, "embedding_scale", "embedding_factor", "1"},
    {IN(GGUF_GRANITE), FIELD, "residual_scale", "residual_scale", "1"},
    {IN_BERTS, FIELD, "hidden_dropout_prob", "dropout", "0"},
    {IN(MODERNBERT), FIELD, "mlp_dropout", "dropout", "0"},
    {IN_SHORT | IN(PHI) | IN(PHI3), FIELD, "resid_pdrop", "dropout", "0"},
    {IN(NEOX) | IN(STABLELM), FIELD, "hidden_dropout", "dropout", "0"},
    {IN_BERTS, FIELD, "attention_probs_dropout_prob", "attention_dropout", "0"},
    {IN_SHORT, FIELD, "attn_pdrop", "attention_dropout", "0"},
    {IN_MODEL | IN(NEOX) | IN(MODERNBERT), FIELD, "attention_dropout", "attention_dropout", "0"},

    {IN_ROTARY | IN_GGUF_ROTARY, ALWAYS, NULL, "attention", "rope"},
    {IN_RMS_NORMED | IN_GGUF_RMS_NORMED, ALWAYS, NULL, "norm", "rmsnorm"},
    {IN_GEMMA, ALWAYS, NULL, "norm", "rmsnorm_one_plus"},
    {IN(GGUF_MODERNBERT), ALWAYS, NULL, "norm", "layernorm_gain"},
    {IN_RMS_NORMED | IN(STABLELM) | IN_GGUF_SWIGLU | IN(GGUF_NOMIC), ALWAYS, NULL, "activation", "swiglu"},
    {IN_GGUF_GEMMA, ALWAYS, NULL, "activation", "geglu_tanh"},
    {IN_GEMMA | IN_GGUF_GEMMA, ALWAYS, NULL, "placement", "sandwich"},
    {IN_GEMMA | IN_GGUF_GEMMA, ALWAYS, NULL, "embedding_scale", "1"},
    {IN(OLMO2) | IN(GGUF_OLMO2), ALWAYS, NULL, "placement", "after"},
    {IN(OLMO2) | IN(GGUF_OLMO2), ALWAYS, NULL, "qk_norm", "rms_whole"},
    {IN(QWEN3) | IN(GGUF_QWEN3) | IN(GGUF_GEMMA3), ALWAYS, NULL, "qk_norm", "rms_gain"},
    {IN(GEMMA3), ALWAYS, NULL, "qk_norm", "rms_one_plus"},
    {IN(QWEN3) | IN_GEMMA | IN(OLMO2) | IN(PHI3) | IN(STABLELM), ALWAYS, NULL, "ffn_bias", "0"},
    {(IN_GGUF_SWIGLU & ~IN(GGUF_LLAMA)) | IN_GGUF_GEMMA, ALWAYS, NULL, "ffn_bias", "0"},
    {IN(GGUF_MODERNBERT) | IN(GGUF_NOMIC), ALWAYS, NULL, "ffn_bias", "0"},
    {IN(PHI) | IN(GGUF_PHI2), ALWAYS, NULL, "attention_bias", "1"},
    {IN(PHI) | IN(GPTJ) | IN(GGUF_PHI2), ALWAYS, NULL, "parallel", "norm"},
    {IN(PHI) | IN(GPTJ) | IN(GGUF_PHI2), ALWAYS, NULL, "head_bias", "1"},
    {IN_UNTURNED, ALWAYS, NULL, "attention", "dot"},
    {IN_UNTURNED, ALWAYS, NULL, "position", "learned"},
    {IN_UNTURNED, ALWAYS, NULL, "attention_bias", "1"},
    {IN_UNTURNED, ALWAYS, NULL, "ffn_bias", "1"},
    {IN(GGUF_GPT2) | IN(GGUF_PHI2), ALWAYS, NULL, "activation", "gelu_tanh"},
    {IN(GGUF_BERT) | IN(GGUF_NEOX), ALWAYS, NULL, "activation", "gelu_erf"},
    {IN_ENCODERS | IN_GGUF_ENCODERS, ALWAYS, NULL, "causal", "0"},
    {(IN_ENCODERS & ~IN(MODERNBERT)) | IN_GGUF_POST, ALWAYS, NULL, "placement", "post"},
    {IN(MODERNBERT) | IN(GGUF_MODERNBERT), ALWAYS, NULL, "first_norm", "0"},
    {IN(MODERNBERT), ALWAYS, NULL, "ffn_bias", "0"},
    {IN_ENCODERS | IN_GGUF_ENCODERS, ALWAYS, NULL, "embedding_norm", "1"},
    {IN_ENCODERS | IN_GGUF_ENCODERS, ALWAYS, NULL, "tied", "1"},

    {IN_RMS_NORMED | IN(STABLELM), ONLY, "hidden_act", NULL, "silu"},
    {IN_GEMMA, ONLY, "hidden_act", NULL, "gelu_pytorch_tanh"},
    {IN_GEMMA, ONLY, "use_bidirectional_attention", NULL, "0"},
    {IN(STABLELM) | IN(PHI), ONLY, "qk_layernorm", NULL, "0"},
    {IN(PHI3), ONLY, "attention_bias", NULL, "0"}, {IN(PHI3), ONLY, "mlp_bias", NULL, "0"},
    {IN(PHI3), ONLY, "lm_head_bias", NULL, "0"}, {IN(PHI3), ONLY, "full_attn_mod", NULL, "1"},
    {IN(PHI3), ONLY, "interpolate_factor", NULL, "1"},
    {IN_MODEL, ONLY, "rope_interleaved", NULL, "0"},
    {IN_MODEL, ONLY, "use_mrope", NULL, "0"},
    {IN_SHORT, ONLY, "scale_attn_weights", NULL, "1"},
    {IN(GPT2) | IN(NOMIC), ONLY, "scale_attn_by_inverse_layer_idx", NULL, "0"},
    {IN(GPTJ), ONLY, "rotary", NULL, "1"},
    {IN_BERTS | IN(MODERNBERT), ONLY, "position_embedding_type", NULL, "absolute"}, /* Modern: not read */
    {IN(MODERNBERT), ONLY, "mlp_bias", NULL, "0"}, {IN(MODERNBERT), ONLY, "classifier_bias", NULL, "0"},
    {IN(NOMIC), ONLY, "causal", NULL, "0"}, {IN(NOMIC), ONLY, "prenorm", NULL, "0"},
    {IN(NOMIC), ONLY, "parallel_block", NULL, "0"}, {IN(NOMIC), ONLY, "parallel_block_tied_norm", NULL, "0"},
    {IN(NOMIC), ONLY, "use_rms_norm", NULL, "0"}, {IN(NOMIC), ONLY, "rotary_emb_interleaved", NULL, "0"},
    {IN_ENCODERS, ONLY, "tie_word_embeddings", NULL, "1"},
    {IN_JSON, ONLY, "is_decoder", NULL, "0"},
    {IN_JSON, ONLY, "is_encoder_decoder", NULL, "0"},
    {IN_JSON, ONLY, "add_cross_attention", NULL, "0"},
    {IN_JSON, ONLY, "tie_encoder_decoder", NULL, "0"},
    {IN_JSON, ONLY, "pruned_heads", NULL, "{}"},
    {IN_GGUF, ONLY, "expert_count", NULL, "0"},
    {IN_GGUF, ONLY, "expert_used_count", NULL, "0"},
    {IN_GGUF & ~IN_GGUF_ENCODERS, ONLY, "attention.causal", NULL, "1"},
    {IN_GGUF_ENCODERS, ONLY, "attention.causal", NULL, "0"},

    {IN_JSON, ELSEWHERE, "model_type", NULL, NULL}, {IN_JSON, ELSEWHERE, "architectures", NULL, NULL},
    {IN_MODEL & ~(IN(STABLELM) | IN(PHI) | IN(PHI3)), ELSEWHERE, "head_dim", "d_head", NULL},
    {IN_GGUF_ROTARY, ELSEWHERE, "attention.key_length", "d_head", NULL},
    {IN_GGUF_ROTARY, ELSEWHERE, "attention.value_length", NULL, NULL},
    {IN_MODEL & ~IN_GEMMA, ELSEWHERE, "partial_rotary_factor", "rotary_dims", NULL},
    {IN(NEOX), ELSEWHERE, "rotary_pct", "rotary_dims", NULL},
    {IN(NEOX), ELSEWHERE, "partial_rotary_factor", NULL, NULL},
    {IN(NEOX), ELSEWHERE, "rope_theta", NULL, NULL},
    {IN(GPTJ), ELSEWHERE, "rotary_dim", "rotary_dims", NULL},
    {IN_GGUF_ROTARY, ELSEWHERE, "rope.dimension_count", "rotary_dims", NULL},
    {IN(LLAMA) | IN(QWEN3) | IN_GEMMA | IN(PHI3), ELSEWHERE, "sliding_window", "window", NULL},
    {IN(LLAMA) | IN(QWEN3) | IN(SMOLLM3), ELSEWHERE, "use_sliding_window", NULL, NULL},
    {IN(LLAMA) | IN(QWEN3) | IN(SMOLLM3), ELSEWHERE, "max_window_layers", NULL, NULL},
    {IN(QWEN3) | IN_GEMMA, ELSEWHERE, "layer_types", "layer_kinds", NULL},
    {IN_MODEL, ELSEWHERE, "layer_types", NULL, NULL},
    {IN(GEMMA3), ELSEWHERE, "sliding_window_pattern", NULL, NULL},
    {IN(GEMMA3), ELSEWHERE, "_sliding_window_pattern", NULL, NULL},
    {IN(SMOLLM3), ELSEWHERE, "sliding_window", NULL, NULL},
    {IN(SMOLLM3), ELSEWHERE, "no_rope_layers", "layer_kinds", NULL},
    {IN(SMOLLM3), ELSEWHERE, "no_rope_layer_interval", NULL, NULL},
    {IN(MODERNBERT), ELSEWHERE, "local_attention", "window", NULL},
    {IN(MODERNBERT), ELSEWHERE, "layer_types", "layer_kinds", NULL},
    {IN(MODERNBERT), ELSEWHERE, "global_attn_every_n_layers", NULL, NULL},
    {IN(MODERNBERT), ELSEWHERE, "classifier_activation", NULL, NULL},
    {IN(MODERNBERT), ELSEWHERE, "decoder_bias", NULL, NULL},
    {IN(MODERNBERT), ELSEWHERE, "rope_parameters", NULL, NULL},
    {IN(NOMIC), ELSEWHERE, "rotary_emb_fraction", "rotary_dims", NULL},
    {IN(NOMIC), ELSEWHERE, "rotary_scaling_factor", NULL, NULL},
    {IN(NOMIC), ELSEWHERE, "max_trained_positions", NULL, NULL},
    {IN(NOMIC), ELSEWHERE, "mlp_fc2_bias", NULL, NULL},
    {IN_GGUF_GEMMA | IN(GGUF_PHI3) | IN(GGUF_MODERNBERT), ELSEWHERE, "attention.sliding_window", "window",
     NULL},
    {IN_GGUF_GEMMA | IN(GGUF_MODERNBERT), ELSEWHERE, "attention.sliding_window_pattern", "layer_kinds",
     NULL},
    {IN(GGUF_SMOLLM3), ELSEWHERE, NULL, "layer_kinds", NULL},
    {IN_GEMMA, ELSEWHERE, "query_pre_attn_scalar", "score_scale", NULL},
    {IN(GRANITE), ELSEWHERE, "attention_multiplier", "score_scale", NULL},
    {IN(GRANITE), ELSEWHERE, "logits_scaling", "head_scale", NULL},
    {IN(GGUF_GRANITE), ELSEWHERE, "attention.scale", "score_scale", NULL},
    {IN(GGUF_GRANITE), ELSEWHERE, "logit_scale", "head_scale", NULL},
    {IN_MODEL | IN(NEOX), ELSEWHERE, "rope_scaling", "rope_scaling", NULL},
    {IN_MODEL | IN(NEOX), ELSEWHERE, "rope_parameters", NULL, NULL},
    {IN(PHI3), ELSEWHERE, "original_max_position_embeddings", NULL, NULL},
    {IN_GGUF_ROTARY, ELSEWHERE, "rope.scaling.type", "rope_scaling", NULL},
    {IN_GGUF_ROTARY, ELSEWHERE, "rope.scaling.factor", "rope_factor", NULL},
    {IN_GGUF_ROTARY, ELSEWHERE, "rope.scaling.original_context_length", "rope_length", NULL},
    {IN_GGUF_ROTARY, ELSEWHERE, "rope.scaling.yarn_beta_fast", NULL, NULL},
    {IN_GGUF_ROTARY, ELSEWHERE, "rope.scaling.yarn_beta_slow", NULL, NULL},
    {IN_GGUF_ROTARY, ELSEWHERE, "rope.scaling.yarn_attn_factor", NULL, NULL},
    {IN_GGUF_ROTARY, ONLY, "rope.scaling.yarn_ext_factor", NULL, "1"},
    {IN_ROTARY, ELSEWHERE, NULL, "rope_factor", NULL}, {IN_ROTARY, ELSEWHERE, NULL, "rope_length", NULL},
    {IN_ROTARY | IN_GGUF_ROTARY, ELSEWHERE, NULL, "rope_fast", NULL},
    {IN_ROTARY | IN_GGUF_ROTARY, ELSEWHERE, NULL, "rope_slow", NULL},
    {IN_ROTARY | IN_GGUF_ROTARY, ELSEWHERE, NULL, "rope_ramp", NULL},
    {IN(LLAMA), ELSEWHERE, NULL, "qkv_bias", NULL},
    {IN_ROTARY | IN_GGUF_ROTARY, ELSEWHERE, NULL, "layout", NULL},
    {IN_ROTARY | IN_GGUF_ROTARY, ELSEWHERE, NULL, "score_scale", NULL},
    {IN(GGUF_LLAMA) | IN(GGUF_GRANITE), ELSEWHERE, NULL, "frequency", NULL},
#define IN_GGUF_BIASED (IN_GGUF_ROTARY & ~(IN(GGUF_PHI3) | IN(GGUF_MODERNBERT)))
    {IN_GGUF_BIASED, ELSEWHERE, NULL, "attention_bias", NULL},
    {IN_GGUF_BIASED, ELSEWHERE, NULL, "qkv_bias", NULL},
    {IN(GGUF_LLAMA), ELSEWHERE, NULL, "ffn_bias", NULL},
    {IN_GGUF, ELSEWHERE, NULL, "tied", NULL},
    {IN_GGUF_POST, ELSEWHERE, NULL, "token_types", NULL},
    {IN_ENCODERS & ~IN(NOMIC), ELSEWHERE, NULL, "head_transform", NULL},
    {IN_ENCODERS & ~IN(NOMIC), ELSEWHERE, NULL, "head_bias", NULL},
    {IN_BERTS, ELSEWHERE, NULL, "pooler", NULL}, {IN_BERTS, ELSEWHERE, NULL, "classes", NULL},

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
    HARMLESS_KEY("cache_implementation"),
    HARMLESS_KEY("sbert_ce_default_activation_function"), HARMLESS_KEY("sentence_transformers"),
    HARMLESS_KEY("_flash_attn_2_enabled"), HARMLESS_KEY("max_sequence_length"), HARMLESS_KEY("vocab_type"),
#define MODERN_HARMLESS(key) {IN(MODERNBERT), HARMLESS, key, NULL, NULL}
    MODERN_HARMLESS("embedding_dropout"), MODERN_HARMLESS("classifier_pooling"),
    MODERN_HARMLESS("layer_norm_eps"), MODERN_HARMLESS("initializer_cutoff_factor"),
    MODERN_HARMLESS("deterministic_flash_attn"), MODERN_HARMLESS("sparse_prediction"),
    MODERN_HARMLESS("sparse_pred_ignore_index"), MODERN_HARMLESS("reference_compile"),
    MODERN_HARMLESS("repad_logits_with_grad"),
    {IN(PHI3), HARMLESS, "auto_map", NULL, NULL}, /* its model as it was before transformers had it */
#define NOMIC_HARMLESS(key) {IN(NOMIC), HARMLESS, key, NULL, NULL}
    NOMIC_HARMLESS("auto_map"), NOMIC_HARMLESS("dense_seq_output"), NOMIC_HARMLESS("fused_bias_fc"),
    NOMIC_HARMLESS("fused_dropout_add_ln"), NOMIC_HARMLESS("use_flash_attn"), NOMIC_HARMLESS("use_xentropy"),
    NOMIC_HARMLESS("pad_vocab_size_multiple"),
    {IN_GGUF, HARMLESS, "rope.scaling.finetuned", NULL, NULL},
    {IN_GGUF, HARMLESS, "pooling_type", NULL, NULL}, /* of vectors; convert says it */
    {IN_GGUF_ENCODERS, HARMLESS, "token_type_count", NULL, NULL},
    {IN_GGUF, HARMLESS, "tensor_data_layout", NULL, NULL}};
enum { FORM_KEYS = sizeof form_keys / sizeof *form_keys };

/* Words of others for a field's; the first of a meaning is written. */
#define IN_GELU ((IN_SHORT | IN(PHI) | IN(NEOX) | IN_ENCODERS) & ~IN_TURNED_ENCODERS)
static const struct form_word { form_bits forms; const char *field, *theirs, *ours; } form_words[] = {
    {IN_GELU, "activation", "gelu_new", "gelu_tanh"},
    {IN_GELU, "activation", "gelu_pytorch_tanh", "gelu_tanh"},
    {IN_GELU, "activation", "gelu_fast", "gelu_tanh"},
    {IN_GELU, "activation", "gelu", "gelu_erf"},
    {IN_GELU, "activation", "relu", "relu"},
    {IN_GEMMA, "activation", "gelu_pytorch_tanh", "geglu_tanh"},
    {IN(MODERNBERT) | IN(GGUF_MODERNBERT), "activation", "gelu", "geglu_erf"},
    {IN(MODERNBERT), "activation", "gelu_pytorch_tanh", "geglu_tanh"},
    {IN(MODERNBERT), "activation", "gelu_new", "geglu_tanh"},
    {IN(MODERNBERT) | IN(GGUF_MODERNBERT), "activation", "silu", "swiglu"},
    {IN(MODERNBERT), "norm", "0", "layernorm_gain"}, {IN(MODERNBERT), "norm", "1", "layernorm"},
    {IN(NOMIC), "activation", "swiglu", "swiglu"}, {IN(NOMIC), "activation", "geglu", "geglu_erf"},
    {IN(NEOX) | IN(GGUF_NEOX), "parallel", "1", "norms"},
    {IN(STABLELM) | IN(GGUF_STABLELM), "parallel", "1", "norm"},
    {IN_JSON | IN_GGUF, "parallel", "0", "none"}};
enum { FORM_WORDS = sizeof form_words / sizeof *form_words };
/* Fields that change no pass of a model that is not trained; and its tokens. */
static const char *const form_training[] = {"max_positions", "delta_init", "delta_std", "delta_value",
    "dropout", "attention_dropout", "init", "init_std", "pcl_tau", "pcl_mask", "pcl_adapted", "pcl_weight",
    "recompute", "share", "tokenizer"};

/* Settings of `ELSEWHERE` and of rope_scaling that are numbers. */
static const char *const form_numbers =
    "head_dim attention.key_length attention.value_length partial_rotary_factor rope.dimension_count "
    "sliding_window max_window_layers rope.scaling.factor rope.scaling.original_context_length factor "
    "original_max_position_embeddings attention_factor beta_fast beta_slow low_freq_factor high_freq_factor "
    "rope_theta mscale mscale_all_dim rotary_pct rotary_dim sliding_window_pattern _sliding_window_pattern "
    "no_rope_layer_interval attention.sliding_window query_pre_attn_scalar attention_multiplier "
    "logits_scaling attention.scale logit_scale local_attention global_attn_every_n_layers "
    "rotary_emb_fraction rotary_scaling_factor max_trained_positions rope.scaling.yarn_beta_fast "
    "rope.scaling.yarn_beta_slow rope.scaling.yarn_attn_factor";

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
    const gguf_value *value; /* one of these two, where it was read from */
} form_entry;
typedef struct form_settings {
    form_entry *list;
    size_t n;
    form in;
    const cJSON *object;  /* the whole, while it is read, or NULL */
    const char *file;     /* for error lines */
    cmha_context *context;
    char name[32];        /* of the model: llama, mistral, qwen2 ... */
    int dynamic;          /* the angles of positions are scaled beyond max_positions */
    double ratio;         /* of the lengths that YaRN names, where it is not YaRN's factor; else 0 */
    size_t n_factors;     /* longrope: pairs of a head, 0: another rule */
    double factors[2][FORM_PAIRS], long_from; /* what divides frequencies, in texts up to here, and beyond */
    double turned_scale;  /* longrope of parts of heads: factor on the rows of queries that turn */
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
        if (!strncmp(v->key, "general.", 8) || !strncmp(v->key, "tokenizer.", 10) ||
            !strncmp(v->key, "quantize.", 9)) /* from what the bits of the numbers were chosen */
            continue;
        if (strncmp(v->key, s->name, length) || v->key[length] != '.' ||
            strlen(v->key + length) > sizeof e->key)
            return text_fail(error, "%s: %.80s is not understood", s->file, v->key);
        memset(e, 0, sizeof *e);
        strcpy(e->key, v->key + length + 1), e->value = v;
        if (v->type == GGUF_TEXT)
            form_set_text(e, 'w', "%.*s", (int)(v->count < 255 ? v->count : 255), (const char *)v->at);
        else if (v->type == GGUF_F32) form_set_float(e, gguf_float((uint32_t)gguf_bits(v->at, 4)));
        else if (v->type != GGUF_ARRAY && gguf_element(v, 0, &x))
            form_set_text(e, v->type == GGUF_BOOL ? 'f' : 'n', "%.17g", x);
        s->n++;
    }
    return 1;
}

/* A field's place in the table of settings of a form, or NULL. */
static inline const form_key *form_row(form f, const char *field) {
    for (size_t k = 0; k < FORM_KEYS; k++)
        if (form_keys[k].forms & IN(f) && form_keys[k].field && !strcmp(form_keys[k].field, field))
            return &form_keys[k];
    return NULL;
}

/* Width of a head, and how much of it rotates. */
static inline size_t form_width(const cmha_model_config *c) {
    return c->d_head ? c->d_head : c->d_model / c->n_heads;
}
static inline size_t form_turned(const cmha_model_config *c) {
    return c->rotary_dims ? c->rotary_dims : form_width(c);
}

/* The factor on scores. */
static inline double form_scale(const cmha_model_config *c) {
    return c->score_scale > 0 ? c->score_scale : 1 / sqrt((double)form_width(c));
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
    double usual = 0.1 * log(r->factor) + 1, attention = r->attention > 0 ? r->attention : usual;
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
    if (yarn && c->rotary_dims && fabs(attention - 1) > 1e-12) /* ours would scale the scores of all of it */
        return text_fail(error, "%s: yarn scaling where a part of each head turns is not known here but with "
                         "attention_factor 1", s->file);
    if (!yarn || fabs(attention - usual) < 1e-12) return 1;
    if (c->local_base > 0) /* whose layers have none of it */
        return text_fail(error, "%s: attention_factor is not known here where some layers slide", s->file);
    return form_set_number(s, c, "score_scale", attention * attention / (usual * usual) * form_scale(c),
                           error);
}

/* Takes rope_parameters apart that are two objects: *object is then that of layers that see all; from the
   other one, of layers that slide, comes their base. */
static inline int form_nested_rope(const form_settings *s, cmha_model_config *c, const cJSON **object,
                                   char *error) {
    static const char *const words[] = {"full_attention", "sliding_attention"};
    const cJSON *nested[2] = {NULL, NULL}, *item;
    size_t others = 0;
    cJSON_ArrayForEach(item, *object) {
        int slides = !strcmp(item->string, words[1]);
        if (!slides && strcmp(item->string, words[0])) others++;
        else if (nested[slides] || !cJSON_IsObject(item))
            return text_fail(error, "%s: %s of rope_parameters is not understood", s->file, item->string);
        else nested[slides] = item;
    }
    if (!nested[0] && !nested[1]) return 1;
    if (others || !nested[0] || !form_row(s->in, "local_base"))
        return text_fail(error, "%s: rope_parameters by the kind of layer are not understood", s->file);
    *object = nested[0];
    cJSON_ArrayForEach(item, nested[1]) {
        int base = !strcmp(item->string, "rope_theta") && cJSON_IsNumber(item);
        if (base && !form_set_number(s, c, "local_base", item->valuedouble, error)) return 0;
        if (base || (!strcmp(item->string, "rope_type") && cJSON_IsString(item) &&
                     !strcmp(item->valuestring, "default")))
            continue;
        return text_fail(error, "%s: %.60s of the layers that slide is not known here", s->file,
                         item->string);
    }
    return 1;
}

/* Sets the factor on scores where it is not the usual one. */
static inline int form_set_scale(const form_settings *s, cmha_model_config *c, double scale, char *error) {
    double usual = 1 / sqrt((double)form_width(c));
    if (!(scale > 0)) return text_fail(error, "%s: a factor of %g on scores", s->file, scale);
    return fabs(scale - usual) <= 1e-15 * usual || form_set_number(s, c, "score_scale", scale, error);
}

/* longrope: two lists of factors, and one on cosines and sines, which is squared on scores; where a part of
   each head turns, on that part's share of them. */
static inline int form_long_rope(form_settings *s, cmha_model_config *c, const form_settings *in,
                                 char *error) {
    static const char *const names[] = {"short_factor", "long_factor"};
    const size_t pairs = (c->rotary_dims ? c->rotary_dims : form_width(c)) / 2;
    const double most = (double)c->max_positions;
    double length = form_number(in, "original_max_position_embeddings",
                                form_number(s, "original_max_position_embeddings", s->in == PHI3 ? 4096 : 0));
    double stretch = length > 0 ? most / length : form_number(in, "factor", 1), attention;
    if (!(length > 0)) length = most;
    if (pairs > FORM_PAIRS || !(length > 1))
        return text_fail(error, "%s: longrope is known here where up to %d numbers of a head turn", in->file,
                         2 * FORM_PAIRS);
    for (int i = 0; i < 2; i++) {
        const form_entry *e = form_find(in, names[i]);
        const cJSON *item;
        size_t n = 0;
        if (e && cJSON_IsArray(e->json))
            cJSON_ArrayForEach(item, e->json) {
                if (n == pairs || !cJSON_IsNumber(item) || !(item->valuedouble >= 1e-6)) n = pairs;
                else s->factors[i][n] = item->valuedouble;
                n++;
            }
        if (n != pairs)
            return text_fail(error, "%s: %s is no list of factors above 0, one for each of %zu pairs",
                             in->file, names[i], pairs);
    }
    attention = form_number(in, "attention_factor", stretch > 1 ? sqrt(1 + log(stretch) / log(length)) : 1);
    if (!(attention > 0)) return text_fail(error, "%s: attention_factor is not above 0", in->file);
    s->n_factors = pairs, s->long_from = length;
    s->turned_scale = c->rotary_dims ? attention * attention : 1;
    if (c->rotary_dims) return 1;
    return form_set_scale(s, c, attention * attention * form_scale(c), error);
}

/* Is the key one of longrope's lists? */
static inline int form_is_list(const char *type, const char *key) {
    return type && form_listed("longrope su", type) && form_listed("short_factor long_factor", key);
}

/* The share of a head that turns: beside the other settings or, in newer files, within rope_parameters. */
static inline double form_json_share(const form_settings *s, double usual) {
    const form_entry *e = form_find(s, "rope_parameters");
    const cJSON *inside = cJSON_GetObjectItemCaseSensitive(e ? e->json : NULL, "partial_rotary_factor");
    if (cJSON_IsNumber(inside) && form_row(s->in, "rotary_dims")) usual = inside->valuedouble;
    return form_number(s, s->in == NEOX ? "rotary_pct" : "partial_rotary_factor", usual);
}

/* rope_scaling, which is older, or rope_parameters of config.json. */
static inline int form_json_rope(form_settings *s, cmha_model_config *c, char *error) {
    static const char *const known[] = {"rope_type", "type", "factor", "original_max_position_embeddings",
        "attention_factor", "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor", "rope_theta",
        "partial_rotary_factor", "finetuned", "truncate", "mscale", "mscale_all_dim", "short_factor",
        "long_factor"};
    const form_entry *old = form_find(s, "rope_scaling"), *e = form_find(s, "rope_parameters");
    const cJSON *object = NULL;
    form_settings in = *s;
    form_rope r;
    double mscale, all, share;
    int done = 1, llama3;
    if (old && e) return text_fail(error, "%s: rope_scaling beside rope_parameters", s->file);
    if (!e) e = old;
    in.list = NULL, in.n = 0, in.file = "config.json, rope_scaling";
    if (e && strcmp(e->text, "{}")) {
        if (!cJSON_IsObject(e->json)) return text_fail(error, "%s: %s is no object", s->file, e->key);
        object = e->json;
        done = form_nested_rope(s, c, &object, error) && form_read_object(&in, object, error);
    }
    r.type = form_text(&in, "rope_type", form_text(&in, "type", "default"));
    for (size_t i = 0, k; done && i < in.n; i++) {
        for (k = 0; k < sizeof known / sizeof *known && strcmp(known[k], in.list[i].key); k++);
        const form_entry *one = &in.list[i];
        int wrong = one->kind != 'n' && form_listed(form_numbers, one->key);
        if (!one->kind || form_listed("short_factor long_factor", one->key))
            wrong = !form_is_list(r.type, one->key);
        if (k == sizeof known / sizeof *known || wrong)
            done = text_fail(error, "%s: %.60s is not understood", in.file, one->key);
    }
    if (done && !r.type) done = text_fail(error, "%s: its type is no word", in.file);
    if (done && !form_find(&in, "factor") && form_listed("linear yarn llama3", r.type))
        done = text_fail(error, "%s: %s scaling names no factor", in.file, r.type);
    if (done && form_find(&in, "factor") && !form_find(&in, "rope_type") && !form_find(&in, "type"))
        done = text_fail(error, "%s: a factor, but no type", in.file);
    s->dynamic = done && !strcmp(r.type, "dynamic");
    if (done && strcmp(form_text(&in, "truncate", "1"), "1"))
        done = text_fail(error, "%s: truncate is not known here but as true", in.file);
    llama3 = r.type && !strcmp(r.type, "llama3");
    r.factor = form_number(&in, "factor", 1), r.attention = form_number(&in, "attention_factor", 0);
    if (done && form_find(&in, "attention_factor") && !(r.attention > 0))
        done = text_fail(error, "%s: attention_factor is not above 0", in.file);
    mscale = form_number(&in, "mscale", 0), all = form_number(&in, "mscale_all_dim", 0);
    if (!(r.attention > 0) && mscale > 0 && all > 0 && r.factor >= 1)
        r.attention = (0.1 * mscale * log(r.factor) + 1) / (0.1 * all * log(r.factor) + 1);
    r.length = form_number(&in, "original_max_position_embeddings", llama3 ? 0 : (double)c->max_positions);
    if (done && !strcmp(r.type, "yarn") && form_find(&in, "original_max_position_embeddings")) {
        double ratio = (double)c->max_positions / r.length;
        if (fabs(ratio - r.factor) > 1e-9 * r.factor) s->ratio = ratio;
    }
    r.fast = form_number(&in, llama3 ? "high_freq_factor" : "beta_fast", llama3 ? 0 : 32);
    r.slow = form_number(&in, llama3 ? "low_freq_factor" : "beta_slow", llama3 ? 0 : 1);
    if (done && form_find(&in, "rope_theta"))
        done = form_set(s, c, "base", form_text(&in, "rope_theta", ""), error);
    share = form_number(&in, "partial_rotary_factor", 1);
    if (done && form_find(&in, "partial_rotary_factor") && fabs(share - form_json_share(s, 1)) > 0)
        done = text_fail(error, "%s: partial_rotary_factor is %g here, and %g elsewhere", in.file, share,
                         form_json_share(s, 1));
    if (done && form_listed("longrope su", r.type)) done = form_long_rope(s, c, &in, error);
    else if (done) done = form_set_rope(s, c, &r, error);
    free(in.list);
    return done;
}

/* Sets how many of a head's d numbers turn by position: 0 would be all of them. */
static inline int form_set_turned(const form_settings *s, cmha_model_config *c, double turned, double d,
                                  char *error) {
    if (turned == d) return 1;
    if (!(turned >= 1 && turned < d))
        return text_fail(error, "%s: %g of %g numbers of a head turn by position", s->file, turned, d);
    return form_set_number(s, c, "rotary_dims", turned, error);
}

/* The width of a head that a config.json leaves out. */
static inline double form_usual_width(const form_settings *s, const cmha_model_config *c) {
    if (s->in == QWEN3) return 128;
    if (IN(s->in) & IN_GEMMA) return 256;
    return (double)(c->n_heads ? c->d_model / c->n_heads : 0);
}

/* How many of a head's d numbers turn by position. */
static inline double form_read_turned(const form_settings *s, double d) {
    double usual = IN(s->in) & (IN(STABLELM) | IN(NEOX)) ? 0.25 : s->in == PHI ? 0.5 : 1;
    if (s->in == GPTJ && !cJSON_HasObjectItem(s->object, "rotary_dim")) return 64; /* null: all */
    if (s->in == GPTJ) return form_number(s, "rotary_dim", d);
    if (s->in == NOMIC) return floor(d * form_number(s, "rotary_emb_fraction", 0));
    return floor(d * form_json_share(s, usual));
}

/* Does llama.cpp scale the scores of this Gemma by the width of a head that the model would have without a
   width of its own? It knows the largest by their number of layers. */
static inline int form_largest_gemma(const cmha_model_config *c, form f) {
    return (f == GGUF_GEMMA2 && c->n_layers == 46) || (f == GGUF_GEMMA3 && c->n_layers == 62);
}

/* Gemma's and Granite's factors. */
static inline int form_read_factors(const form_settings *s, cmha_model_config *c, char *error) {
    double width = (double)form_width(c), wide = (double)c->d_model / (double)c->n_heads;
    double logits = form_number(s, s->in == GRANITE ? "logits_scaling" : "logit_scale", 1);
    double scale = 1 / sqrt(width);
    if (IN(s->in) & IN_GEMMA) scale = 1 / sqrt(form_number(s, "query_pre_attn_scalar", 256));
    if (s->in == GRANITE) scale = form_number(s, "attention_multiplier", 1);
    if (s->in == GGUF_GRANITE) scale = form_number(s, "attention.scale", scale);
    if (form_largest_gemma(c, s->in)) scale = 1 / sqrt(wide);
    if (!form_set_scale(s, c, scale, error)) return 0;
    if (s->in != GRANITE && s->in != GGUF_GRANITE) return 1;
    if (!(logits > 0)) return text_fail(error, "%s: logits are divided by %g", s->file, logits);
    return form_set_number(s, c, "head_scale", 1 / logits, error);
}

/* ---- Layers of several kinds ---- */

/* The letter of layer_kinds that a layer has where a form says nothing of it. */
static inline char form_usual_kind(form f, size_t layer) {
    if (f == GEMMA2 || f == GGUF_GEMMA2) return layer % 2 ? 'g' : 'l';
    if (f == GEMMA3 || f == GGUF_GEMMA3) return (layer + 1) % 6 ? 'l' : 'g';
    if (f == SMOLLM3 || f == GGUF_SMOLLM3) return (layer + 1) % 4 ? 'g' : 'n';
    if (f == GGUF_MODERNBERT) return layer % 3 ? 'l' : 'g';
    return 'g';
}

/* The letter of a layer of a model. */
static inline char form_kind(const cmha_model_config *c, size_t layer) {
    size_t n = strlen(c->layer_kinds);
    if (!n) return c->window ? 'l' : 'g';
    return c->layer_kinds[layer % n];
}

/* Of how many layers one sees all, the first; 0 where layers follow each other otherwise. */
static inline size_t form_every(const cmha_model_config *c) {
    size_t every = 1;
    while (every < c->n_layers && form_kind(c, every) == 'l') every++;
    for (size_t i = 0; i < c->n_layers; i++)
        if (form_kind(c, i) != (i % every ? 'l' : 'g')) return 0;
    return every;
}

/* Sets layer_kinds to the shortest list that gives these letters, and the window if there is one. */
static inline int form_set_kinds(const form_settings *s, cmha_model_config *c, const char *letters,
                                 double window, char *error) {
    size_t n = c->n_layers, period = 1, i = 1;
    int slides = memchr(letters, 'l', n) != NULL;
    char list[32] = "";
    if (slides && window <= 0) return text_fail(error, "%s: a layer slides, but no window is given", s->file);
    if (slides && !form_set_number(s, c, "window", window, error)) return 0;
    while (i < n)
        if (letters[i] == letters[i % period]) i++;
        else period++, i = period;
    if (period == 1 && (*letters == 'g' || (*letters == 'l' && !(c->local_base > 0)))) {
        c->local_base = 0;
        return 1;
    }
    if (period > 31)
        return text_fail(error, "%s: its layers' kinds repeat only after %zu layers, known up to 31", s->file,
                         period);
    memcpy(list, letters, period), list[period] = 0;
    if (!slides) c->local_base = 0;
    return form_set(s, c, "layer_kinds", list, error);
}

/* Puts the kinds of layers that a list names into letters: words of layer_types, or flags of rotation. */
static inline int form_list_kinds(const form_settings *s, const form_entry *e, char *letters, size_t layers,
                                  char *error) {
    const cJSON *item;
    size_t n = 0;
    if (!cJSON_IsArray(e->json)) return text_fail(error, "%s: %s is not understood", s->file, e->key);
    cJSON_ArrayForEach(item, e->json) {
        const char *word = cJSON_IsString(item) ? item->valuestring : "";
        int turns = !strcmp(e->key, "no_rope_layers"), flag = cJSON_IsNumber(item) && item->valuedouble > 0;
        if (turns && !cJSON_IsNumber(item)) return text_fail(error, "%s: %s has no numbers", s->file, e->key);
        if (!turns && strcmp(word, "sliding_attention") && strcmp(word, "full_attention"))
            return text_fail(error, "%s: a layer of the type \"%.40s\"", s->file, word);
        if (n == layers) break;
        if (turns) letters[n++] = flag ? 'g' : 'n';
        else letters[n++] = *word == 's' ? 'l' : 'g';
    }
    if (n == layers && !item) return 1;
    return text_fail(error, "%s: %s is not as long as there are layers", s->file, e->key);
}

/* Of a model that has its window only where use_sliding_window says so. */
static inline int form_is_qwen(const form_settings *s) { return !strcmp(s->name, "qwen2") || s->in == QWEN3; }

/* The letters that single numbers give. */
static inline void form_count_kinds(const form_settings *s, const cmha_model_config *c, int slides,
                                    char *letters) {
    double first = form_is_qwen(s) ? form_number(s, "max_window_layers", 28) : 0;
    double every = s->in == GEMMA3 ? form_number(s, "sliding_window_pattern",
                                                 form_number(s, "_sliding_window_pattern", 6)) : 0;
    if (s->in == SMOLLM3) every = form_number(s, "no_rope_layer_interval", 4);
    if (s->in == MODERNBERT) every = form_number(s, "global_attn_every_n_layers", 3);
    for (size_t i = 0; i < c->n_layers; i++) {
        int last = every >= 1 && fmod((double)i + 1, every) < 0.5;
        int first_of = every >= 1 && fmod((double)i, every) < 0.5;
        letters[i] = form_usual_kind(s->in, i);
        if (s->in == GEMMA3) letters[i] = last ? 'g' : 'l';
        if (s->in == SMOLLM3) letters[i] = last ? 'n' : 'g';
        if (s->in == MODERNBERT) letters[i] = first_of ? 'g' : 'l';
        if (IN(s->in) & (IN(LLAMA) | IN(QWEN3) | IN(PHI3)))
            letters[i] = slides && (double)i >= first ? 'l' : 'g';
    }
}

static inline int form_kinds_differ(const char *letters, size_t n) {
    for (size_t i = 1; i < n; i++)
        if (letters[i] != letters[0]) return 1;
    return 0;
}

/* The window of a config.json, 0: there is none, as null says. ModernBERT's is a whole one, ours what is seen
   to a side. */
static inline double form_json_window(const form_settings *s) {
    int usual = IN(s->in) & IN_GEMMA || form_is_qwen(s) || !strcmp(s->name, "mistral");
    if (s->in == MODERNBERT) return floor(form_number(s, "local_attention", 128) / 2) + 1;
    if (cJSON_HasObjectItem(s->object, "sliding_window")) usual = 0;
    return form_number(s, "sliding_window", usual ? 4096 : 0);
}

/* Which layers of a config.json have a sliding window, and which do not turn. */
static inline int form_json_kinds(const form_settings *s, cmha_model_config *c, char *error) {
    const form_entry *types = form_find(s, "layer_types"), *turns = form_find(s, "no_rope_layers");
    int qwen = form_is_qwen(s), done = 1;
    double window = form_json_window(s);
    const char *used = form_text(s, "use_sliding_window", "0");
    int slides = window > 0 && (!qwen || (used && !strcmp(used, "1")));
    char *letters;
    if (window < 0) return text_fail(error, "%s: sliding_window is less than 0", s->file);
    if (!used || (strcmp(used, "0") && strcmp(used, "1")))
        return text_fail(error, "%s: use_sliding_window is not understood", s->file);
    if (slides && !strcmp(s->name, "llama")) { /* whose program reads no window */
        if (!form_find(s, "use_sliding_window") || strcmp(used, "0"))
            return text_fail(error, "%s: sliding_window is not known of llama", s->file);
        slides = 0;
    }
    if (s->in == SMOLLM3 && !strcmp(used, "1"))
        return text_fail(error, "%s: use_sliding_window is not known here but as 0", s->file);
    letters = (char *)text_memory(NULL, c->n_layers, 1, 1);
    if (!letters) return text_fail(error, "no memory for %s", s->file);
    form_count_kinds(s, c, slides, letters);
    if (types) done = form_list_kinds(s, types, letters, c->n_layers, error);
    if (done && !form_row(s->in, "window") && memchr(letters, 'l', c->n_layers))
        done = text_fail(error, "%s: layer_types slides, which is not known of %s", s->file, s->name);
    if (done && s->in == LLAMA && !qwen && form_kinds_differ(letters, c->n_layers))
        done = text_fail(error, "%s: some layers have a sliding window, others none", s->file);
    if (done && s->in == SMOLLM3) form_count_kinds(s, c, slides, letters);
    if (done && turns) done = form_list_kinds(s, turns, letters, c->n_layers, error);
    if (done) done = form_set_kinds(s, c, letters, window, error);
    free(letters);
    return done;
}

/* How the pairs of a head lie in a form. */
static inline cmha_layout form_layout(form f) {
    static const form_bits interleaved = IN(GPTJ) | IN(GGUF_LLAMA) | IN(GGUF_SMOLLM3) | IN(GGUF_GRANITE);
    return IN(f) & interleaved ? CMHA_LAYOUT_INTERLEAVED : CMHA_LAYOUT_HALF;
}

/* What that of nomic-bert says besides. */
static inline int form_json_nomic(form_settings *s, cmha_model_config *c, char *error) {
    const char *one = form_text(s, "mlp_fc1_bias", "1"), *two = form_text(s, "mlp_fc2_bias", "1");
    if (!one || !two || strcmp(one, two))
        return text_fail(error, "%s: mlp_fc2_bias is not known here but as mlp_fc1_bias", s->file);
    c->d_ff = (c->d_ff + NOMIC_BLOCK - 1) / NOMIC_BLOCK * NOMIC_BLOCK; /* what its program makes of it */
    s->dynamic = form_number(s, "rotary_scaling_factor", 0) > 0;
    if (!s->dynamic) return 1;
    return form_set_number(s, c, "max_positions", form_number(s, "max_trained_positions", 2048), error);
}

/* What that of ModernBERT says besides. */
static inline int form_json_modern(const form_settings *s, cmha_model_config *c, char *error) {
    const char *inside = form_text(s, "hidden_activation", "gelu");
    const char *behind = form_text(s, "classifier_activation", "gelu");
    if (!behind || strcmp(behind, inside))
        return text_fail(error, "%s: classifier_activation is not known here but as hidden_activation",
                         s->file);
    if (!(form_number(s, "global_attn_every_n_layers", 3) >= 1))
        return text_fail(error, "%s: global_attn_every_n_layers is less than 1", s->file);
    if (!form_find(s, "local_rope_theta") && cJSON_HasObjectItem(s->object, "local_rope_theta"))
        c->local_base = 0; /* null: as of other layers */
    return form_set(s, c, "head_bias", form_text(s, "decoder_bias", "1"), error);
}

/* What the config.json of a model that rotates says in more than one key. */
static inline int form_json_rotary(form_settings *s, cmha_model_config *c, char *error) {
    double per_head = (double)(c->n_heads ? c->d_model / c->n_heads : 0);
    double d = form_number(s, "head_dim", form_usual_width(s, c)), turned = form_read_turned(s, d);
    int qwen = !strcmp(s->name, "qwen2"), again = form_find(s, "partial_rotary_factor") != NULL;
    if (s->in == LLAMA && strcmp(s->name, "llama") && !form_find(s, "num_key_value_heads"))
        return text_fail(error, "%s has no num_key_value_heads", s->file);
    if (d != per_head && !form_set_number(s, c, "d_head", d, error)) return 0;
    if (turned != d && !form_set_turned(s, c, turned, d, error)) return 0;
    /* GPT-NeoX has these a second time, and reads the others */
    if (s->in == NEOX && (fabs(form_number(s, "rope_theta", c->base) - c->base) > 0 ||
                          (again && floor(d * form_number(s, "partial_rotary_factor", 0)) != turned)))
        return text_fail(error, "%s: rope_theta or partial_rotary_factor differs from rotary_emb_base or "
                         "rotary_pct", s->file);
    /* Qwen2 reads no attention_bias: q, k and v have biases, o none */
    if (qwen && (!form_set(s, c, "qkv_bias", "1", error) || !form_set(s, c, "attention_bias", "0", error)))
        return 0;
    c->layout = form_layout(s->in);
    if (IN(s->in) & (IN_GEMMA | IN(GRANITE)) && !form_read_factors(s, c, error)) return 0;
    if (s->in == MODERNBERT && !form_json_modern(s, c, error)) return 0;
    if (!form_json_rope(s, c, error)) return 0;
    if (s->in == MODERNBERT && c->local_base >= c->base && c->local_base <= c->base) c->local_base = 0;
    if (!form_json_kinds(s, c, error)) return 0;
    return s->in != NOMIC || form_json_nomic(s, c, error);
}

/* Changes the usual kinds of layers to those of a GGUF file's pattern: of how many layers one sees all (the
   first; of Gemma the last), or flags of those that slide. */
static inline int form_gguf_pattern(const form_settings *s, const cmha_model_config *c, char *letters,
                                    char *error) {
    const form_entry *pattern = form_find(s, "attention.sliding_window_pattern");
    const gguf_value *v = pattern ? pattern->value : NULL;
    size_t n = c->n_layers, every, seeing;
    double x = 0;
    if (!v) return 1;
    if (v->type == GGUF_ARRAY ? v->count != n || v->of != GGUF_BOOL : pattern->kind != 'n')
        return text_fail(error, "%s: %s is not understood", s->file, pattern->key);
    if (v->type != GGUF_ARRAY && !gguf_element(v, 0, &x)) return text_fail(error, "%s: no number", s->file);
    every = x >= 1 && x <= (double)n ? (size_t)x : n + 1;
    seeing = s->in == GGUF_MODERNBERT && x >= 1 ? 0 : every - 1;
    for (size_t i = 0; i < n; i++) {
        if (v->type == GGUF_ARRAY && gguf_element(v, i, &x)) letters[i] = x > 0 ? 'l' : 'g';
        else letters[i] = i % every == seeing ? 'g' : 'l';
    }
    return 1;
}

/* The kinds of layers, of which GGUF files say little. */
static inline int form_gguf_kinds(const form_settings *s, cmha_model_config *c, char *error) {
    double usual = s->in == GGUF_GEMMA2 ? 4096 : 0;
    double window = form_number(s, "attention.sliding_window", usual);
    char *letters = (char *)text_memory(NULL, c->n_layers, 1, 1);
    int done;
    if (!letters) return text_fail(error, "no memory for %s", s->file);
    for (size_t i = 0; i < c->n_layers; i++) {
        letters[i] = form_usual_kind(s->in, i);
        if (s->in == GGUF_PHI3) letters[i] = window > 0 ? 'l' : 'g';
    }
    done = form_gguf_pattern(s, c, letters, error);
    if (s->in == GGUF_MODERNBERT) {
        if (!(window > 0)) memset(letters, 'g', c->n_layers);
        window = floor(window / 2) + 1; /* a whole one, ours what is seen to a side */
    }
    done = done && form_set_kinds(s, c, letters, window, error);
    free(letters);
    return done;
}

/* The same of a GGUF file. */
static inline int form_gguf_rotary(const form_settings *s, cmha_model_config *c, char *error) {
    double per_head = (double)(c->n_heads ? c->d_model / c->n_heads : 0);
    double d = form_number(s, "attention.key_length", per_head);
    double turned = form_number(s, "rope.dimension_count", d);
    double length = form_number(s, "rope.scaling.original_context_length", (double)c->max_positions);
    form_rope r = {form_text(s, "rope.scaling.type", "none"), form_number(s, "rope.scaling.factor", 1),
                   length, form_number(s, "rope.scaling.yarn_beta_fast", 32),
                   form_number(s, "rope.scaling.yarn_beta_slow", 1),
                   form_number(s, "rope.scaling.yarn_attn_factor", 0)};
    if (form_number(s, "attention.value_length", per_head) != d)
        return text_fail(error, "%s: keys and values of different widths", s->file);
    if (d != per_head && !form_set_number(s, c, "d_head", d, error)) return 0;
    if (!form_set_turned(s, c, turned, d, error)) return 0;
    c->layout = form_layout(s->in);
    if (!strcmp(s->name, "qwen2")) c->layout = CMHA_LAYOUT_HALF;
    if (IN(s->in) & (IN_GGUF_GEMMA | IN(GGUF_GRANITE)) && !form_read_factors(s, c, error)) return 0;
    if (s->in == GGUF_MODERNBERT && c->local_base >= c->base && c->local_base <= c->base) c->local_base = 0;
    if (!form_gguf_kinds(s, c, error)) return 0;
    if (!r.type || !strcmp(r.type, "llama3"))
        return text_fail(error, "%s: rope.scaling.type is not understood", s->file);
    return form_set_rope(s, c, &r, error);
}

/* Is the key true or false? */
static inline int form_is_flag(const form_key *k) {
    const cmha_table table = cmha_model_table();
    size_t i = 0;
    while (strcmp(table.fields[i].name, k->field)) i++;
    return table.fields[i].type == CMHA_FIELD_FLAG || !strcmp(k->field, "parallel");
}

/* Sets one field as a row of the table says. What is null of the caps is none, of the flags false. */
static inline int form_read_key(const form_settings *s, const form_key *k, cmha_model_config *c,
                                char *error) {
    const char *value = form_text(s, k->key, k->value);
    int there = form_find(s, k->key) != NULL, known = !there;
    int null = !there && cJSON_HasObjectItem(s->object, k->key);
    if (null && (strstr(k->key, "softcapping") || form_is_flag(k))) value = "0", there = 1, known = 0;
    if (!value)
        return text_fail(error, there ? "%s: %s is not understood" : "%s has no %s", s->file, k->key);
    for (size_t i = 0; i < FORM_WORDS && there; i++) {
        const struct form_word *w = &form_words[i];
        if (!(w->forms & IN(s->in)) || strcmp(w->field, k->field) || known) continue;
        if (!strcmp(w->theirs, value)) value = w->ours, known = 1;
    }
    if (!known && !strcmp(k->field, "activation"))
        return text_fail(error, "%s: an activation \"%s\" is not known here", s->file, value);
    if (!known && !strcmp(k->field, "parallel"))
        return text_fail(error, "%s: %s is not understood", s->file, k->key);
    if (!*value) return 1;
    return form_set(s, c, k->field, value, error);
}

/* The row of a setting's key in a form, or NULL. */
static inline const form_key *form_row_of_key(form f, const char *key) {
    for (size_t k = 0; k < FORM_KEYS; k++)
        if (form_keys[k].forms & IN(f) && form_keys[k].key && !strcmp(form_keys[k].key, key))
            return &form_keys[k];
    return NULL;
}

/* The configuration of a model out of its settings: every one of them is understood, or named. */
static inline int form_read(form_settings *s, cmha_model_config *c, char *error) {
    cmha_config_defaults(cmha_model_table(), c);
    for (size_t i = 0; i < s->n; i++) {
        const form_entry *e = &s->list[i];
        const form_key *row = form_row_of_key(s->in, e->key);
        if (!row || (row->use == ELSEWHERE && e->kind != 'n' && form_listed(form_numbers, e->key)))
            return text_fail(error, "%s: %s is not understood", s->file, e->key);
        if (row->use == ONLY && (!e->kind || strcmp(e->text, row->value)))
            return text_fail(error, "%s: %s is not known here but as %s", s->file, e->key, row->value);
    }
    for (size_t k = 0; k < FORM_KEYS; k++) {
        const form_key *row = &form_keys[k];
        int first = row->key && form_row_of_key(s->in, row->key) == row; /* of several for a key, that */
        if (!(row->forms & IN(s->in))) continue;
        if (row->use == ALWAYS && !form_set(s, c, row->field, row->value, error)) return 0;
        if (row->use == FIELD && first && !form_read_key(s, row, c, error)) return 0;
    }
    if (IN(s->in) & IN_SHORT && !form_find(s, "n_inner")) c->d_ff = 4 * c->d_model;
    if (s->in == ROBERTA && c->max_positions <= ROBERTA_ROWS)
        return text_fail(error, "%s: max_position_embeddings = %zu leaves no position", s->file,
                         c->max_positions);
    if (s->in == ROBERTA) c->max_positions -= ROBERTA_ROWS;
    if (IN(s->in) & IN_ROTARY) return form_json_rotary(s, c, error);
    return IN(s->in) & IN_GGUF_ROTARY ? form_gguf_rotary(s, c, error) : 1;
}

/* Puts the names of the models of others, or of GGUF's, one after another: "a, b and c". */
static inline void form_list_models(char *text, size_t size, int gguf) {
    size_t used = 0, last = 0;
    *text = 0;
    for (size_t i = 0; i < FORM_CLASSES; i++)
        if ((form_classes[i].architectures == NULL) == gguf) last = i;
    for (size_t i = 0; i < FORM_CLASSES; i++) {
        const struct form_class *row = &form_classes[i];
        if ((row->architectures == NULL) != gguf || used + 24 > size) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", !used ? "" : i < last ? ", " : " and ",
                                 row->type);
    }
}

/* The row of a model's name, or NULL and the line. */
static inline const struct form_class *form_named(const form_settings *s, const char *what, const char *word,
                                                  int gguf, char *error) {
    char known[400];
    for (size_t i = 0; i < FORM_CLASSES; i++)
        if ((form_classes[i].architectures == NULL) == gguf && !strcmp(form_classes[i].type, word))
            return &form_classes[i];
    form_list_models(known, sizeof known, gguf);
    text_fail(error, "%smodels of the %s \"%s\" are not known here; %s are", s->file, what, word, known);
    return NULL;
}

/* Which form a config.json has. */
static inline int form_json_class(form_settings *s, char *error) {
    const form_entry *type = form_find(s, "model_type"), *classes = form_find(s, "architectures");
    const cJSON *item = classes ? classes->json->child : NULL;
    const char *word = type && type->kind == 'w' ? type->text : "";
    const struct form_class *row;
    if (!*word) return text_fail(error, "%s names no model_type", s->file);
    s->file = "config.json: ";
    row = form_named(s, "type", word, 0, error);
    s->file = "config.json";
    if (!row) return 0;
    if (item && !(cJSON_IsString(item) && form_listed(row->architectures, item->valuestring)))
        return text_fail(error, "%s: the architecture \"%.60s\" is not known here", s->file,
                         cJSON_IsString(item) ? item->valuestring : "");
    s->in = row->in;
    snprintf(s->name, sizeof s->name, "%s", row->type);
    return 1;
}

/* Reads config.json from memory. */
static inline int form_read_json(form_settings *s, cmha_context *context, const char *text, size_t n,
                                 cmha_model_config *c, char *error) {
    cJSON *json = cJSON_ParseWithLength(text, n);
    int done;
    memset(s, 0, sizeof *s), s->file = "config.json", s->context = context, s->object = json;
    if (!cJSON_IsObject(json)) done = text_fail(error, "config.json is no JSON object");
    else done = form_read_object(s, json, error) && form_json_class(s, error) && form_read(s, c, error);
    free(s->list), s->list = NULL, s->n = 0, s->object = NULL;
    cJSON_Delete(json);
    return done;
}

/* Reads the values of a GGUF file. */
static inline int form_read_gguf(form_settings *s, cmha_context *context, const gguf_file *g,
                                 cmha_model_config *c, char *error) {
    const gguf_value *v = gguf_find(g, "general.architecture");
    const struct form_class *row;
    int done;
    memset(s, 0, sizeof *s), s->file = "", s->context = context;
    if (v && v->type == GGUF_TEXT)
        snprintf(s->name, sizeof s->name, "%.*s", (int)(v->count < 32 ? v->count : 31), (const char *)v->at);
    row = form_named(s, "architecture", s->name, 1, error);
    s->file = "its values";
    if (!row) return 0;
    s->in = row->in;
    done = form_read_values(s, g, error) && form_read(s, c, error);
    free(s->list), s->list = NULL, s->n = 0;
    return done;
}

/* ---- Writing settings ---- */

/* Can the layers' kinds be told in that form? */
static inline int form_holds_kinds(const cmha_model_config *c, form f, char *error) {
    form_bits usual = IN_GGUF_GEMMA | IN(GGUF_SMOLLM3), in_turns = IN(MODERNBERT) | IN(GGUF_MODERNBERT);
    int listed = IN(f) & (IN(QWEN3) | IN_GEMMA) || (f == LLAMA && c->qkv_bias && !c->attention_bias);
    if (!form_row(f, "layer_kinds") && !listed) return 1;
    for (size_t i = 0; i < c->n_layers; i++) {
        char kind = form_kind(c, i), must = IN(f) & usual ? form_usual_kind(f, i) : kind;
        if (IN(f) & IN_GGUF_GEMMA && !c->window && kind == 'g' && must == 'g') continue;
        int other = kind != must || (IN(f) & in_turns && !form_every(c));
        if (other || kind == (f == SMOLLM3 || f == GGUF_SMOLLM3 ? 'l' : 'n'))
            return text_fail(error, "layer_kinds = %s has no form there", c->layer_kinds);
    }
    if ((f == GEMMA3 || f == GGUF_GEMMA3) && c->window && !(c->local_base > 0))
        return text_fail(error, "local_base = 0 has no form there");
    return 1;
}

/* Can the factor on scores be told in that form? */
static inline int form_holds_scale(const cmha_model_config *c, form f, char *error) {
    double usual = 1 / sqrt((double)form_width(c)), is = c->score_scale > 0 ? c->score_scale : usual;
    int free_scale = IN(f) & (IN_GEMMA | IN(GRANITE) | IN(GGUF_GRANITE));
    int yarn = c->rope_scaling == CMHA_ROPE_SCALING_YARN && IN(f) & ((IN_MODEL & ~IN_GEMMA) | IN(NEOX));
    if (form_largest_gemma(c, f)) usual = 1 / sqrt((double)c->d_model / (double)c->n_heads);
    if (free_scale && c->rope_scaling == CMHA_ROPE_SCALING_YARN && c->score_scale > 0) free_scale = yarn = 0;
    if (free_scale || yarn || fabs(is - usual) <= 1e-12 * usual) return 1;
    return text_fail(error, "score_scale = %g has no form there", is);
}

/* Has the field's value a word there, if one is told? */
static inline int form_has_word(const cmha_model_config *c, form f, const char *field, char *error) {
    const form_key *row = form_row(f, field);
    char is[40];
    if (!row || row->use != FIELD) return 1;
    cmha_config_get(cmha_model_table(), c, field, is, sizeof is);
    for (size_t i = 0; i < FORM_WORDS; i++)
        if (form_words[i].forms & IN(f) && !strcmp(form_words[i].field, field) &&
            !strcmp(form_words[i].ours, is))
            return 1;
    return text_fail(error, "%s = %s has no form there", field, is);
}

/* How many fields have a value that a form has not: each must have a key there, the value that it always has
   there, no meaning but in training, or its default. The line names the first. */
static inline size_t form_misfits(const cmha_model_config *c, form f, char *error) {
    cmha_table table = cmha_model_table();
    cmha_model_config usual;
    size_t n = 0;
    cmha_config_defaults(table, &usual);
    for (size_t i = 0, t; i < table.count; i++) {
        const char *name = table.fields[i].name;
        const form_key *row = form_row(f, name);
        char is[40], must[40];
        for (t = 0; t < sizeof form_training / sizeof *form_training && strcmp(form_training[t], name); t++);
        if (t < sizeof form_training / sizeof *form_training || (row && row->use != ALWAYS)) continue;
        if (!strcmp(name, "pool") && !c->classes) continue; /* of which it is */
        cmha_config_get(table, c, name, is, sizeof is);
        cmha_config_get(table, &usual, name, must, sizeof must);
        if (row) snprintf(must, sizeof must, "%s", row->value);
        if (strcmp(is, must) && !n++)
            text_fail(error, "%s = %s has no form there, only %s has", name, is, *must ? must : "none");
    }
    return n;
}

/* Are YaRN's bounds those of its paper? */
static inline int form_usual_ramp(const cmha_model_config *c) {
    return fabs(c->rope_fast - 32) < 1e-9 && fabs(c->rope_slow - 1) < 1e-9;
}

/* llama.cpp's programs of these have no biases of attention, or only of queries, keys and values. */
static inline int form_holds_biases(const cmha_model_config *c, form f, char *error) {
    form_bits none = IN(GGUF_QWEN3) | IN(GGUF_OLMO2) | IN_GGUF_GEMMA;
    form_bits some = none | IN(GGUF_SMOLLM3) | IN(GGUF_STABLELM);
    if (IN(f) & some && c->attention_bias)
        return text_fail(error, "attention_bias = 1 has no form there, only 0 has");
    return !(IN(f) & none && c->qkv_bias) || text_fail(error, "qkv_bias = 1 has no form there, only 0 has");
}

/* Does YaRN scale scores only of what turns, as others have it? Ours scales those of whole heads. */
static inline int form_usual_yarn(const cmha_model_config *c) {
    double root = 0.1 * log(c->rope_factor) + 1;
    if (c->rope_scaling != CMHA_ROPE_SCALING_YARN || !c->rotary_dims) return 1;
    return fabs(root * root * form_scale(c) * sqrt((double)form_width(c)) - 1) < 1e-9;
}

/* Can a model be told in that form? */
static inline int form_holds(const cmha_model_config *c, form f, char *error) {
    /* of which llama.cpp takes no heads that are together wider or narrower than the model */
    form_bits square = IN(GGUF_PHI2) | IN(GGUF_NEOX) | IN(GGUF_MODERNBERT) | IN(GGUF_NOMIC);
    if (form_misfits(c, f, error)) return 0;
    if (!form_has_word(c, f, "activation", error) || !form_has_word(c, f, "parallel", error) ||
        !form_has_word(c, f, "norm", error))
        return 0;
    if (f == NOMIC && c->d_ff % NOMIC_BLOCK)
        return text_fail(error, "d_ff = %zu has no form there, only multiples of %d have", c->d_ff,
                         NOMIC_BLOCK);
    if (!form_holds_biases(c, f, error)) return 0;
    if (IN(f) & square && c->d_head * c->n_heads != (c->d_head ? c->d_model : 0))
        return text_fail(error, "d_head = %zu has no form there", c->d_head);
    if ((f == GGUF_MODERNBERT || f == PHI3) && c->rope_scaling) /* of Phi-3 longrope alone is taken there */
        return text_fail(error, "rope_scaling has no form there");
    if (f == MODERNBERT && c->head_bias && !c->head_transform)
        return text_fail(error, "head_bias = 1 has no form there without head_transform");
    if (f == GGUF_GEMMA2 && !(c->score_softcap > 0 && c->logit_softcap > 0)) /* by which llama.cpp divides */
        return text_fail(error, "%s = 0 has no form there", c->score_softcap > 0 ? "logit_softcap"
                                                                                 : "score_softcap");
    if (IN(f) & IN_BERTS && !c->token_types) return text_fail(error, "token_types = 0 has no form there");
    if (c->rope_scaling == CMHA_ROPE_SCALING_NTK)
        return text_fail(error, "rope_scaling = ntk has no form there");
    if (!form_usual_yarn(c))
        return text_fail(error, "rope_scaling = yarn has no form there beside rotary_dims");
    if (c->rope_scaling == CMHA_ROPE_SCALING_YARN && c->rope_ramp)
        return text_fail(error, "rope_ramp = rotations has no form there");
    if (c->rope_scaling == CMHA_ROPE_SCALING_YARN && IN(f) & IN_GGUF && !form_usual_ramp(c))
        return text_fail(error, "rope_fast = %g, rope_slow = %g have no form there, only 32 and 1 have",
                         c->rope_fast, c->rope_slow); /* llama.cpp reads no others */
    if (c->rope_scaling == CMHA_ROPE_SCALING_LLAMA3 && IN(f) & IN_GGUF && !form_row(f, "frequency"))
        return text_fail(error, "rope_scaling = llama3 has no form there");
    if (c->frequency) return text_fail(error, "frequencies of its own have no form there");
    if (f == LLAMA && c->qkv_bias && !c->attention_bias && c->ffn_bias)
        return text_fail(error, "qkv_bias beside ffn_bias has no form there");
    if (f == LLAMA && c->window && (c->attention_bias || c->ffn_bias)) /* Mistral's form, which has none */
        return text_fail(error, "window beside attention_bias or ffn_bias has no form there");
    return form_holds_kinds(c, f, error) && form_holds_scale(c, f, error);
}

/* The share of a head that rotates, which times its width is not less than as many numbers. */
static inline double form_share(const cmha_model_config *c) {
    double turned = (double)form_turned(c), width = (double)form_width(c), share = turned / width;
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

/* Puts their word in the place of ours; a flag for a word of ours is one. */
static inline cmha_field_type form_translate(form f, const char *field, cmha_field_type type, char *text,
                                             size_t size) {
    if (type != CMHA_FIELD_ENUM) return type;
    for (size_t i = 0; i < FORM_WORDS; i++) {
        const struct form_word *w = &form_words[i];
        if (!(w->forms & IN(f)) || strcmp(w->field, field) || strcmp(w->ours, text)) continue;
        snprintf(text, size, "%s", w->theirs);
        break;
    }
    return !strcmp(text, "0") || !strcmp(text, "1") ? CMHA_FIELD_FLAG : CMHA_FIELD_NAME;
}

/* Tells all keys that are fields. */
static inline void form_fields(const cmha_model_config *c, form f, form_tell tell, void *to) {
    cmha_table table = cmha_model_table();
    for (size_t k = 0; k < FORM_KEYS; k++) {
        const form_key *row = &form_keys[k];
        cmha_field_type type;
        char text[40];
        size_t i = 0;
        if (!(row->forms & IN(f)) || row->use != FIELD || form_row_of_key(f, row->key) != row) continue;
        while (strcmp(table.fields[i].name, row->field)) i++;
        cmha_config_get(table, c, row->field, text, sizeof text);
        if (!strcmp(row->field, "n_kv_heads") && !c->n_kv_heads)
            snprintf(text, sizeof text, "%zu", c->n_heads);
        if (f == ROBERTA && !strcmp(row->field, "max_positions"))
            snprintf(text, sizeof text, "%zu", c->max_positions + ROBERTA_ROWS);
        if (!strcmp(row->field, "local_base") && !(c->local_base > 0)) continue;
        type = form_translate(f, row->field, table.fields[i].type, text, sizeof text);
        tell(to, row->key, type, text);
    }
}

static inline void form_tell_json(void *to, const char *key, cmha_field_type type, const char *value) {
    cJSON *json = (cJSON *)to;
    int none = strstr(key, "softcapping") && !(strtod(value, NULL) > 0); /* transformers would divide by 0 */
    if (none) cJSON_AddNullToObject(json, key);
    else if (type == CMHA_FIELD_NAME) cJSON_AddStringToObject(json, key, value);
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
    if (c->score_scale > 0 && !llama3)
        form_tell_number(form_tell_json, r, "attention_factor", CMHA_FIELD_REAL,
                         sqrt(c->score_scale * sqrt((double)form_width(c))) *
                             (0.1 * log(c->rope_factor) + 1));
}

/* The kinds of layers as config.json has them. */
static inline void form_write_kinds(const cmha_model_config *c, form f, cJSON *json) {
    int turns = f == SMOLLM3;
    cJSON *list = cJSON_AddArrayToObject(json, turns ? "no_rope_layers" : "layer_types");
    for (size_t i = 0; i < c->n_layers && list; i++) {
        char kind = form_kind(c, i);
        const char *word = kind == 'l' ? "sliding_attention" : "full_attention";
        cJSON_AddItemToArray(list, turns ? cJSON_CreateNumber(kind != 'n') : cJSON_CreateString(word));
    }
}

/* The window, and which layers have it. */
static inline void form_write_window(const cmha_model_config *c, form f, int qwen, cJSON *json) {
    int written = form_row_of_key(f, "sliding_window") != NULL;
    if (c->window && written)
        form_tell_number(form_tell_json, json, "sliding_window", CMHA_FIELD_SIZE, (double)c->window);
    else if (IN(f) & IN_GEMMA || f == PHI3) cJSON_AddNullToObject(json, "sliding_window");
    if (qwen) cJSON_AddBoolToObject(json, "use_sliding_window", c->window > 0);
    if (qwen && c->window && !*c->layer_kinds)
        form_tell_json(json, "max_window_layers", CMHA_FIELD_SIZE, "0");
    if ((qwen && *c->layer_kinds) || IN(f) & (IN_GEMMA | IN(SMOLLM3))) form_write_kinds(c, f, json);
}

/* The factors that Gemma and Granite have. */
static inline void form_write_factors(const cmha_model_config *c, form f, cJSON *json) {
    double usual = 1 / sqrt((double)form_width(c)), scale = c->score_scale > 0 ? c->score_scale : usual;
    double square = 1 / scale / scale;
    if (fabs(square - floor(square + 0.5)) < 1e-9 * square) square = floor(square + 0.5);
    if (IN(f) & IN_GEMMA)
        form_tell_number(form_tell_json, json, "query_pre_attn_scalar", CMHA_FIELD_REAL, square);
    if (f != GRANITE) return;
    form_tell_number(form_tell_json, json, "attention_multiplier", CMHA_FIELD_REAL, scale);
    form_tell_number(form_tell_json, json, "logits_scaling", CMHA_FIELD_REAL, 1 / c->head_scale);
}

static inline void form_write_flags(const char *words, int value, cJSON *json) {
    char word[40];
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        cJSON_AddBoolToObject(json, word, value);
    }
}

/* What an encoder that rotates says besides. */
static inline void form_write_encoder(const cmha_model_config *c, form f, cJSON *json) {
    if (f == NOMIC) {
        form_tell_number(form_tell_json, json, "rotary_emb_fraction", CMHA_FIELD_REAL, form_share(c));
        form_tell_number(form_tell_json, json, "max_trained_positions", CMHA_FIELD_SIZE,
                         (double)c->max_positions);
        form_tell_json(json, "pad_vocab_size_multiple", CMHA_FIELD_SIZE, "1");
        cJSON_AddNullToObject(json, "rotary_scaling_factor");
        form_write_flags("mlp_fc2_bias", c->ffn_bias, json);
        form_write_flags("causal prenorm parallel_block use_rms_norm rotary_emb_interleaved", 0, json);
        return;
    }
    if (!(c->local_base > 0))
        form_tell_number(form_tell_json, json, "local_rope_theta", CMHA_FIELD_REAL, c->base);
    if (c->window)
        form_tell_number(form_tell_json, json, "local_attention", CMHA_FIELD_SIZE,
                         (double)(2 * (c->window - 1)));
    form_tell_number(form_tell_json, json, "global_attn_every_n_layers", CMHA_FIELD_SIZE,
                     (double)form_every(c));
    form_write_kinds(c, f, json);
    cJSON_AddItemToObject(json, "classifier_activation",
                          cJSON_Duplicate(cJSON_GetObjectItem(json, "hidden_activation"), 0));
    form_write_flags("decoder_bias", c->head_bias, json);
    form_write_flags("mlp_bias classifier_bias", 0, json);
}

/* What a model that rotates says in more than one key. */
static inline void form_write_rotary(const cmha_model_config *c, form f, int qwen2, cJSON *json) {
    const form_key *turned = form_row(f, "rotary_dims");
    int qwen = qwen2 || f == QWEN3;
    if (IN(f) & IN_TURNED_ENCODERS) {
        form_write_encoder(c, f, json);
        return;
    }
    if (form_row(f, "d_head"))
        form_tell_number(form_tell_json, json, "head_dim", CMHA_FIELD_SIZE, (double)form_width(c));
    if (f == GPTJ)
        form_tell_number(form_tell_json, json, turned->key, CMHA_FIELD_SIZE, (double)form_turned(c));
    else if (turned && (c->rotary_dims || IN(f) & (IN(NEOX) | IN(STABLELM) | IN(PHI))))
        form_tell_number(form_tell_json, json, turned->key, CMHA_FIELD_REAL, form_share(c));
    if (IN(f) & (IN_RMS_NORMED | IN(STABLELM))) cJSON_AddStringToObject(json, "hidden_act", "silu");
    form_write_window(c, f, qwen, json);
    form_write_factors(c, f, json);
    if (f != GPTJ) form_write_rope(c, json);
}

/* Writes to `name` the class that computes the model, as transformers names it: the first of a decoder, of an
   encoder that with its head. */
static inline void form_class_name(const cmha_model_config *c, form f, const char *classes, char *name,
                                   size_t size) {
    const char *ends = c->classes ? "ForSequenceClassification" : c->head_transform ? "ForMaskedLM" : "Model";
    const char *at = IN(f) & IN_ENCODERS ? strstr(classes, ends) : classes;
    if (!at) at = classes;
    while (at > classes && at[-1] != ' ') at--;
    snprintf(name, size, "%.*s", (int)strcspn(at, " "), at);
}

/* Names the tokens that begin, end and fill up texts, -1: none. Where a key is absent, transformers takes
   an id of the family's first model, which may be beyond this vocabulary. */
static inline void form_write_ids(const int32_t ids[3], form f, cJSON *json) {
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    for (int i = IN(f) & IN_ENCODERS ? 2 : 0; i < 3; i++)
        if (i == 2 && f == ROBERTA) form_tell_json(json, keys[i], CMHA_FIELD_SIZE, "1");
        else if (ids[i] < 0) cJSON_AddNullToObject(json, keys[i]);
        else cJSON_AddNumberToObject(json, keys[i], (double)ids[i]);
}

/* The name that transformers gives to a class that has none. */
static inline void form_usual_label(char *label, size_t size, size_t i) {
    snprintf(label, size, "LABEL_%zu", i);
}

/* config.json of a model that form_holds, with the ids of form_write_ids and the names of its classes, NULL:
   the usual ones; NULL without memory. */
static inline char *form_write_json(const cmha_model_config *c, form f, const char *dtype,
                                    const int32_t ids[3], const char *const *names) {
    int qwen = f == LLAMA && c->qkv_bias && !c->attention_bias, mistral = f == LLAMA && !qwen && c->window;
    const struct form_class *row = form_class_of(f) + (mistral ? 1 : qwen ? 2 : 0);
    const char *type = row->type;
    char *text = NULL, name[64];
    cJSON *json = cJSON_CreateObject(),
          *classes = json ? cJSON_AddArrayToObject(json, "architectures") : NULL;
    form_class_name(c, f, row->architectures, name, sizeof name);
    if (classes) cJSON_AddItemToArray(classes, cJSON_CreateString(name));
    cJSON_AddStringToObject(json, "model_type", type);
    form_fields(c, f, form_tell_json, json);
    if (IN(f) & IN_ROTARY) form_write_rotary(c, f, qwen, json);
    if (qwen || mistral)
        cJSON_DeleteItemFromObject(json, "attention_bias"), cJSON_DeleteItemFromObject(json, "mlp_bias");
    if (c->classes) {
        cJSON *labels = cJSON_AddObjectToObject(json, "id2label");
        for (size_t i = 0; labels && i < c->classes; i++) {
            char key[24], label[32];
            snprintf(key, sizeof key, "%zu", i), form_usual_label(label, sizeof label, i);
            cJSON_AddStringToObject(labels, key, names ? names[i] : label);
        }
    }
    form_write_ids(ids, f, json);
    cJSON_AddStringToObject(json, "torch_dtype", dtype);
    if (classes) text = cJSON_Print(json);
    cJSON_Delete(json);
    return text;
}

/* What GGUF's values are put to, and before what their keys stand. */
typedef struct form_gguf { gguf_writer *to; const char *type; } form_gguf;

static inline void form_tell_gguf(void *to, const char *key, cmha_field_type type, const char *value) {
    const form_gguf *w = (const form_gguf *)to;
    char name[96];
    snprintf(name, sizeof name, "%s.%s", w->type, key);
    if (type == CMHA_FIELD_NAME) gguf_put_text(w->to, name, value, strlen(value));
    else if (type == CMHA_FIELD_FLAG) gguf_put_flag(w->to, name, *value == '1');
    else if (type == CMHA_FIELD_REAL) gguf_put_real(w->to, name, (float)strtod(value, NULL));
    else gguf_put_whole(w->to, name, (uint32_t)strtoul(value, NULL, 10));
}

static inline void form_tell_size(form_gguf *w, const char *key, size_t x) {
    form_tell_number(form_tell_gguf, w, key, CMHA_FIELD_SIZE, (double)x);
}

/* The window, and which layers have it. */
static inline void form_gguf_window(const cmha_model_config *c, form f, form_gguf *w) {
    size_t window = c->window;
    if (!window && f != GGUF_PHI3) return;
    if (f == GGUF_MODERNBERT) window = window > 1 ? 2 * (window - 1) : 1; /* of both sides; 0 would be none */
    form_tell_size(w, "attention.sliding_window", window);
    if (f == GGUF_MODERNBERT) form_tell_size(w, "attention.sliding_window_pattern", form_every(c));
}

/* The values of a GGUF file of a model that form_holds. */
static inline void form_write_gguf(const cmha_model_config *c, form f, gguf_writer *to) {
    form_gguf w = {to, form_class_of(f)->type};
    double scale = c->score_scale > 0 ? c->score_scale : 1 / sqrt((double)form_width(c));
    gguf_put_text(to, "general.architecture", w.type, strlen(w.type));
    form_fields(c, f, form_tell_gguf, &w);
    if (IN(f) & IN_GGUF_ENCODERS) form_tell_gguf(&w, "attention.causal", CMHA_FIELD_FLAG, "0");
    if (IN(f) & IN_GGUF_POST) /* llama.cpp asks for one or more */
        gguf_put_whole(to, "tokenizer.ggml.token_type_count", c->token_types ? (uint32_t)c->token_types : 1);
    if (!(IN(f) & IN_GGUF_ROTARY)) return;
    form_tell_size(&w, "rope.dimension_count", form_turned(c));
    form_tell_size(&w, "attention.key_length", form_width(c));
    form_tell_size(&w, "attention.value_length", form_width(c));
    form_gguf_window(c, f, &w);
    if (f == GGUF_GRANITE) {
        form_tell_number(form_tell_gguf, &w, "attention.scale", CMHA_FIELD_REAL, scale);
        form_tell_number(form_tell_gguf, &w, "logit_scale", CMHA_FIELD_REAL, 1 / c->head_scale);
    }
    if (c->rope_scaling != CMHA_ROPE_SCALING_LINEAR && c->rope_scaling != CMHA_ROPE_SCALING_YARN) return;
    form_tell_gguf(&w, "rope.scaling.type", CMHA_FIELD_NAME,
                   c->rope_scaling == CMHA_ROPE_SCALING_YARN ? "yarn" : "linear");
    form_tell_number(form_tell_gguf, &w, "rope.scaling.factor", CMHA_FIELD_REAL, c->rope_factor);
    if (c->rope_length)
        form_tell_number(form_tell_gguf, &w, "rope.scaling.original_context_length", CMHA_FIELD_SIZE,
                         (double)c->rope_length);
}

/* How a model's norms are in a form: Gemma's gains are 1 + w, in GGUF the sums. */
static inline void form_set_norms(cmha_model_config *c, form f) {
    int plus = (IN(f) & IN_GEMMA) != 0;
    if (c->norm != CMHA_NORM_RMS && c->norm != CMHA_NORM_RMS_ONE_PLUS) return;
    if (!(IN(f) & (IN_GEMMA | IN_GGUF_GEMMA))) return;
    c->norm = plus ? CMHA_NORM_RMS_ONE_PLUS : CMHA_NORM_RMS;
    if (c->qk_norm == CMHA_QK_NORM_RMS_GAIN || c->qk_norm == CMHA_QK_NORM_RMS_ONE_PLUS)
        c->qk_norm = plus ? CMHA_QK_NORM_RMS_ONE_PLUS : CMHA_QK_NORM_RMS_GAIN;
}

/* The form of that name, in whose terms *c then is; OURS and one line where it does not hold the model. */
static inline form form_by_name(cmha_model_config *c, const char *name, int gguf, char *error) {
    for (size_t i = 0; i < FORM_CLASSES; i++) {
        form f = form_classes[i].in;
        cmha_model_config there = *c;
        if ((form_classes[i].architectures == NULL) != gguf || strcmp(form_classes[i].type, name)) continue;
        form_set_norms(&there, f);
        if (!form_holds(&there, f, error)) return OURS;
        *c = there;
        return f;
    }
    text_fail(error, "models of the type \"%s\" are not written", name);
    return OURS;
}

/* The first form, of Hugging Face's or GGUF's, that holds a model, in whose terms *c then is; OURS and, of
   the form that is nearest, the line where none does. */
static inline form form_fitting(cmha_model_config *c, int gguf, char *error) {
    size_t least = SIZE_MAX;
    char line[TEXT_ERROR];
    for (size_t i = 0; i < FORM_CLASSES; i++) {
        form f = form_classes[i].in;
        cmha_model_config there = *c;
        if ((form_classes[i].architectures == NULL) != gguf) continue;
        if (f == PHI3 || f == GGUF_PHI3) continue; /* only by name: Llama's and Mistral's, joined otherwise */
        form_set_norms(&there, f);
        size_t misfits = form_misfits(&there, f, line);
        if (!misfits && form_holds(&there, f, line)) {
            *c = there;
            return f;
        }
        if (misfits >= least) continue;
        least = misfits;
        snprintf(error, TEXT_ERROR, "%s", line);
    }
    return OURS;
}

#endif
