/* versions.h - the text and the loss by which the version that wrote a file of tests/versions and the one
   that reads it are compared: what write.c and tests/test_versions.c share. It keeps to calls that every
   version since 0.1.0 has. */
#ifndef VERSIONS_H
#define VERSIONS_H

#include <stdint.h>
#include <string.h>

enum { VERSIONS_LENGTH = 6, VERSIONS_TEXT = 200 };

/* A text of eight tokens, and a batch of its first two lines */
static void versions_text(unsigned char *text) {
    unsigned x = 1;
    for (int i = 0; i < VERSIONS_TEXT; i++) {
        x = x * 1103515245u + 12345u;
        text[i] = (unsigned char)(i % 3 ? (int)((x >> 16) % 8) : i % 8);
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
#endif
