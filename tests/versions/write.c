/* write.c - writes what tests/versions keeps of a version, with that version's header, and a line for
   list.txt on each: file, the loss of the model in it and, of a trainer's state, the loss of the next step.
       git show TAG:cmha.h > /tmp/cmha.h
       cc -O1 -DCMHA_NO_CBLAS -I/tmp -Itests/versions tests/versions/write.c -o /tmp/write -lm
       /tmp/write tests/versions/1.0.0 >> tests/versions/list.txt       (the folder must be there) */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#include <stdio.h>

#include "versions.h"

/* What each file holds. A version that does not know a field writes no such file. */
typedef struct versions_case {
    const char *name, *fields;
    int state;   /* 1: a trainer's state */
    int storage; /* 0: float; else a cmha_storage, a packed model */
    int every;   /* for the folder's size, before 1.0 1: only of odd minor versions, 2: only of even ones */
    const char *trainer; /* fields of the trainer, or NULL */
} versions_case;
static const versions_case versions_cases[] = {
    {"real", "d_model=4 n_heads=1", 1, 0, 0, NULL},
    {"crat", "family=crat experts=2 experts_top=1 complex_residual=free", 0, 0, 0, NULL},
    {"packed", "attention=rope", 0, 2, 0, NULL},
    {"int4", "attention=rope", 0, 3, 0, NULL},
    {"q4_k", "attention=rope", 0, 4, 0, NULL},
    {"pope", "attention=pope", 0, 0, 0, NULL},
    {"cope", "family=cope cope_score=hybrid", 0, 0, 1, NULL},
    {"mobius", "family=mobius attention=dot position=learned placement=post mobius_heads=1", 0, 0, 1, NULL},
    {"llama", "attention=rope norm=rmsnorm activation=swiglu ffn_bias=0 tied=0 n_kv_heads=1", 0, 0, 2, NULL},
    {"gemma",
     "attention=rope norm=rmsnorm n_layers=2 window=3 layer_kinds=lg local_base=100 qk_norm=rms_gain "
     "score_softcap=20 logit_softcap=30",
     0, 0, 0, NULL},
    {"muon", "attention=rope", 1, 0, 0, "optimiser=muon ema=0.9"}};
enum { VERSIONS_CASES = (int)(sizeof versions_cases / sizeof versions_cases[0]) };
#define VERSIONS_SIZES \
    "n_layers=1 d_model=8 n_heads=2 d_ff=4 vocabulary=8 max_positions=8 dropout=0 attention_dropout=0"
#define VERSIONS_TRAINER "steps=20 batch=2 length=6 lr=0.01"

/* Sets "name=value name=value"; returns the status of the first that is refused. */
static cmha_status versions_set(cmha_context *context, cmha_table table, void *config, const char *fields) {
    char text[256], *one;
    strcpy(text, fields);
    for (one = strtok(text, " "); one; one = strtok(NULL, " ")) {
        char *value = strchr(one, '=');
        cmha_status status;
        *value++ = 0;
        status = cmha_config_set(context, table, config, one, value);
        if (status) return status;
    }
    return CMHA_OK;
}

static cmha_context context;
static unsigned char text[VERSIONS_TEXT];

/* What stands in list.txt begins with the folder's own name */
static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static cmha_status write_case(const versions_case *c, const char *folder) {
    cmha_model_config mc;
    cmha_trainer_config tc;
    cmha_model model;
    cmha_trainer trainer;
    cmha_tokens tokens;
    cmha_status status;
    double loss = 0, next = 0;
    char path[256];
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, c->name);
    memset(&tokens, 0, sizeof tokens);
    tokens.data = text;
    tokens.count = VERSIONS_TEXT;
    tokens.width = 1;
    cmha_config_defaults(cmha_model_table(), &mc);
    cmha_config_defaults(cmha_trainer_table(), &tc);
    if ((status = versions_set(&context, cmha_model_table(), &mc, VERSIONS_SIZES))) return status;
    if ((status = versions_set(&context, cmha_model_table(), &mc, c->fields))) return status;
    if ((status = versions_set(&context, cmha_trainer_table(), &tc, VERSIONS_TRAINER))) return status;
    if (c->trainer && (status = versions_set(&context, cmha_trainer_table(), &tc, c->trainer))) return status;
    if ((status = cmha_model_init(&model, &context, &mc))) return status;
    status = cmha_trainer_init(&trainer, &model, &tc);
    for (int step = 0; step < 3 && !status; step++) status = cmha_trainer_step(&trainer, &tokens, &loss);
    if (!status && c->state) status = cmha_trainer_save(&trainer, path);
#if CMHA_VERSION >= 800
    if (!status && c->storage) {
        cmha_trainer_close(&trainer);
        status = cmha_model_pack(&model, (cmha_storage)c->storage);
    }
#else
    if (c->storage) status = CMHA_ERR_NOT_FOUND;
#endif
    if (!status && !c->state) status = cmha_model_save(&model, path);
    if (!status) status = versions_loss(&model, &loss);
    if (!status && c->state) status = cmha_trainer_step(&trainer, &tokens, &next);
    if (!status) printf("%s/%s %.9g %.9g\n", last_part(folder), c->name, loss, next);
    cmha_trainer_close(&trainer);
    cmha_model_close(&model);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 2 || cmha_context_init(&context, NULL)) return 2;
    versions_text(text);
    for (int i = 0; i < VERSIONS_CASES; i++) {
        const versions_case *one = &versions_cases[i];
        if (CMHA_VERSION < 10000 && one->every == 1 + CMHA_VERSION_MINOR % 2) continue;
        if (write_case(one, argv[1]))
            fprintf(stderr, "%s %s: %s\n", last_part(argv[1]), one->name, cmha_error(&context));
    }
    cmha_context_close(&context);
    return 0;
}
