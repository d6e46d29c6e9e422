/* portable_files write|check FOLDER: files that every platform must read as every other wrote them. `write`
   makes them, `check` reads what another machine, compiler or precision has written: numbers bit for bit,
   then one more training step, which must come out as it did for the writer: so the checkpoint has carried
   everything, and both draw the same batches and dropout bits. */
#include "models.h"

static cmha_context context;
static const char *folder;

static const char *const options[] = {
    "attention=cmha attention_bias=1 activation=swiglu tied=0",
    "attention=rope norm=rmsnorm share=shared layout=half",
    "family=cope attention=dot causal=0",
    "family=mobius attention=dot position=learned placement=post causal=0",
    "family=crat",
};
enum { KINDS = sizeof options / sizeof *options, TOKENS = 300, STEPS = 5 };

static const char *path_of(const char *name, int kind) {
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s%d", folder, name, kind);
    return path[turn];
}

/* Numbers that float and double both hold: of either sign, or positive */
static double exact(size_t i) { return ((double)(i * 37 % 129) - 64) / 256; }
static double positive(size_t i) { return (double)(i * 37 % 129 + 1) / 1024; }

static double special(size_t i) {
    static const int powers[] = {0, -126, -149, 127, -24};
    static const double numbers[] = {0, -1.5, 16777215, HUGE_VAL};
    return i < 5 ? ldexp(1, powers[i]) : i == 9 ? -numbers[0] : i < 9 ? numbers[i - 5] : -special(i - 10);
}
enum { SPECIALS = 20 };

/* below the vocabulary, but for the places that show every byte */
static unsigned token(size_t i, int width) {
    return i == 0 ? (width == 1 ? 0xF1u : width == 2 ? 0xF1E2u : 0x71E2D3C4u) : (unsigned)(i * 7 % 19);
}

/* ------------------------------------------ numbers and tokens ------------------------------------------ */

static void write_numbers(void) {
    static const size_t shape[2] = {4, SPECIALS / 4}, pairs[2] = {2, SPECIALS / 4};
    static const char *const metadata[] = {"words", "a \"quoted\" back\\slash,\ttab and\r\nline \xc3\xa9"};
    cmha_real x[SPECIALS];
    cmha_archive_item items[2] = {{"special.numbers", x, shape, 2, NULL},
                                  {"special.complex", x, pairs, 2, "C64"}};
    FILE *file;
    size_t i;
    int width, byte;
    for (i = 0; i < SPECIALS; i++) x[i] = (cmha_real)special(i);
    CHECK_OK(cmha_archive_write(&context, path_of("numbers", 0), items, 2, metadata, 1));
    /* over an existing file */
    CHECK_OK(cmha_archive_write(&context, path_of("numbers", 0), items, 2, metadata, 1));
    for (width = 1; width <= 4; width *= 2) {
        file = fopen(path_of("tokens", width), "wb");
        if (!CHECK_THAT(file != NULL, "%s cannot be written", path_of("tokens", width))) return;
        for (i = 0; i < TOKENS; i++)
            for (byte = 0; byte < width; byte++) fputc((int)(token(i, width) >> (8 * byte) & 255), file);
        CHECK(fclose(file) == 0);
    }
}

static void check_numbers(void) {
    cmha_archive r;
    const cmha_archive_tensor *t;
    cmha_real x[SPECIALS];
    cmha_tokens tokens;
    size_t i, wrong = 0;
    int width;
    if (!CHECK_THAT(!cmha_archive_open(&r, &context, path_of("numbers", 0)), "%s", cmha_error(&context)))
        return;
    t = cmha_archive_find(&r, "special.numbers");
    if (CHECK(t && t->rank == 2 && t->shape[0] == 4 && t->count == SPECIALS) &&
        CHECK_OK(cmha_archive_read(&r, t, x)))
        for (i = 0; i < SPECIALS; i++)
            CHECK_THAT((double)x[i] == special(i) && copysign(1, (double)x[i]) == copysign(1, special(i)),
                       "number %d is %g, expected %g", (int)i, (double)x[i], special(i));
    t = cmha_archive_find(&r, "special.complex");
    if (CHECK(t && t->rank == 2 && t->shape[1] == SPECIALS / 4 && t->count == SPECIALS) &&
        CHECK_OK(cmha_archive_read(&r, t, x)))
        for (i = 0; i < SPECIALS; i++)
            CHECK_THAT((double)x[i] == (double)(float)special(i), "complex number %d is %g, expected %g",
                       (int)i, (double)x[i], special(i));
    CHECK(cmha_archive_metadata(&r, "words") &&
          !strcmp(cmha_archive_metadata(&r, "words"), "a \"quoted\" back\\slash,\ttab and\r\nline \xc3\xa9"));
    cmha_archive_close(&r);
    for (width = 1; width <= 4; width *= 2) {
        if (!CHECK_OK(cmha_tokens_open(&tokens, &context, path_of("tokens", width), width))) continue;
        CHECK(tokens.count == TOKENS);
        for (i = wrong = 0; i < tokens.count; i++)
            wrong += cmha_tokens_at(&tokens, i) != (int32_t)token(i, width);
        CHECK_THAT(wrong == 0, "%d of the tokens of %d bytes are others", (int)wrong, width);
        cmha_tokens_close(&tokens);
    }
}

/* -------------------------------------------- a training run -------------------------------------------- */

static void open_run(cmha_model *model, cmha_trainer *trainer, int kind) {
    cmha_model_config m = check_model_config();
    cmha_trainer_config t;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = 2, t.length = 12, t.warmup = 0, t.lr = 1.0 / 1024, t.mask_token = 3;
    m.dropout = 0.125, m.max_positions = 32;
    models_set(&context, &m, options[kind]);
    if (!CHECK_THAT(!cmha_model_init(model, &context, &m), "%s: %s", options[kind], cmha_error(&context)))
        exit(3);
    if (!CHECK_THAT(!cmha_trainer_init(trainer, model, &t), "%s: %s", options[kind], cmha_error(&context)))
        exit(3);
}

static void close_run(cmha_model *model, cmha_trainer *trainer) {
    cmha_trainer_close(trainer), cmha_model_close(model);
}

/* Number i of a parameter, of its first and of its second moment, in `what` 0, 1, 2 */
static cmha_real *number(cmha_trainer *trainer, size_t parameter, int what) {
    cmha_model *model = trainer->model;
    cmha_real *data = model->parameters.list[parameter].tensor.data;
    return what ? model->parameters.moments + (size_t)(what - 1) * model->parameters.size +
                      (data - model->parameters.data)
                : data;
}

/* The differences of all numbers from what open_run's writer set them to */
static size_t strangers(cmha_trainer *trainer, int set) {
    size_t p, i, wrong = 0;
    int what;
    for (p = 0; p < trainer->model->parameters.count; p++)
        for (what = 0; what < 3; what++)
            for (i = 0; i < trainer->model->parameters.list[p].tensor.size; i++) {
                cmha_real *x = number(trainer, p, what) + i,
                          want = (cmha_real)(what == 2 ? positive(i + p) : exact(i + p));
                if (set) *x = want;
                wrong += memcmp(x, &want, sizeof want) != 0;
            }
    return wrong;
}

static double next_step(cmha_trainer *trainer) {
    static unsigned char text[TOKENS];
    cmha_tokens stream;
    double loss = 0;
    size_t i;
    memset(&stream, 0, sizeof stream);
    for (i = 0; i < TOKENS; i++) text[i] = (unsigned char)(i * i % 19);
    stream.data = text, stream.count = stream.bytes = TOKENS, stream.width = 1;
    CHECK_THAT(!cmha_trainer_step(trainer, &stream, &loss), "%s", cmha_error(&context));
    return loss;
}

/* Saves the model packed, or compares such a file with what this machine packs. */
static void packed_model(int kind, cmha_storage storage, int check) {
    const char *path = path_of(storage == CMHA_STORAGE_INT8 ? "int8" : "bf16", kind);
    cmha_model small, model;
    const cmha_packed *packed;
    cmha_real *mine, *theirs;
    size_t i, o, k, wrong = 0;
    CHECK_OK(cmha_model_open(&model, &context, path_of("model", kind)));
    CHECK_OK(cmha_model_pack(&model, storage));
    if (!check) {
        CHECK_OK(cmha_model_save(&model, path));
        cmha_model_close(&model);
        return;
    }
    if (!CHECK_THAT(!cmha_model_open(&small, &context, path), "%s", cmha_error(&context))) return;
    CHECK(model.packed.n_matrices == small.packed.n_matrices && model.packed.n_matrices > 5);
    for (i = 0; i < model.packed.n_matrices; i++) {
        packed = &model.packed.matrices[i];
        size_t O = packed->n_out, I = packed->n_in;
        mine = check_zeros(O * I), theirs = check_zeros(O * I);
        cmha_unpack(packed, 0, O, mine), cmha_unpack(&small.packed.matrices[i], 0, O, theirs);
        for (o = 0; o < O; o++) /* float's scale may round a code the other way than double's */
            for (k = o * I; k < (o + 1) * I; k++)
                wrong += !(fabs((double)mine[k] - (double)theirs[k]) <=
                           (packed->scales ? 1.001 * (double)packed->scales[o] : 0));
        free(mine), free(theirs);
    }
    CHECK_THAT(wrong == 0, "%s: %d packed numbers are others", options[kind], (int)wrong);
    cmha_model_close(&model), cmha_model_close(&small);
}

static void write_run(int kind) {
    static const size_t one = 1;
    cmha_model model;
    cmha_trainer trainer;
    cmha_real loss;
    cmha_archive_item item = {"loss", &loss, &one, 1, NULL};
    open_run(&model, &trainer, kind);
    CHECK(strangers(&trainer, 1) == 0);
    trainer.step = STEPS, trainer.seed = UINT64_C(0xFEDCBA9876543210), trainer.best = 1.0 / 3;
    CHECK_OK(cmha_model_save(&model, path_of("model", kind)));
    packed_model(kind, CMHA_STORAGE_INT8, 0), packed_model(kind, CMHA_STORAGE_BF16, 0);
    CHECK_OK(cmha_trainer_save(&trainer, path_of("checkpoint", kind)));
    loss = (cmha_real)next_step(&trainer);
    CHECK_OK(cmha_archive_write(&context, path_of("loss", kind), &item, 1, NULL, 0));
    CHECK_OK(cmha_trainer_save(&trainer, path_of("stepped", kind)));
    close_run(&model, &trainer);
}

static void check_run(int kind) {
    cmha_model model, weights;
    cmha_trainer trainer;
    cmha_archive r;
    cmha_real want = 0, *mine;
    double loss;
    size_t p, i;
    open_run(&model, &trainer, kind);
    if (!CHECK_THAT(!cmha_trainer_read(&trainer, path_of("checkpoint", kind)), "%s", cmha_error(&context)))
        return;
    CHECK_THAT(strangers(&trainer, 0) == 0, "%s: %d numbers are others", options[kind],
               (int)strangers(&trainer, 0));
    CHECK(trainer.step == STEPS && trainer.seed == UINT64_C(0xFEDCBA9876543210) && trainer.best == 1.0 / 3);
    if (CHECK_THAT(!cmha_model_open(&weights, &context, path_of("model", kind)), "%s",
                   cmha_error(&context))) {
        for (p = i = 0; p < model.parameters.count; p++)
            i += memcmp(model.parameters.list[p].tensor.data, weights.parameters.list[p].tensor.data,
                        model.parameters.list[p].tensor.size * sizeof want) != 0;
        CHECK_THAT(i == 0, "%s: %d parameters of the model's file are others", options[kind], (int)i);
        cmha_model_close(&weights);
    }
    packed_model(kind, CMHA_STORAGE_INT8, 1), packed_model(kind, CMHA_STORAGE_BF16, 1);
    loss = next_step(&trainer);
    if (CHECK_OK(cmha_archive_open(&r, &context, path_of("loss", kind)))) {
        CHECK_OK(cmha_archive_read(&r, cmha_archive_find(&r, "loss"), &want));
        CHECK_NEAR(loss, want, 1e-5 * fabs((double)want));
        cmha_archive_close(&r);
    }
    mine = check_zeros(3 * model.parameters.size);
    memcpy(mine, model.parameters.data, model.parameters.size * sizeof *mine);
    memcpy(mine + model.parameters.size, model.parameters.moments, 2 * model.parameters.size * sizeof *mine);
    if (CHECK_THAT(!cmha_trainer_read(&trainer, path_of("stepped", kind)), "%s", cmha_error(&context))) {
        CHECK(trainer.step == STEPS + 1);
        for (p = 0; p < model.parameters.count; p++) {
            size_t at = (size_t)(model.parameters.list[p].tensor.data - model.parameters.data),
                   n = model.parameters.list[p].tensor.size;
            double w = check_distance(mine + at, model.parameters.data + at, n);
            double m = check_distance(mine + model.parameters.size + at, model.parameters.moments + at, n);
            CHECK_THAT(w <= 5e-6 && m <= 5e-6 * (1 + check_largest(model.parameters.moments + at, n)),
                       "%s: after one step %s is %.3g away from the writer's, its moment %.3g", options[kind],
                       model.parameters.list[p].name, w, m);
        }
    }
    free(mine);
    close_run(&model, &trainer);
}

int main(int argc, char **argv) {
    int kind;
    if (argc != 3 || (strcmp(argv[1], "write") && strcmp(argv[1], "check"))) {
        fprintf(stderr, "usage: %s write|check FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[2];
    check_context(&context, 1, 3);
    if (argv[1][0] == 'w') write_numbers();
    else check_numbers();
    for (kind = 0; kind < KINDS; kind++)
        if (argv[1][0] == 'w') write_run(kind);
        else check_run(kind);
    cmha_context_close(&context);
    return check_end();
}
