/* versions.h - the small models of tests/versions, as the version that wrote them and the one that reads them know them: what write.c and
   tests/test_versions.c share. It keeps to calls that every version since 0.1.0 has. */
#ifndef VERSIONS_H
#define VERSIONS_H

#include <stdlib.h>
#include <string.h>

enum { VERSIONS_LENGTH = 6, VERSIONS_TEXT = 200 };

/* What each file holds. A version that does not know a field writes no such file; every = 1: only versions with an even minor number do,
   2: only those with an odd one, for the folder's size. */
typedef struct versions_case {
    const char *name, *fields;
    int state, storage, every; /* state = 1: a trainer's state; storage: 0 float, else a cmha_storage: a packed model */
} versions_case;
static const versions_case versions_cases[] = {
    {"real", "d_model=4 n_heads=1", 1, 0, 0},
    {"crat", "family=crat experts=2 experts_top=1 complex_residual=free", 0, 0, 0},
    {"packed", "attention=rope", 0, 2, 0},
    {"pope", "attention=pope", 0, 0, 0},
    {"cope", "family=cope cope_score=hybrid", 0, 0, 1},
    {"mobius", "family=mobius attention=dot position=learned placement=post mobius_heads=1", 0, 0, 1},
    {"llama", "attention=rope norm=rmsnorm activation=swiglu ffn_bias=0 tied=0 n_kv_heads=1", 0, 0, 2}};
enum { VERSIONS_CASES = (int)(sizeof versions_cases / sizeof versions_cases[0]) };
#define VERSIONS_SIZES "n_layers=1 d_model=8 n_heads=2 d_ff=4 vocabulary=8 max_positions=8 dropout=0 attention_dropout=0"

/* A text of eight tokens, and a batch of its first two lines */
static void versions_text(unsigned char *text) {
    unsigned x = 1;
    for (int i = 0; i < VERSIONS_TEXT; i++) {
        x = x * 1103515245u + 12345u;
        text[i] = (unsigned char)(i % 3 ? (x >> 16) % 8 : i % 8);
    }
}
static void versions_ids(int32_t *ids, int32_t *targets) {
    unsigned char text[VERSIONS_TEXT];
    versions_text(text);
    for (int i = 0; i < 2 * VERSIONS_LENGTH; i++) {
        ids[i] = text[i];
        targets[i] = text[i + 1];
    }
}
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
static cmha_status versions_loss(cmha_model *model, double *loss) {
    int32_t ids[2 * VERSIONS_LENGTH], targets[2 * VERSIONS_LENGTH];
    cmha_batch batch;
    memset(&batch, 0, sizeof batch);
    versions_ids(ids, targets);
    batch.ids = ids;
    batch.targets = targets;
    batch.batch = 2;
    batch.length = VERSIONS_LENGTH;
    return cmha_model_loss(model, &batch, loss);
}
#define VERSIONS_TRAINER "steps=20 batch=2 length=6 lr=0.01"

#endif
