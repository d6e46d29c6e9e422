/* Files of every released version can be read. tests/versions holds small ones, written by those versions;
   list.txt says what each version computed with them: the loss of a batch and, of a trainer's state, that of
   the next step. After a release tests/versions/write.c writes the next folder. */
#include "check.h"

#include "versions/versions.h"

static cmha_context context;
static unsigned char text[VERSIONS_TEXT];

/* Is it the number that the older version has computed? Its sums may have had another order. */
static void same(const char *file, const char *what, double now, double then) {
    CHECK_THAT(fabs(now - then) <= 5e-6 * fabs(then), "%s: %s is %.9g, was %.9g", file, what, now, then);
}

static int opens(const char *file, const char *what, cmha_status status) {
    return CHECK_THAT(status == CMHA_OK, "%s: %s: %s", file, what, cmha_error(&context));
}

static void read_model(const char *file, const char *path, double loss) {
    cmha_model model;
    double now = 0;
    if (!opens(file, "model", cmha_model_open(&model, &context, path))) return;
    opens(file, "loss", versions_loss(&model, &now));
    same(file, "the loss", now, loss);
    cmha_model_close(&model);
}

/* A trainer's state, with which the run goes on */
static void read_state(const char *file, const char *path, double next) {
    cmha_model_config mc;
    cmha_trainer_config tc;
    cmha_model model;
    cmha_trainer trainer;
    cmha_tokens tokens;
    double now = 0;
    memset(&tokens, 0, sizeof tokens);
    memset(&trainer, 0, sizeof trainer);
    tokens.data = text;
    tokens.count = VERSIONS_TEXT;
    tokens.width = 1;
    if (!opens(file, "configuration", cmha_config_read(&context, path, &mc, &tc))) return;
    if (!opens(file, "its model", cmha_model_init(&model, &context, &mc))) return;
    if (opens(file, "trainer", cmha_trainer_init(&trainer, &model, &tc)) &&
        opens(file, "state", cmha_trainer_read(&trainer, path))) {
        CHECK_THAT(trainer.step == 3, "%s: step %zu, not 3", file, trainer.step);
        opens(file, "step", cmha_trainer_step(&trainer, &tokens, &now));
        same(file, "the next step's loss", now, next);
    }
    cmha_trainer_close(&trainer);
    cmha_model_close(&model);
}

int main(void) {
    char file[64], version[64] = "", path[128];
    double loss, next;
    int versions = 0, files = 0;
    FILE *list = fopen("tests/versions/list.txt", "r");
    versions_text(text);
    CHECK_OK(cmha_context_init(&context, NULL));
    if (!CHECK_THAT(list != NULL, "no tests/versions/list.txt: run the test in the project's folder"))
        return check_end();
    while (fscanf(list, "%63s %lf %lf", file, &loss, &next) == 3) {
        const size_t length = strcspn(file, "/");
        if (strncmp(file, version, length) || version[length]) versions++;
        memcpy(version, file, length);
        version[length] = 0;
        files++;
        snprintf(path, sizeof path, "tests/versions/%s.safetensors", file);
        read_model(file, path, loss);
        if (next != 0) read_state(file, path, next);
    }
    CHECK_THAT(feof(list), "tests/versions/list.txt: a line that is not FILE LOSS LOSS");
    fclose(list);
    CHECK_THAT(versions >= 11 && files >= 46, "%d versions, %d files", versions, files);
    cmha_context_close(&context);
    return check_end();
}
