/* build/convert: models of others, tests/models of make_models.py, give the numbers that PyTorch got, and go
   back bit for bit; a RoPE model is a ComplexFormer; what is wrong with a file is said in one line.
   grad_convert.c is this file once more in double. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "check.h"

#include "../examples/tools/gguf.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[64] = "/tmp/cmha-convert-XXXXXX", program[512];
static cmha_context context;

static const char *const models[] = {"gpt2", "llama", "grouped", "biased", "qwen2", "mistral", "partial",
                                     "bert", "bert_mlm", "bert_classes", "qwen3", "qwen3_window", "gemma2",
                                     "gemma3", "olmo2", "phi3", "smollm3", "granite", "stablelm",
                                     "stablelm_beside", "neox", "neox_serial", "gptj", "phi",
                                     "roberta", "roberta_classes", "distilbert", "modernbert",
                                     "modernbert_biased", "nomic", "nomic_biased"};
/* From LEARNED to ENCODERS and from TURNED on they have gradients. */
enum { MODELS = sizeof models / sizeof *models, LEARNED = 10, ENCODERS = 24, TURNED = 27, TOKENS = 12 };
enum { NUMBERS = 4096 }; /* of the largest tensor */

static const char *path_of(const char *name) {
    static char path[8][512];
    static int next;
    next = (next + 1) % 8;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static const char *model_of(const char *name) {
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "tests/models/%s", name);
    return path[next];
}

/* Runs the program; returns its status. What it says on stderr goes to `said`. */
static char said[4096];
static int convert(const char *format, ...) {
    char arguments[2048], command[4096];
    FILE *file;
    size_t n = 0;
    int status;
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "%s %s >%s 2>%s", program, arguments, path_of("out"), path_of("said"));
    status = system(command);
    if ((file = fopen(path_of("said"), "rb")) != NULL)
        n = fread(said, 1, sizeof said - 1, file), fclose(file);
    said[n] = 0;
    return status;
}

/* It succeeds. */
#define CONVERT(...) CHECK_THAT(convert(__VA_ARGS__) == 0, "%s", said)

/* ---- The same numbers as elsewhere ---- */

/* What a checkpoint computes from the tokens of `expected`: logits, states or classes. Returns how many. */
static size_t compute(const char *path, cmha_archive *expected, cmha_real *out, size_t room) {
    const cmha_archive_tensor *ids = cmha_archive_find(expected, "ids");
    int64_t wide[TOKENS];
    int32_t tokens[TOKENS], types[TOKENS];
    cmha_model model;
    cmha_batch batch;
    cmha_tensor *states;
    cmha_tape tape;
    size_t n = 0;
    CHECK_OK(cmha_archive_read_i64(expected, ids, wide));
    for (int i = 0; i < TOKENS; i++) tokens[i] = (int32_t)wide[i], types[i] = i >= TOKENS / 2;
    if (!CHECK_THAT(!cmha_model_open(&model, &context, path), "%s", cmha_error(&context))) return 0;
    memset(&batch, 0, sizeof batch);
    batch.ids = tokens, batch.batch = 1, batch.length = TOKENS;
    if (model.config.token_types > 1) batch.types = types;
    if (cmha_archive_find(expected, "logits")) {
        n = TOKENS * model.config.vocabulary;
        if (CHECK(n <= room)) CHECK_OK(cmha_model_logits(&model, &batch, out));
    } else if (cmha_archive_find(expected, "classes")) {
        n = model.config.classes;
        if (CHECK(n <= room)) CHECK_OK(cmha_model_classify(&model, &batch, out));
    } else {
        n = TOKENS * model.config.d_model;
        CHECK_OK(cmha_tape_init(&tape, &context, 0));
        states = cmha_model_states(&model, &tape, &batch, NULL);
        if (CHECK(states && n <= room)) memcpy(out, states->data, n * sizeof *out);
        cmha_tape_close(&tape);
    }
    cmha_model_close(&model);
    return n;
}

static void open_expected(cmha_archive *a, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "tests/models/%s/expected.safetensors", name);
    if (!CHECK_THAT(!cmha_archive_open(a, &context, path), "%s", cmha_error(&context))) exit(check_end());
}

/* Every model's numbers are PyTorch's. */
static void like_elsewhere(void) {
    static const char *const what[] = {"logits", "states", "classes"};
    const double bound = sizeof(cmha_real) == 8 ? 1e-9 : 1e-5;
    for (size_t i = 0; i < MODELS; i++) {
        cmha_real got[512], want[512];
        cmha_archive expected;
        double most = 0;
        size_t n;
        const cmha_archive_tensor *t = NULL;
        open_expected(&expected, models[i]);
        for (int j = 0; j < 3 && !t; j++) t = cmha_archive_find(&expected, what[j]);
        CONVERT("%s %s", model_of(models[i]), path_of(models[i]));
        n = compute(path_of(models[i]), &expected, got, 512);
        if (CHECK(t && t->count == n)) {
            CHECK_OK(cmha_archive_read(&expected, t, want));
            for (size_t j = 0; j < n; j++) most = fmax(most, fabs((double)got[j] - (double)want[j]));
            CHECK_THAT(most <= bound, "%s: %g beside PyTorch", models[i], most);
        }
        cmha_archive_close(&expected);
    }
}

/* The gradients of two models' parameters: those of a's last pass, and the numbers of b. */
static double gradients_apart(const cmha_model *a, const cmha_model *b) {
    double most = 0, largest = 0;
    for (size_t i = 0; i < a->parameters.count; i++) {
        const cmha_parameter *p = &a->parameters.list[i], *q;
        if (p->frozen || strstr(p->name, "lora")) continue;
        q = cmha_parameters_find(&b->parameters, p->name);
        if (!CHECK_THAT(q && q->tensor.size == p->tensor.size, "%s", p->name)) continue;
        for (size_t j = 0; j < p->tensor.size; j++) {
            most = fmax(most, fabs((double)p->tensor.grad[j] - (double)q->tensor.data[j]));
            largest = fmax(largest, fabs((double)p->tensor.grad[j]));
        }
    }
    CHECK(largest > 1e-3);
    return most / largest;
}

/* The loss of a model's tokens and the gradients of all its weights are PyTorch's, where those are read as
   the weights of another model. (They are F32, also in double.) */
static void learns_like(const char *name) {
    char command[1600];
    cmha_model model, theirs;
    cmha_archive expected;
    int64_t wide[TOKENS];
    int32_t ids[TOKENS + 1], types[TOKENS];
    cmha_batch batch;
    cmha_real want;
    double loss = 0, apart;
    snprintf(command, sizeof command, "rm -rf %s && mkdir %s && cp tests/models/%s/config.json %s && "
             "cp tests/models/%s/gradients.safetensors %s/model.safetensors",
             path_of("grads"), path_of("grads"), name, path_of("grads"), name, path_of("grads"));
    CHECK(system(command) == 0);
    CONVERT("%s %s", path_of("grads"), path_of("g"));
    open_expected(&expected, name);
    CHECK_OK(cmha_archive_read_i64(&expected, cmha_archive_find(&expected, "ids"), wide));
    CHECK_OK(cmha_archive_read(&expected, cmha_archive_find(&expected, "loss"), &want));
    cmha_archive_close(&expected);
    for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)wide[i], types[i] = i >= TOKENS / 2;
    ids[TOKENS] = -1;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = ids + 1, batch.batch = 1, batch.length = TOKENS;
    if (!CHECK_THAT(!cmha_model_open(&model, &context, path_of(name)), "%s", cmha_error(&context))) return;
    if (!CHECK_THAT(!cmha_model_open(&theirs, &context, path_of("g")), "%s", cmha_error(&context))) return;
    model.config.dropout = model.config.attention_dropout = 0;
    if (model.config.token_types > 1) batch.types = types;
    CHECK_OK(cmha_model_gradient(&model, &batch, 1, 0, &loss));
    CHECK_THAT(fabs(loss - (double)want) < (sizeof want == 8 ? 1e-12 : 1e-5), "%s: loss %g, not %g", name,
               loss, (double)want);
    apart = gradients_apart(&model, &theirs);
    CHECK_THAT(apart < (sizeof want == 8 ? 3e-7 : 1e-5), "%s: gradients %g apart", name, apart);
    cmha_model_close(&model), cmha_model_close(&theirs);
}

/* Adapters of every matrix learn: after some steps the loss is less. */
static void adapts(const char *name) {
    cmha_model_config config;
    cmha_model model;
    cmha_trainer trainer;
    cmha_trainer_config t;
    int32_t ids[TOKENS + 1];
    cmha_batch batch;
    double first = 0, last = 0;
    CHECK_OK(cmha_config_read(&context, path_of(name), &config, NULL));
    config.lora_rank = 2, strcpy(config.lora_on, "*"), config.dropout = config.attention_dropout = 0;
    for (int i = 0; i <= TOKENS; i++) ids[i] = (int32_t)((i * 7 + 3) % 20);
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = ids + 1, batch.batch = 1, batch.length = TOKENS;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = 1, t.length = TOKENS, t.warmup = 0, t.lr = 1e-2;
    if (!CHECK_THAT(!cmha_model_init(&model, &context, &config), "%s", cmha_error(&context))) return;
    CHECK_OK(cmha_model_read(&model, path_of(name), 0, NULL));
    CHECK_OK(cmha_trainer_init(&trainer, &model, &t));
    CHECK_OK(cmha_model_loss(&model, &batch, &first));
    for (int i = 0; i < 30; i++) CHECK_OK(cmha_trainer_step_batch(&trainer, &batch, &last));
    CHECK_THAT(last < first * 0.9, "%s: adapters lead from %g to %g", name, first, last);
    cmha_trainer_close(&trainer);
    CHECK_OK(cmha_model_merge(&model));
    cmha_model_close(&model);
}

/* What a base computes with adapters from the tokens of `expected`. */
static void compute_adapted(const char *base, const char *adapters, cmha_archive *expected, cmha_real *out) {
    int64_t wide[TOKENS];
    int32_t tokens[TOKENS];
    cmha_model_config config;
    cmha_model model;
    cmha_batch batch;
    CHECK_OK(cmha_archive_read_i64(expected, cmha_archive_find(expected, "ids"), wide));
    for (int i = 0; i < TOKENS; i++) tokens[i] = (int32_t)wide[i];
    memset(&batch, 0, sizeof batch);
    batch.ids = tokens, batch.batch = 1, batch.length = TOKENS;
    if (!CHECK_OK(cmha_config_read(&context, adapters, &config, NULL))) return;
    CHECK(config.vocabulary * TOKENS <= 512);
    if (!CHECK_OK(cmha_model_init(&model, &context, &config))) return;
    CHECK_OK(cmha_model_read(&model, base, 2, NULL));
    CHECK_OK(cmha_model_read(&model, adapters, 2, NULL));
    CHECK_OK(cmha_model_logits(&model, &batch, out));
    cmha_model_close(&model);
}

/* PEFT's adapters give the numbers that PyTorch got from W + alpha / rank B A. There and back they are the
   same file; also beside a base whose heads have their pairs otherwise they give these numbers. */
static void peft(void) {
    static const char *const names[] = {"llama", "grouped", "gpt2", "neox", "phi3", "llama"};
    const double bound = sizeof(cmha_real) == 8 ? 1e-9 : 2e-5;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cmha_real got[512], want[512];
        const char *as = strcmp(names[i], "phi3") ? "" : "--as phi3";
        char theirs[64], command[1200];
        cmha_archive expected;
        double most = 0;
        snprintf(theirs, sizeof theirs, "%s_peft", names[i]);
        open_expected(&expected, theirs);
        CONVERT("%s %s", model_of(names[i]), path_of("base"));
        if (i == 5) { /* GGUF's pairs lie side by side */
            CONVERT("--to gguf %s %s", path_of("base"), path_of("base.gguf"));
            CONVERT("%s %s", path_of("base.gguf"), path_of("base"));
        }
        CONVERT("%s --base %s %s %s", as, path_of("base"), model_of(theirs), path_of("adapters"));
        compute_adapted(path_of("base"), path_of("adapters"), &expected, got);
        CHECK_OK(cmha_archive_read(&expected, cmha_archive_find(&expected, "logits"), want));
        for (size_t j = 0; j < cmha_archive_find(&expected, "logits")->count; j++)
            most = fmax(most, fabs((double)got[j] - (double)want[j]));
        CHECK_THAT(most <= bound, "%s: %g beside PyTorch", theirs, most);
        CONVERT("%s --to peft --base %s %s %s", as, path_of("base"), path_of("adapters"), path_of("peft"));
        CONVERT("%s --base %s %s %s", as, path_of("base"), path_of("peft"), path_of("again"));
        snprintf(command, sizeof command, "cmp %s %s", path_of("adapters"), path_of("again"));
        CHECK_THAT(system(command) == 0, "%s: other adapters after the way there and back", theirs);
        cmha_archive_close(&expected);
    }
}

/* 96 greedy steps of stories260K, as llama2.c computes them in double precision. */
static void stories(void) {
    static const char *const bin = "../shared/data/weights/stories260k/stories260K.bin";
    static cmha_real logits[512];
    static float golden[96 * 512];
    int32_t token = 1, next;
    double most = 0;
    cmha_model model;
    cmha_cache cache;
    FILE *file = fopen("../shared/data/weights/stories260k/greedy96.logits.f32", "rb");
    if (!file) return;
    CHECK(fread(golden, sizeof golden, 1, file) == 1);
    fclose(file);
    CONVERT("%s %s", bin, path_of("stories"));
    if (!CHECK_THAT(!cmha_model_open(&model, &context, path_of("stories")), "%s", cmha_error(&context)))
        return;
    CHECK_OK(cmha_cache_init(&cache, &model, 1, 96, 0, NULL));
    for (size_t i = 0; i < 96; i++, token = next) { /* greedy: the largest of each step is the next token */
        CHECK_OK(cmha_cache_append(&cache, &token, 1, logits));
        next = 0;
        for (int32_t v = 0; v < 512; v++) {
            most = fmax(most, fabs((double)logits[v] - (double)golden[i * 512 + (size_t)v]));
            if (logits[v] > logits[next]) next = v;
        }
    }
    CHECK_THAT(most <= 1e-5, "stories260K: %g beside the golden logits", most);
    cmha_cache_close(&cache), cmha_model_close(&model);
}

#ifndef CMHA_DOUBLE

/* It ends with one line that has `what` in it, and leaves no file. */
static void refused(const char *out, const char *what, const char *arguments) {
    const char *end = strchr(said, '\n');
    (void)remove(path_of(out));
    int status = convert("%s %s", arguments, path_of(out));
    end = strchr(said, '\n');
    CHECK_THAT(status != 0 && WIFEXITED(status) && WEXITSTATUS(status) < 3, "%s: status %d, %s", arguments,
               status, said);
    CHECK_THAT(end && !end[1] && !strncmp(said, "convert: ", 9) && strstr(said, what),
               "%s: \"%s\" has no \"%s\"", arguments, said, what);
    CHECK_THAT(access(path_of(out), F_OK) != 0, "%s left %s", arguments, out);
}

static void change(const char *old, const char *text);

/* What is wrong with PEFT's folder, or does not fit the base, is said in one line. */
static void peft_refused(void) {
    static const struct { const char *old, *text, *what; } cases[] = {
        {"\"LORA\"", "\"LOHA\"", "peft_type is not known here but as LORA"},
        {"\"none\"", "\"all\"", "bias is not known here but as none"},
        {"\"r\": 3", "\"r\": 2", "is [3, 16], rank 2 beside this base needs [2, 16]"},
        {"\"r\": 3", "\"r\": 2.5", "r is no whole number from 1 to 65536"},
        {"\"lora_alpha\": 4", "\"lora_alpha\": 0", "lora_alpha is no number above 0"},
        {"\"use_rslora\": true", "\"use_rslora\": 1", "use_rslora is neither true nor false"},
        {"\"use_rslora\"", "\"use_dora\"", "use_dora is not known here but as null"},
        {"\"use_rslora\"", "\"fan_in_fan_out\"", "fan_in_fan_out comes twice"},
        {"\"lora_dropout\"", "\"lora_drops\"", "lora_drops is not understood"},
        {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"", "may have changed the base"},
        {"\"target_modules\"", "\"exclude_modules\"", "target_modules names nothing"},
        {"{", "[", "is no JSON object"}};
    char arguments[1200], command[1600];
    CONVERT("%s %s", model_of("llama"), path_of("base"));
    CONVERT("%s %s", model_of("gpt2"), path_of("other"));
    snprintf(arguments, sizeof arguments, "--base %s %s", path_of("base"), path_of("bad"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s && chmod -R u+w %s && "
                 "cp %s/adapter_config.json %s/config.json", path_of("bad"), model_of("llama_peft"),
                 path_of("bad"), path_of("bad"), path_of("bad"), path_of("bad"));
        CHECK(system(command) == 0);
        change(cases[i].old, cases[i].text);
        snprintf(command, sizeof command, "mv %s/config.json %s/adapter_config.json", path_of("bad"),
                 path_of("bad"));
        CHECK(system(command) == 0);
        refused("no", cases[i].what, arguments);
    }
    snprintf(arguments, sizeof arguments, "%s", model_of("llama_peft"));
    refused("no", "adapters need the checkpoint that they are for", arguments);
    snprintf(arguments, sizeof arguments, "--base %s %s", path_of("other"), model_of("llama_peft"));
    refused("no", "is not understood", arguments);
    snprintf(arguments, sizeof arguments, "--base %s %s", model_of("llama"), model_of("llama_peft"));
    refused("no", "the base of adapters is a checkpoint of ours", arguments);
    snprintf(arguments, sizeof arguments, "--base %s %s", path_of("base"), path_of("other"));
    refused("no", "--base is for adapters", arguments);
    snprintf(arguments, sizeof arguments, "--to peft --base %s %s", path_of("base"), path_of("base"));
    refused("no", "it has no adapters", arguments);
    snprintf(arguments, sizeof arguments, "--to hf --base %s %s", path_of("base"), model_of("llama_peft"));
    refused("no", "become adapters of ours", arguments);
    snprintf(arguments, sizeof arguments, "--context 4 --base %s %s", path_of("base"),
             model_of("llama_peft"));
    refused("no", "--context is for models, not for adapters", arguments);
}

/* ---- There and back ---- */

static int same_numbers(const char *a, const char *b, const char *prefix) {
    cmha_archive x, y;
    int same = 1;
    if (cmha_archive_open(&x, &context, a)) return CHECK_THAT(0, "%s", cmha_error(&context));
    if (cmha_archive_open(&y, &context, b)) return CHECK_THAT(0, "%s", cmha_error(&context));
    for (size_t i = 0; i < x.n_tensors; i++) {
        const cmha_archive_tensor *t = &x.tensors[i], *u = cmha_archive_find(&y, t->name);
        char name[128];
        static float p[NUMBERS], q[NUMBERS];
        snprintf(name, sizeof name, "%s%s", prefix, t->name);
        if (!u) u = cmha_archive_find(&y, name);
        if (!u && (strstr(t->name, "attn.bias") || strstr(t->name, "pooler"))) continue;
        same &= CHECK_THAT(u && u->count == t->count && u->rank == t->rank && t->count <= NUMBERS &&
                               !strcmp(u->dtype, t->dtype) &&
                               !memcmp(u->shape, t->shape, (size_t)t->rank * sizeof *t->shape),
                           "%s: %s", b, t->name);
        if (!u || t->count > NUMBERS || u->count != t->count) continue;
        CHECK_OK(cmha_archive_read(&x, t, p)), CHECK_OK(cmha_archive_read(&y, u, q));
        same &= CHECK_THAT(!memcmp(p, q, t->count * sizeof *p), "%s: %s is another", b, t->name);
    }
    cmha_archive_close(&x), cmha_archive_close(&y);
    return same;
}

/* Into our form, and back into theirs: the same tensors, and a config.json that means the same. */
static void back_again(void) {
    for (size_t i = 0; i < MODELS; i++) {
        char theirs[512], again[512], once[512];
        CONVERT("%s %s", model_of(models[i]), path_of("a"));
        const char *as = strcmp(models[i], "phi3") ? "" : "--as phi3 "; /* else Mistral's, the same */
        if (!strncmp(models[i], "roberta", 7)) as = "--as roberta "; /* else BERT's */
        const char *prefix = strncmp(models[i], "modern", 6) ? "bert." : "model.";
        CONVERT("--to hf %s--type f16 %s %s", as, path_of("a"), path_of("hf"));
        snprintf(theirs, sizeof theirs, "%s/model.safetensors", model_of(models[i]));
        snprintf(again, sizeof again, "%s/model.safetensors", path_of("hf"));
        same_numbers(theirs, again, strcmp(models[i], "gpt2") ? prefix : "transformer.");
        CONVERT("%s %s", path_of("hf"), path_of("b"));
        snprintf(once, sizeof once, "cmp %s %s", path_of("a"), path_of("b"));
        CHECK_THAT(system(once) == 0, "%s: another checkpoint after the way there and back", models[i]);
    }
}

/* How far two checkpoints' logits are apart at the most, on the tokens of a model. */
static double apart(const char *name, const char *a, const char *b) {
    cmha_real x[512], y[512];
    cmha_archive expected;
    double most = 0;
    open_expected(&expected, name);
    size_t n = compute(a, &expected, x, 512), m = compute(b, &expected, y, 512);
    CHECK(n && n == m);
    for (size_t i = 0; i < n && n == m; i++) most = fmax(most, fabs((double)x[i] - (double)y[i]));
    cmha_archive_close(&expected);
    return most;
}

/* A model of our own with rows of 32 and 64, and of 12, which stay F32, and with these other fields. */
static void make_own(const char *path, const char *fields) {
    cmha_model_config config;
    cmha_model model;
    cmha_config_defaults(cmha_model_table(), &config);
    CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &config,
                                 "n_layers=1 d_model=32 n_heads=4 n_kv_heads=2 d_ff=12 vocabulary=20 "
                                 "attention=rope layout=interleaved norm=rmsnorm activation=swiglu "
                                 "ffn_bias=0 init_std=0.3 tied=0"));
    CHECK_OK(cmha_config_set_all(&context, cmha_model_table(), &config, fields));
    CHECK_OK(cmha_model_init(&model, &context, &config));
    CHECK_OK(cmha_model_save(&model, path));
    cmha_model_close(&model);
}

/* The largest difference between the same tensors of two checkpoints, over the largest number; the names of
   parts: all, or those that have one in them. */
static double tensors_apart(const char *a, const char *b, const char *part) {
    cmha_archive x, y;
    double most = 0, largest = 0;
    if (!CHECK(!cmha_archive_open(&x, &context, a) && !cmha_archive_open(&y, &context, b))) return 1;
    for (size_t i = 0; i < x.n_tensors; i++) {
        const cmha_archive_tensor *t = &x.tensors[i], *u = cmha_archive_find(&y, t->name);
        static float p[NUMBERS], q[NUMBERS];
        if (!strstr(t->name, part) || !CHECK(u && u->count == t->count && t->count <= NUMBERS)) continue;
        CHECK_OK(cmha_archive_read(&x, t, p)), CHECK_OK(cmha_archive_read(&y, u, q));
        for (size_t j = 0; j < t->count; j++)
            most = fmax(most, fabs((double)p[j] - (double)q[j])), largest = fmax(largest, fabs((double)p[j]));
    }
    cmha_archive_close(&x), cmha_archive_close(&y);
    CHECK(largest > 0);
    return most / largest;
}

static void write_file(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, n, file) == n);
    if (file) fclose(file);
}

static char *read_file(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    static char bytes[65536];
    *n = 0;
    if (CHECK(file)) *n = fread(bytes, 1, sizeof bytes - 1, file), fclose(file);
    bytes[*n] = 0;
    return bytes;
}

/* Puts `text` in the place of `old` in the config.json of the folder "bad". */
static void change(const char *old, const char *text) {
    char config[8192];
    size_t n;
    snprintf(config, sizeof config, "%.4000s", read_file(path_of("bad/config.json"), &n));
    char *at = strstr(config, old);
    if (!CHECK_THAT(at, "config.json has no %s", old)) return;
    memmove(at + strlen(text), at + strlen(old), strlen(at + strlen(old)) + 1);
    memcpy(at, text, strlen(text));
    write_file(path_of("bad/config.json"), config, strlen(config));
}

/* A copy of a model's folder whose config.json has `text` in place of `old`. */
static const char *with(const char *name, const char *old, const char *text) {
    char command[1600];
    snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s && chmod -R u+w %s", path_of("bad"),
             model_of(name), path_of("bad"), path_of("bad"));
    CHECK(system(command) == 0);
    change(old, text);
    return path_of("bad");
}

/* A checkpoint that is packed at once holds the bytes of one that the library has packed. */
static void packed_at_once(void) {
    static const struct { const char *type; cmha_storage storage; } cases[] = {
        {"int8", CMHA_STORAGE_INT8}, {"int4", CMHA_STORAGE_INT4}, {"q4_k", CMHA_STORAGE_Q4_K}};
    static const char *const packed[] = {"of several blocks", "llama", "phi", "gpt2", "gemma3", "bert_mlm"};
    make_own(path_of("wide"), "d_model=72 d_ff=205");
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        for (size_t k = 0; k < 3; k++) {
            cmha_model at_once, later;
            char command[1200];
            const char *from = i ? model_of(packed[i]) : path_of("wide");
            CONVERT("%s %s", from, path_of("a"));
            CONVERT("--type %s %s %s", cases[k].type, from, path_of("p"));
            CHECK_OK(cmha_model_open(&later, &context, path_of("a")));
            CHECK_OK(cmha_model_pack(&later, cases[k].storage));
            CHECK_OK(cmha_model_open(&at_once, &context, path_of("p")));
            CHECK(at_once.packed.storage == cases[k].storage);
            CHECK_OK(cmha_model_save(&later, path_of("later")));
            CHECK_OK(cmha_model_save(&at_once, path_of("at_once")));
            snprintf(command, sizeof command, "cmp %s %s", path_of("later"), path_of("at_once"));
            CHECK_THAT(system(command) == 0, "%s as %s: other bytes", packed[i], cases[k].type);
            cmha_model_close(&later), cmha_model_close(&at_once);
        }
    refused("none", "whole models are packed: --type int4", "--to gguf --type int4 tests/models/llama");
    refused("none", "only checkpoints of whole models", "--type int8 --base x tests/models/llama_peft");
}

/* A copy of a GGUF file in which all matrices are Q4_K of any bits, but factors of each 256; the last one is
   the half `last`, if not 0. */
static void as_q4_k(const char *from, const char *to, uint32_t last) {
    static float x[1 << 18];
    static unsigned char bytes[1 << 20];
    char error[GGUF_ERROR] = "";
    gguf_writer w;
    gguf_file g;
    FILE *file = fopen(to, "wb");
    memset(&w, 0, sizeof w);
    if (!CHECK_THAT(gguf_open(&g, from, error) && file, "%s", error)) return;
    for (size_t i = 0; i < g.n_values; i++) gguf_put_value(&w, &g.values[i]);
    for (size_t i = 0; i < g.n_tensors; i++) {
        const gguf_tensor *t = &g.tensors[i];
        size_t shape[2] = {(size_t)t->shape[0], (size_t)t->shape[1]};
        gguf_put_tensor(&w, t->name, shape, t->rank, t->rank == 2 ? GGUF_AS_Q4_K : GGUF_AS_F32);
    }
    CHECK(gguf_put_head(&w, file));
    for (size_t i = 0; i < g.n_tensors; i++) {
        const int matrix = g.tensors[i].rank == 2;
        const size_t count = (size_t)g.tensors[i].count, n = matrix ? count / 256 * 144 : 4 * count;
        if (!CHECK(count <= sizeof x / sizeof *x && n <= sizeof bytes - GGUF_ALIGNMENT)) break;
        CHECK(gguf_read_tensor(&g, &g.tensors[i], x, error));
        if (!matrix) gguf_encode(GGUF_AS_F32, x, count, bytes);
        for (size_t k = 0; k < n && matrix; k++) bytes[k] = (unsigned char)check_below(256);
        for (size_t k = 0; k < n && matrix; k += 144) {
            gguf_store(bytes + k, gguf_to_half((float)(1e-4 * (check_random() + 1.1))), 2);
            gguf_store(bytes + k + 2, gguf_to_half((float)(1e-3 * (check_random() + 1.1))), 2);
        }
        if (matrix && last) gguf_store(bytes + n - 142, last, 2);
        memset(bytes + n, 0, gguf_padding(n));
        CHECK(fwrite(bytes, 1, n + gguf_padding(n), file) == n + gguf_padding(n));
    }
    fclose(file), gguf_close(&g);
}

/* How many numbers of a parameter's packed rows are not those of its floats. */
static size_t numbers_apart(const cmha_parameter *p, const cmha_real *want) {
    const cmha_packed *packed = p->tensor.packed;
    const size_t first = p->matrix.rank ? (p->matrix.size - p->tensor.size) / packed->n_in : 0;
    cmha_real *x = check_zeros(p->tensor.size);
    size_t wrong = 0;
    cmha_unpack(packed, first, first + p->tensor.size / packed->n_in, x);
    for (size_t i = 0; i < p->tensor.size; i++) wrong += !(x[i] >= want[i] && x[i] <= want[i]);
    free(x);
    return wrong;
}

/* A file's Q4_K is packed as it is: each number is the float that the file makes, wherever its row goes. */
static void packed_exactly(void) {
    static const char *const options[] = {"layout=half n_kv_heads=4", "layout=half", "n_kv_heads=1 tied=1"};
    char fields[100], line[600];
    for (size_t i = 0; i < 3; i++) {
        cmha_model floats, packed;
        size_t matrices = 0, wrong = 0;
        snprintf(fields, sizeof fields, "d_model=256 d_ff=512 %s", options[i]);
        make_own(path_of("own"), fields);
        CONVERT("--to gguf %s %s", path_of("own"), path_of("f.gguf"));
        as_q4_k(path_of("f.gguf"), path_of("k.gguf"), 0);
        CONVERT("%s %s", path_of("k.gguf"), path_of("floats"));
        CONVERT("--type q4_k %s %s", path_of("k.gguf"), path_of("p"));
        CHECK_OK(cmha_model_open(&floats, &context, path_of("floats")));
        CHECK_OK(cmha_model_open(&packed, &context, path_of("p")));
        for (size_t k = 0; k < packed.parameters.count; k++) {
            if (!packed.parameters.list[k].tensor.packed) continue;
            wrong += numbers_apart(&packed.parameters.list[k], floats.parameters.list[k].tensor.data);
            matrices++;
        }
        CHECK_THAT(matrices > 7 && !wrong, "%s: %zu numbers of %zu matrices differ", fields, wrong, matrices);
        CHECK(packed.packed.storage == CMHA_STORAGE_Q4_K);
        cmha_model_close(&floats), cmha_model_close(&packed);
    }
    as_q4_k(path_of("f.gguf"), path_of("k.gguf"), 0x7E00);
    snprintf(line, sizeof line, "--type q4_k %s", path_of("k.gguf"));
    refused("none", "has a number that q4_k cannot hold", line);
}

/* As GGUF in every storage, and read again. What F32 holds comes back bit for bit, also where a head of RoPE
   has its pairs otherwise there; else as near as the storage is fine. */
static void gguf_and_back(void) {
    static const struct { const char *type; double bound; } cases[] = {
        {"f32", 0}, {"f16", 1.0 / 2048}, {"bf16", 1.0 / 256}, {"q8_0", 0.52 / 127}};
    static const char *const exact[] = {"llama", "grouped", "biased", "qwen2", "qwen3", "gemma2", "olmo2",
                                        "phi3", "smollm3", "granite", "stablelm", "stablelm_beside", "neox",
                                        "neox_serial", "phi", "gemma3", "gpt2", "bert", "nomic"};
    static const char *const own_scale = "\"query_pre_attn_scalar\": 9";
    char line[600];
    make_own(path_of("own"), "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CONVERT("--to gguf --type %s %s %s", cases[i].type, path_of("own"), path_of("g"));
        CONVERT("%s %s", path_of("g"), path_of("b"));
        double most = tensors_apart(path_of("own"), path_of("b"), "");
        CHECK_THAT(most <= cases[i].bound && (most > 0 || !i), "as %s: %g apart", cases[i].type, most);
        CHECK(tensors_apart(path_of("own"), path_of("b"), "ffn.w2") <= 0);
        CHECK(tensors_apart(path_of("own"), path_of("b"), "ln") <= 0);
    }
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        int gemma = !strcmp(exact[i], "gemma2"); /* whose scores llama.cpp scales by the width of a head */
        const char *path = model_of(exact[i]), *as = strcmp(exact[i], "phi3") ? "" : "--as phi3 ";
        if (gemma) path = with("gemma2", own_scale, "\"query_pre_attn_scalar\": 6");
        CONVERT("%s %s", path, path_of("a"));
        CONVERT("--to gguf %s%s %s", as, path_of("a"), path_of("g"));
        CONVERT("%s %s", path_of("g"), path_of("b")); /* interleaved, and llama3's frequencies are a table */
        double most = apart(exact[i], path_of("a"), path_of("b"));
        CHECK_THAT(most <= 5e-6, "%s: %g apart", exact[i], most);
    }
    CONVERT("--to hf %s %s", path_of("own"), path_of("hf")); /* interleaved to half, and back by GGUF */
    CONVERT("--to gguf %s %s", path_of("hf"), path_of("g"));
    CONVERT("%s %s", path_of("g"), path_of("b"));
    CHECK(tensors_apart(path_of("own"), path_of("b"), "") <= 0);
    refused("none", "score_scale", "--to gguf tests/models/partial");
    refused("none", "score_scale", "--to gguf tests/models/gemma2");
    CONVERT("%s %s", model_of("gemma2"), path_of("gemma2"));
    snprintf(line, sizeof line, "--to gguf %s", path_of("gemma2"));
    refused("none", "score_scale", line);
    refused("none", "has no form there", "--to gguf tests/models/gptj");
    refused("none", "not written", "--to hf --as mamba tests/models/llama");
    refused("none", "qk_norm = none has no form there", "--to hf --as qwen3 tests/models/llama");
    refused("none", "window = 5", "--to gguf tests/models/mistral");
    refused("none", "classes = 3 has no form there", "--to gguf tests/models/bert_classes");
    for (int i = 0; i < 2; i++) { /* what has a window is Mistral's there, whose projections have no biases */
        make_own(path_of("biased"), i ? "window=5 ffn_bias=1" : "window=5 attention_bias=1");
        snprintf(line, sizeof line, "--to hf %s", path_of("biased"));
        refused("none", "window beside attention_bias or ffn_bias", line);
    }
}

/* Copies a GGUF file of this model with another value of a key, or (NULL) with that key besides. */
static void with_value(const char *path, const char *to, const char *key, void (*put)(gguf_writer *w)) {
    char error[GGUF_ERROR], *rest;
    gguf_writer w;
    gguf_file g;
    size_t n = 0;
    memset(&w, 0, sizeof w);
    if (!CHECK_THAT(gguf_open(&g, path, error), "%s", error)) return;
    for (size_t i = 0; i < g.n_values; i++)
        if (!key || strcmp(g.values[i].key, key)) gguf_put_value(&w, &g.values[i]);
    put(&w);
    qsort(g.tensors, g.n_tensors, sizeof *g.tensors, gguf_by_place);
    for (size_t i = 0; i < g.n_tensors; i++) {
        const gguf_tensor *t = &g.tensors[i];
        const size_t shape[2] = {(size_t)t->shape[0], (size_t)t->shape[1]};
        gguf_put_tensor(&w, t->name, shape, t->rank, t->as);
    }
    rest = read_file(path, &n);
    FILE *file = fopen(to, "wb");
    CHECK(file && gguf_put_head(&w, file) &&
          fwrite(rest + g.data, 1, n - (size_t)g.data, file) == n - (size_t)g.data);
    if (file) fclose(file);
    gguf_close(&g);
}

#define PATTERN "modern-bert.attention.sliding_window_pattern"
static void put_flags(gguf_writer *w) {
    gguf_put_array(w, PATTERN, GGUF_BOOL, 4);
    for (uint64_t i = 0; i < 4; i++) gguf_put_number(w, &w->values, i % 3 != 0, 1);
}
static void put_counts(gguf_writer *w) {
    gguf_put_array(w, PATTERN, GGUF_U32, 4);
    for (uint64_t i = 0; i < 4; i++) gguf_put_number(w, &w->values, i % 3 != 0, 4);
}
static void put_every(gguf_writer *w) { gguf_put_whole(w, PATTERN, 0); }
static void put_second(gguf_writer *w) { gguf_put_whole(w, PATTERN, 2); }
static void put_narrow(gguf_writer *w) { gguf_put_whole(w, "modern-bert.attention.sliding_window", 1); }
static void put_bounds(gguf_writer *w) {
    gguf_put_text(w, "llama.rope.scaling.type", "yarn", 4);
    gguf_put_real(w, "llama.rope.scaling.factor", 2);
    gguf_put_real(w, "llama.rope.scaling.yarn_beta_fast", 16);
    gguf_put_real(w, "llama.rope.scaling.yarn_attn_factor", 1.5);
}
static void put_source(gguf_writer *w) { gguf_put_text(w, "quantize.imatrix.file", "a", 1); }
static void put_base(gguf_writer *w) { gguf_put_real(w, "gemma3.rope.freq_base_swa", 500); }

static cmha_model_config config_of(const char *path) {
    cmha_model_config config;
    CHECK_OK(cmha_config_read(&context, path, &config, NULL));
    return config;
}

/* ModernBERT: windows, their pattern and base, no head; other patterns than its own are read. */
static void gguf_modernbert(void) {
    static const struct { void (*put)(gguf_writer *w); const char *kinds; } patterns[] = {
        {put_flags, "gll"}, {put_every, "l"}, {put_second, "gl"}};
    CONVERT("%s %s", model_of("modernbert"), path_of("a"));
    CONVERT("--to gguf %s %s", path_of("a"), path_of("g"));
    CHECK_THAT(strstr(said, "left out: the head for hidden tokens"), "%s", said);
    CONVERT("%s %s", path_of("g"), path_of("b"));
    CHECK(tensors_apart(path_of("b"), path_of("a"), "") <= 0);
    cmha_model_config a = config_of(path_of("a")), b = config_of(path_of("b"));
    CHECK(a.head_transform && !b.head_transform && !b.head_bias && b.window == a.window && b.window == 4);
    CHECK(b.base >= a.base && b.base <= a.base);
    CHECK(b.local_base >= a.local_base && b.local_base <= a.local_base);
    CHECK(!strcmp(a.layer_kinds, b.layer_kinds) && !b.first_norm && !b.causal);
    CHECK(b.activation == a.activation);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        with_value(path_of("g"), path_of("p"), PATTERN, patterns[i].put);
        CONVERT("%s %s", path_of("p"), path_of("b"));
        b = config_of(path_of("b"));
        CHECK_THAT(!strcmp(b.layer_kinds, patterns[i].kinds) && b.window == 4, "%s", b.layer_kinds);
    }
    with_value(path_of("g"), path_of("p"), "modern-bert.attention.sliding_window", put_narrow);
    for (int round = 0; round < 2; round++) { /* a token that sees itself alone stays so */
        CONVERT("%s %s", path_of("p"), path_of("b"));
        CHECK(config_of(path_of("b")).window == 1);
        CONVERT("--to gguf %s %s", path_of("b"), path_of("p"));
    }
    with_value(path_of("g"), path_of("p"), PATTERN, put_counts);
    refused("none", "sliding_window_pattern is not understood", path_of("p"));
    refused("none", "norm = layernorm has no form there", "--to gguf tests/models/modernbert_biased");
    refused("none", "activation = geglu_erf", "--to gguf tests/models/nomic_biased");
}

/* What llama.cpp asks for besides: an output matrix, zeros as biases; and what it does not know. */
static void gguf_asked(void) {
    static const char *const neox = "norm=layernorm activation=gelu_erf ffn_bias=1 n_kv_heads=0 layout=half";
    static const struct { const char *as, *fields, *why; } none[] = {
        {"qwen3", "qk_norm=rms_gain attention_bias=1", "attention_bias = 1 has no form there"},
        {"qwen3", "qk_norm=rms_gain qkv_bias=1", "qkv_bias = 1 has no form there"},
        {"llama", "rope_scaling=yarn rope_factor=2 rope_length=64 rope_fast=16",
         "rope_fast = 16, rope_slow = 1"}};
    char fields[200], line[600];
    size_t n;
    snprintf(fields, sizeof fields, "%s tied=1 parallel=norms", neox);
    make_own(path_of("a"), fields);
    CONVERT("--to gguf --as gptneox %s %s", path_of("a"), path_of("g"));
    CONVERT("%s %s", path_of("g"), path_of("b"));
    cmha_model_config b = config_of(path_of("b"));
    CHECK(!b.tied && b.attention_bias);
    CHECK_THAT(apart("llama", path_of("a"), path_of("b")) <= 1e-6, "%g apart",
               apart("llama", path_of("a"), path_of("b")));
    CHECK(tensors_apart(path_of("a"), path_of("b"), "tok_emb") <= 0);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        make_own(path_of("a"), none[i].fields);
        snprintf(line, sizeof line, "--to gguf --as %s %s", none[i].as, path_of("a"));
        refused("none", none[i].why, line);
    }
    make_own(path_of("a"), "max_positions=64");
    CONVERT("--to gguf %s %s", path_of("a"), path_of("g"));
    with_value(path_of("g"), path_of("p"), NULL, put_bounds);
    CONVERT("%s %s", path_of("p"), path_of("b"));
    b = config_of(path_of("b"));
    CHECK(b.rope_fast >= 16 && b.rope_fast <= 16 && b.score_scale > 0);
    with_value(path_of("g"), path_of("p"), NULL, put_source);
    CONVERT("%s %s", path_of("p"), path_of("b"));
    make_own(path_of("a"), "rope_scaling=llama3 rope_factor=8 rope_length=16 rope_fast=4");
    CONVERT("--to gguf %s %s", path_of("a"), path_of("g"));
    char *bytes = read_file(path_of("g"), &n);
    memset(bytes + n - GGUF_ALIGNMENT, 0, 4); /* the last tensor's first number */
    write_file(path_of("p"), bytes, n);
    refused("none", "rope_freqs.weight has a number that is not above 0", path_of("p"));
    CONVERT("--to gguf %s %s", model_of("gemma3"), path_of("g"));
    with_value(path_of("g"), path_of("p"), "gemma3.rope.freq_base_swa", put_base);
    CONVERT("%s %s", path_of("p"), path_of("b"));
    b = config_of(path_of("b"));
    CHECK(b.local_base >= 500 && b.local_base <= 500);
}

/* ---- RoPE is ComplexFormer ---- */

/* Adds to one number of a tensor of a checkpoint. */
static void move(const char *path, const char *name, size_t at, float by) {
    cmha_archive a;
    FILE *file;
    float x = 0;
    if (!CHECK(!cmha_archive_open(&a, &context, path)) || !CHECK((file = fopen(path, "r+b")) != NULL)) return;
    const cmha_archive_tensor *t = cmha_archive_find(&a, name);
    if (CHECK(t && at < t->count)) {
        long place = (long)(a.data_begin + t->begin) + 4 * (long)at;
        CHECK(!fseek(file, place, SEEK_SET) && fread(&x, 4, 1, file) == 1);
        x += by;
        CHECK(!fseek(file, place, SEEK_SET) && fwrite(&x, 4, 1, file) == 1);
    }
    cmha_archive_close(&a), fclose(file);
}

static void complexformer(void) {
    static const char *const kinds[] = {"cmha-fixed", "cmha", "cmha-shared"};
    char line[1600];
    for (size_t i = 1; i < MODELS; i++) { /* the RoPE models */
        if (i < TURNED && (i >= ENCODERS || strstr(models[i], "bert"))) continue;
        CONVERT("%s %s", model_of(models[i]), path_of("rope"));
        for (size_t k = 0; k < 3; k++) {
            CONVERT("--attention %s %s %s", kinds[k], path_of("rope"), path_of(kinds[k]));
            double most = apart(models[i], path_of("rope"), path_of(kinds[k]));
            CHECK_THAT(most <= 0, "%s as %s: %g apart", models[i], kinds[k], most);
            CONVERT("--attention rope %s %s", path_of(kinds[k]), path_of("back"));
            CHECK(apart(models[i], path_of("rope"), path_of("back")) <= 0);
        }
        CONVERT("--to hf %s %s", path_of("cmha"), path_of("hf"));
        CONVERT("--to hf %s %s", path_of("rope"), path_of("of"));
        snprintf(line, sizeof line, "diff -r %s %s && rm -r %s", path_of("hf"), path_of("of"), path_of("hf"));
        CHECK_THAT(system(line) == 0, "%s: a ComplexFormer in their form is another", models[i]);
    }
    CONVERT("%s %s", model_of("gpt2"), path_of("gpt2"));
    CONVERT("--attention cmha %s %s", path_of("gpt2"), path_of("cmha"));
    CHECK(apart("gpt2", path_of("gpt2"), path_of("cmha")) <= 1e-5);
    CONVERT("--attention cmha %s %s", model_of("llama"), path_of("cmha"));
    move(path_of("cmha"), "blocks.1.attn.b", 5, 0.25f); /* head 1, pair 1 of 4 */
    snprintf(line, sizeof line, "--attention rope %s", path_of("cmha"));
    refused("none", "layer 1, head 1 has moved, b of pair 1 is 0.25", line);
    snprintf(line, sizeof line, "--to hf %s", path_of("cmha"));
    refused("none", "head 1 has moved", line);
    refused("none", "no weights of another kind", "--attention alibi tests/models/llama");
    refused("none", "there is no kind", "--attention complex tests/models/llama");
    refused("none", "no positions", "--attention rope tests/models/gpt2");
}

/* ---- What is not right ---- */

/* Settings that change what a model computes, or its shapes, are named. */
static void settings(void) {
    static const struct { const char *name, *old, *text, *says;
    } cases[] = {
        {"llama", "\"use_cache\"", "\"use_everything\"", "use_everything is not understood"},
        {"llama", "\"silu\"", "\"gelu\"", "hidden_act"},
        {"llama", "\"use_cache\"", "\"hidden_size\"", "hidden_size comes twice"},
        {"llama", "\"hidden_size\": 16", "\"hidden_size\": 32",
         "embed_tokens.weight is [20, 16], this model needs [20, 32]"},
        {"llama", "\"hidden_size\": 16", "\"hidden_size\": 1e300", "d_model"},
        {"llama", "\"hidden_size\": 16", "\"hidden_size\": \"16x\"", "d_model"},
        {"llama", "\"hidden_size\": 16", "\"hidden_size\": [16]", "hidden_size is not understood"},
        {"llama", "\"hidden_size\": 16,", "", "config.json has no hidden_size"},
        {"llama", "\"num_attention_heads\": 2", "\"num_attention_heads\": 0", "n_heads"},
        {"llama", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "missing tensors: model.layers.2."},
        {"llama", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "not understood: model.layers.1."},
        {"llama", "\"vocab_size\": 20", "\"vocab_size\": 2147483647", "this model needs [2147483647, 16]"},
        {"llama", "\"tie_word_embeddings\": false", "\"attention_bias\": true",
         "missing tensors: model.layers.0.self_attn.q_proj.bias"},
        {"llama", "LlamaForCausalLM", "LlamaForTokenClassification", "LlamaForTokenClassification"},
        {"llama", "\"model_type\": \"llama\"", "\"model_type\": \"mamba\"", "\"mamba\" are not known here"},
        {"llama", "{", "[{", "no JSON object"},
        {"llama", "{", "", "no JSON object"},
        {"llama", "\"use_cache\": true", "\"rope_scaling\": {\"type\": \"longrope\"}",
         "short_factor is no list"},
        {"llama", "\"use_cache\": true", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 0}",
         "factor of 0"},
        {"llama", "\"use_cache\": true", "\"rope_scaling\": {\"type\": \"linear\", \"short_factor\": [1]}",
         "short_factor"},
        {"llama", "\"use_cache\": true", "\"rope_scaling\": 7", "rope_scaling is no object"},
        {"llama", "\"use_cache\": true", "\"rope_scaling\": {\"factor\": 4}", "a factor, but no type"},
        {"llama", "\"use_cache\": true", "\"rope_scaling\": {\"type\": \"linear\"}",
         "linear scaling names no factor"},
        {"llama", "\"use_cache\": true", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
         "\"attention_factor\": -1}", "attention_factor is not above 0"},
        {"mistral", "\"sliding_window\": 5", "\"sliding_window\": -1", "sliding_window is less than 0"},
        {"gemma2", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": null",
         "missing tensors: lm_head.weight"},
        {"llama", "\"use_cache\": true", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}", ""},
        {"llama", "\"use_cache\": true", "\"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         "some layers"},
        {"llama", "\"use_cache\": true", "\"layer_types\": \"none\"", "layer_types"},
        {"llama", "\"use_cache\": true", "\"layer_types\": [\"full_attention\"]", "not as long as"},
        {"llama", "\"use_cache\": true", "\"layer_types\": [\"full_attention\", 1]", "a layer of the type"},
        {"olmo2", "\"use_cache\": true", "\"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         "not known of olmo2"},
        {"smollm3", "[\n  1,", "[\n  \"1\",", "no_rope_layers has no numbers"},
        {"smollm3", "\"use_sliding_window\": false", "\"use_sliding_window\": true", "use_sliding_window"},
        {"gemma2", "\"query_pre_attn_scalar\": 9", "\"query_pre_attn_scalar\": 0", "score_scale"},
        {"gemma2", "gelu_pytorch_tanh\",\n \"max", "silu\",\n \"max", "hidden_act"},
        {"gemma3", "\"sliding_window\": 4", "\"sliding_window\": 0", "no window is given"},
        {"gemma3", "\"rope_local_base_freq\": 10000.0", "\"rope_local_base_freq\": 1e-40",
         "local_base is less than 1"},
        {"granite", "\"logits_scaling\": 4.0", "\"logits_scaling\": 0", "logits are divided by 0"},
        {"stablelm", "\"qk_layernorm\": false", "\"qk_layernorm\": true", "qk_layernorm"},
        {"neox", "\"use_parallel_residual\": true", "\"use_parallel_residual\": \"x\"", "use_parallel"},
        {"neox", "\"rotary_pct\": 0.25", "\"rotary_pct\": \"a\"", "rotary_pct is not understood"},
        {"phi3", "\"use_cache\": true", "\"rope_scaling\": {\"type\": \"longrope\", "
         "\"short_factor\": [1, 1], \"long_factor\": [1]}", "one for each of 1 pairs"},
        {"phi3_long", "16.0", "0.0", "long_factor is no list"},
        {"phi3_long", "1.25,", "", "short_factor is no list"},
        {"phi3_long", "1.25", "\"a\"", "short_factor is no list"},
        {"phi3_long", "\"type\": \"longrope\"", "\"type\": \"longrope\", \"short_mscale\": 1.1",
         "short_mscale is not understood"},
        {"phi3_long", "\"type\": \"longrope\"", "\"type\": \"linear\", \"factor\": 2",
         "short_factor is not understood"},
        {"modernbert", "\"mlp_bias\": false", "\"mlp_bias\": true", "mlp_bias is not known here but as 0"},
        {"modernbert", "\"classifier_bias\": false", "\"classifier_bias\": true", "classifier_bias"},
        {"modernbert", "classifier_activation\": \"gelu", "classifier_activation\": \"silu",
         "classifier_activation is not known here but as hidden_activation"},
        {"modernbert", "hidden_activation\": \"gelu", "hidden_activation\": \"relu", "activation \"relu\""},
        {"modernbert", "\"decoder_bias\": true", "\"decoder_bias\": false", "not understood: decoder.bias"},
        {"modernbert", "every_n_layers\": 3", "every_n_layers\": 0", "every_n_layers is less than 1"},
        {"modernbert", "\"local_attention\": 6", "\"local_attention\": \"6\"", "local_attention is not"},
        {"modernbert", "ModernBertForMaskedLM", "ModernBertForSequenceClassification",
         "ModernBertForSequenceClassification"},
        {"modernbert", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false",
         "tie_word_embeddings"},
        {"modernbert", "\"local_rope_theta\": 100.0", "\"local_rope_theta\": null", ""},
        {"modernbert_biased", "\"full_attention\": {", "\"all\": {", "by the kind of layer"},
        {"modernbert_biased", "\"sliding_attention\": {", "\"sliding_attention\": {\"factor\": 2,",
         "factor of the layers that slide"},
        {"modernbert_biased", "\"sliding_attention\": {", "\"full_attention\": {",
         "full_attention of rope_parameters"},
        {"nomic", "\"mlp_fc2_bias\": false", "\"mlp_fc2_bias\": true", "mlp_fc2_bias"},
        {"nomic", "\"prenorm\": false", "\"prenorm\": true", "prenorm"},
        {"nomic", "\"parallel_block\": false", "\"parallel_block\": true", "parallel_block"},
        {"nomic", "\"use_rms_norm\": false", "\"use_rms_norm\": true", "use_rms_norm"},
        {"nomic", "\"causal\": false", "\"causal\": true", "causal"},
        {"nomic", "interleaved\": false", "interleaved\": true", "rotary_emb_interleaved"},
        {"nomic", "scale_base\": null", "scale_base\": 2", "rotary_emb_scale_base is not understood"},
        {"nomic", "fraction\": 1.0", "fraction\": 0.0", " 0 of 4 numbers of a head turn"},
        {"nomic", "\"swiglu\"", "\"gelu\"", "an activation \"gelu\""},
        {"nomic", "\"causal\": false", "\"num_experts\": 8", "num_experts is not understood"},
        {"nomic", "NomicBertModel", "NomicBertForPreTraining", "NomicBertForPreTraining"},
        {"llama", "\"use_cache\": true", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}",
         "factor is not understood"},
        {"partial", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 1.5",
         "numbers of a head turn"},
        {"partial", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0.01", " 0 of "},
        {"mistral", "\"sliding_window\": 5", "\"sliding_window\": \"5\"", "window is not understood"},
        {"mistral", "\"sliding_window\": 5", "\"sliding_window\": 1e30", "window"},
        {"qwen2", "\"use_sliding_window\": false", "\"use_sliding_window\": true", "qwen2"},
        {"qwen2", "\"use_sliding_window\": false", "\"use_sliding_window\": {}", "window is not understood"},
        {"qwen2", "\"use_sliding_window\": false", "\"use_sliding_window\": [1]", "window is not understood"},
        {"qwen2", "\"use_sliding_window\": false",
         "\"use_sliding_window\": false, \"attention_bias\": true", ""}, /* which it does not read */
        {"llama", "\"use_cache\": true", "\"sliding_window\": 5", "sliding_window is not known of llama"},
        {"phi3", "\"use_cache\": true", "\"attention_bias\": true",
         "attention_bias is not known here but as 0"},
        {"gptj", " \"rotary_dim\": 4,\n", "", "64 of 8 numbers of a head turn"},
        {"neox", "\"use_cache\": true", "\"rope_theta\": 10001", "differs from rotary_emb_base"},
        {"neox", "\"use_cache\": true", "\"partial_rotary_factor\": 0.5", "differs from rotary_emb_base"},
        {"neox", "\"use_cache\": true", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}",
         "where a part of each head turns"},
        {"gemma3", "\"rope_type\": \"linear\",", "\"rope_type\": \"yarn\", \"attention_factor\": 1,",
         "where some layers slide"},
        {"phi", "\"use_cache\": true", "\"rope_parameters\": {\"partial_rotary_factor\": 0.75}",
         "partial_rotary_factor is 0.75 here, and 0.5 elsewhere"},
        {"gpt2", "\"n_ctx\": 16", "\"scale_attn_weights\": false", "scale_attn_weights"},
        {"gpt2", "\"gelu_new\"", "\"silu\"", "an activation \"silu\""},
        {"bert", "\"absolute\"", "\"relative_key\"", "position_embedding_type"},
        {"bert", "\"BertModel\"", "\"BertForTokenClassification\"", "BertForTokenClassification"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!*cases[i].says || !strcmp(cases[i].says, "qwen2")) { /* qwen2: of one layer the first has none */
            CONVERT("%s %s", with(cases[i].name, cases[i].old, cases[i].text), path_of("none"));
            continue;
        }
        refused("none", cases[i].says, with(cases[i].name, cases[i].old, cases[i].text));
    }
    (void)with("qwen2", "\"use_sliding_window\": false", "\"use_sliding_window\": true");
    change("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2"); /* the second of two has a window */
    refused("none", "missing tensors: model.layers.1.", path_of("bad"));
    static char deep[200001];
    memset(deep, '[', sizeof deep - 1);
    (void)with("llama", "{", "{");
    write_file(path_of("bad/config.json"), deep, sizeof deep - 1);
    refused("none", "no JSON object", path_of("bad"));
}

/* What a key means that is absent, null, elsewhere, or not read: each family says otherwise. */
static void usual_settings(void) {
    static const char *const cache = "\"use_cache\": true";
    static const struct { const char *name, *old, *text; size_t window, turned; double scale; } rows[] = {
        {"mistral", "\"sliding_window\": 5,", "", 4096, 0, 0},
        {"mistral", "\"sliding_window\": 5,", "\"sliding_window\": null,", 0, 0, 0},
        {"mistral", cache, "\"max_window_layers\": 28", 5, 0, 0},
        {"qwen3", "\"use_sliding_window\": false,\n \"max_window_layers\": 2",
         "\"use_sliding_window\": true,\n \"max_window_layers\": 0", 4096, 0, 0},
        {"qwen2", "\"max_window_layers\": 1", "\"max_window_layers\": 0", 0, 0, 0}, /* not used */
        {"llama", cache, "\"sliding_window\": 5, \"use_sliding_window\": false", 0, 0, 0},
        {"phi3", cache, "\"attention_bias\": false, \"auto_map\": {\"a\": \"b\"}", 5, 2, 0},
        {"phi3", cache, "\"full_attn_mod\": 1, \"interpolate_factor\": 1, \"lm_head_bias\": false", 5, 2, 0},
        {"phi", "\"partial_rotary_factor\": 0.5",
         "\"rope_parameters\": {\"partial_rotary_factor\": 0.75, \"rope_theta\": 1e4}", 0, 6, 0},
        {"stablelm", "\"partial_rotary_factor\": 0.5",
         "\"rope_parameters\": {\"partial_rotary_factor\": 1}", 0, 0, 0},
        {"neox", "\"rotary_pct\": 0.25,", "\"rope_parameters\": {\"partial_rotary_factor\": 0.75},", 0, 6, 0},
        {"neox", cache, "\"rope_theta\": 10000, \"partial_rotary_factor\": 0.25", 0, 2, 0},
        {"granite", cache,
         "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1}",
         0, 0, 0.25 / 1.29647699273}}; /* (0.1 ln 4 + 1)^2 */
    static const char *const ids[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    char line[600];
    size_t n;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CONVERT("%s %s", with(rows[i].name, rows[i].old, rows[i].text), path_of("usual"));
        cmha_model_config c = config_of(path_of("usual"));
        CHECK_THAT(c.window == rows[i].window && c.rotary_dims == rows[i].turned &&
                       fabs(c.score_scale - rows[i].scale) < 1e-7,
                   "%s: window %zu, %zu numbers turn, scores times %g", rows[i].text, c.window, c.rotary_dims,
                   c.score_scale);
    }
    /* null is false, also where what is absent is true */
    CONVERT("%s %s", with("neox_serial", "residual\": false", "residual\": null"), path_of("usual"));
    CHECK(config_of(path_of("usual")).parallel == CMHA_PARALLEL_NONE);
    /* YaRN of a part of each head, whose factor is 1, goes back as it came */
    CONVERT("%s %s", with("neox", cache, "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
                          "\"attention_factor\": 1}"), path_of("usual"));
    CONVERT("--to hf %s %s", path_of("usual"), path_of("turns"));
    CONVERT("%s %s", path_of("turns"), path_of("again"));
    cmha_model_config was = config_of(path_of("usual")), is = config_of(path_of("again"));
    CHECK(is.rope_scaling == CMHA_ROPE_SCALING_YARN && fabs(is.score_scale - was.score_scale) < 1e-15);
    CHECK(is.rotary_dims == was.rotary_dims && tensors_apart(path_of("usual"), path_of("again"), "") <= 0);
    make_own(path_of("own"), "rotary_dims=4 rope_scaling=yarn rope_factor=2 rope_length=64");
    snprintf(line, sizeof line, "--to hf %s", path_of("own"));
    refused("none", "yarn has no form there beside rotary_dims", line);
    make_own(path_of("own"), "layout=half rope_scaling=linear rope_factor=2");
    snprintf(line, sizeof line, "--to hf --as phi3 %s", path_of("own"));
    refused("none", "rope_scaling has no form there", line);
    /* an id of the family's first model may be beyond this vocabulary */
    CONVERT("--to hf %s %s", model_of("phi3"), path_of("ids"));
    for (size_t i = 0; i < 3; i++) {
        char *at = strstr(read_file(path_of("ids/config.json"), &n), ids[i]);
        CHECK(at && !strncmp(at + strlen(ids[i]), "\":\tnull", 7));
    }
    /* who divides by a cap asks for another number than 0 */
    CONVERT("--to hf %s %s", model_of("gemma3"), path_of("ids"));
    CHECK(strstr(read_file(path_of("ids/config.json"), &n), "final_logit_softcapping\":\tnull"));
    snprintf(line, sizeof line, "--to gguf %s",
             with("gemma2", "\"attn_logit_softcapping\": 2.0", "\"attn_logit_softcapping\": null"));
    refused("none", "score_softcap = 0 has no form there", line);
    (void)with("llama", "{", "{");
    write_file(path_of("bad/tokenizer.model"), "", 0);
    refused("none", "has its tokenizer only as tokenizer.model", path_of("bad"));
    snprintf(line, sizeof line, "--tokenizer none %s", path_of("bad"));
    CONVERT("%s %s", line, path_of("usual"));
}

static void put_cls(gguf_writer *w) { gguf_put_whole(w, "bert.pooling_type", 2); }

/* How a model's vectors are made of its states is said, where it is not their mean. */
static void vectors(void) {
    static const char *const modules =
        "[{\"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"}, "
        "{\"path\": \"1\", \"type\": \"sentence_transformers.models.Pooling\"}, "
        "{\"path\": \"2\", \"type\": \"sentence_transformers.models.Dense\"}]";
    static const struct { const char *pooling, *says; } rows[] = {
        {"{\"pooling_mode_cls_token\": true}", "note: its vectors are made by --pool cls"},
        {"{\"pooling_mode\": \"lasttoken\"}", "note: its vectors are made by --pool last"},
        {"{\"pooling_mode_max_tokens\": true}", "left out: how its vectors are made, pooling_mode_max"},
        {"{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": true}", "made, in several ways"},
        {"[true]", NULL},
        {"{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": false}", NULL}};
    static const char *const texts = "{\"max_seq_length\": 8, \"do_lower_case\": true}";
    static const char *const scaled =
        "[{\"path\": \"1\", \"type\": \"a.Pooling\"}, {\"type\": \"Normalize\"}]";
    static const struct { const char *text, *says; } prompts[] = {
        {"{\"prompts\": {\"q\": \"query: \", \"p\": \"text: \"}, \"default_prompt_name\": \"p\"}",
         "left out: the prompt that vectors wants before each line, p \"text: \"\n"},
        {"{\"prompts\": {\"q\": \"query: \", \"p\": \"text: \"}, \"default_prompt_name\": null}",
         "left out: prompts, of which vectors wants one before a line, q \"query: \", p \"text: \"\n"},
        {"{\"prompts\": {\"q\": \"query: \"}, \"default_prompt_name\": \"r\"}",
         "left out: default_prompt_name, which is none of the prompts: r"},
        {"{\"prompts\": {\"q\": \"\", \"p\": \"\"}, \"default_prompt_name\": \"q\"}", NULL},
        {"{\"prompts\": {}}", NULL}, {"{\"prompts\": 7}", NULL}, {"[1]", NULL}};
    (void)with("bert", "{", "{");
    CHECK(mkdir(path_of("bad/1"), 0777) == 0);
    write_file(path_of("bad/modules.json"), modules, strlen(modules));
    write_file(path_of("bad/sentence_bert_config.json"), texts, strlen(texts));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_file(path_of("bad/1/config.json"), rows[i].pooling, strlen(rows[i].pooling));
        CONVERT("%s %s", path_of("bad"), path_of("v"));
        CHECK_THAT(rows[i].says ? strstr(said, rows[i].says) != NULL : !strstr(said, "vectors are"), "%s",
                   said);
        CHECK_THAT(strstr(said, "left out: a module of its vectors, Dense") && strstr(said, "--length 8") &&
                       strstr(said, "left out: do_lower_case"), "%s", said);
    }
    CHECK_THAT(strstr(said, "note: its vectors keep their length, as with --raw"), "%s", said);
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        write_file(path_of("bad/config_sentence_transformers.json"), prompts[i].text,
                   strlen(prompts[i].text));
        CONVERT("%s %s", path_of("bad"), path_of("v"));
        CHECK_THAT(prompts[i].says ? strstr(said, prompts[i].says) != NULL : !strstr(said, "prompt"), "%s",
                   said);
    }
    write_file(path_of("bad/1/config.json"), "{\"include_prompt\": false}", 25);
    write_file(path_of("bad/modules.json"), scaled, strlen(scaled));
    CONVERT("%s %s", path_of("bad"), path_of("v"));
    CHECK_THAT(strstr(said, "left out: include_prompt = false") && !strstr(said, "--raw"), "%s", said);
    CONVERT("--to gguf %s %s", path_of("v"), path_of("g"));
    with_value(path_of("g"), path_of("p"), NULL, put_cls);
    CONVERT("%s %s", path_of("p"), path_of("v"));
    CHECK_THAT(strstr(said, "note: its vectors are made by --pool cls"), "%s", said);
}

/* The names of classes go along, into every form and back; those that no file of lines holds are refused. */
static void labels(void) {
    static const char *const whole = "\"0\": \"a\",\n  \"1\": \"b\",\n  \"2\": \"c\"";
    static const struct { const char *old, *text, *says; } rows[] = {
        {"\"1\": \"b\"", "\"3\": \"b\"", "3 of id2label is no class from 0 to 2 with a name"},
        {"\"1\": \"b\"", "\"x\": \"b\"", "x of id2label is no class"},
        {"\"1\": \"b\"", "\"1\": 7", "1 of id2label is no class from 0 to 2 with a name"},
        {"\"1\": \"b\"", "\"1\": \"b\", \"01\": \"d\"", "id2label names class 1 twice"},
        {"\"1\": \"b\",", "", "id2label has no name for class 1 of 3"},
        {"\"1\": \"b\"", "\"1\": \"c\"", "two classes have the name c"},
        {"\"1\": \"b\"", "\"1\": \"b\\tc\"", "the name of class 1 has a control character"},
        {"\"1\": \"b\"", "\"1\": \"\"", "the name of class 1 is empty"},
        {"\"id2label\": {", "\"id2label\": 1, \"label2id\": {", "id2label of config.json is no object"}};
    size_t n;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused("none", rows[i].says, with("bert_classes", rows[i].old, rows[i].text));
    CONVERT("%s %s", with("bert_classes", whole, "\"2\": \"z\", \"0\": \"x y\", \"1\": \"\xC3\xA9\""),
            path_of("c"));
    CHECK(!strcmp(read_file(path_of("c.labels"), &n), "x y\n\xC3\xA9\nz\n"));
    CONVERT("--type int8 %s %s", path_of("c"), path_of("d"));
    CHECK(!strcmp(read_file(path_of("d.labels"), &n), "x y\n\xC3\xA9\nz\n"));
    CONVERT("--to hf %s %s", path_of("c"), path_of("c-hf"));
    CHECK(strstr(read_file(path_of("c-hf/config.json"), &n), "\"1\":\t\"\xC3\xA9\""));
    write_file(path_of("c.labels"), "a\nb\n", 4);
    refused("none", "it has 3 classes, but .labels beside it 2 names", path_of("c"));
    /* without names they get the usual ones; that several may be true is said */
    CONVERT("%s %s", with("bert_classes", "\"id2label\": {", "\"problem_type\": "
                          "\"multi_label_classification\", \"label2id\": {"), path_of("c"));
    CHECK(!strcmp(read_file(path_of("c.labels"), &n), "LABEL_0\nLABEL_1\nLABEL_2\n"));
    CHECK_THAT(strstr(said, "note: its classes go together"), "%s", said);
    (void)with("bert_classes", "\"id2label\": {", "\"sbert_ce_default_activation_function\": \"a.Sigmoid\", "
               "\"id2label\": {");
    CONVERT("%s %s", path_of("bad"), path_of("c"));
    CHECK_THAT(strstr(said, "left out: what its scores go through, a.Sigmoid"), "%s", said);
    rename(path_of("c"), path_of("e.labels"));
    CHECK(convert("%s %s", path_of("e.labels"), path_of("e")) != 0 && strstr(said, "is what is read"));
}

/* More ends of texts than the tokenizer's and the form of talks are said. */
static void texts(void) {
    static const char *const lines = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n";
    static const char *const ends = "{\"eos_token_id\": [3, 4]}";
    static const char *const form = "{\"chat_template\": \"{{ a }}\"}";
    (void)with("llama", "\"use_cache\": true",
               "\"eos_token_id\": 3, \"sbert_ce_default_activation_function\": 1");
    write_file(path_of("bad/vocab.txt"), lines, strlen(lines));
    CONVERT("%s %s", path_of("bad"), path_of("t"));
    CHECK_THAT(strstr(said, "note: texts end at the token 3 (eos_token_id) as well"), "%s", said);
    write_file(path_of("bad/generation_config.json"), ends, strlen(ends));
    write_file(path_of("bad/tokenizer_config.json"), form, strlen(form));
    CONVERT("--to hf %s %s", path_of("bad"), path_of("talks"));
    CHECK_THAT(strstr(said, "at the token 3") && strstr(said, "left out: its chat_template"), "%s", said);
}

/* Gemma 3's rope_parameters by the kind of layer mean what its older keys do. */
static void nested_angles(void) {
    char command[1600];
    CONVERT("%s %s", model_of("gemma3"), path_of("older"));
    (void)with("gemma3", "\"rope_theta\": 1000000.0,", "");
    change("\"rope_local_base_freq\": 10000.0,", "");
    change("\"rope_scaling\": {\n  \"rope_type\": \"linear\",\n  \"factor\": 8.0\n }",
           "\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 1e4}, "
           "\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8, \"rope_theta\": 1e6}}");
    CONVERT("%s %s", path_of("bad"), path_of("newer"));
    snprintf(command, sizeof command, "cmp %s %s", path_of("older"), path_of("newer"));
    CHECK_THAT(system(command) == 0, "gemma3 with nested rope_parameters is another model");
}

/* longrope takes the factors of texts as long as the model is for, and one on scores in both. */
static void long_rope(void) {
    static const struct { const char *model, *options, *logits, *note; } ways[] = {
        {"phi3_long", "", "logits", "longrope with long_factor"},
        {"phi3_long", "--context 16", "short", "longrope with short_factor"},
        {"phi3_long", "--context 17", "logits", "longrope with long_factor"},
        {"phi3_part", "", "logits", "longrope with long_factor"}, /* three quarters of each head turn */
        {"phi3_part", "--context 16", "short", "longrope with short_factor"}};
    char line[600];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        cmha_real got[512], want[512];
        cmha_archive expected;
        double most = 0;
        open_expected(&expected, ways[i].model);
        const cmha_archive_tensor *t = cmha_archive_find(&expected, ways[i].logits);
        CONVERT("%s %s %s", ways[i].options, model_of(ways[i].model), path_of("long"));
        CHECK_THAT(strstr(said, ways[i].note), "%s", said);
        size_t n = compute(path_of("long"), &expected, got, 512);
        if (CHECK(t && t->count == n)) {
            CHECK_OK(cmha_archive_read(&expected, t, want));
            for (size_t j = 0; j < n; j++) most = fmax(most, fabs((double)got[j] - (double)want[j]));
            CHECK_THAT(most <= 1e-5, "%s: %g apart", ways[i].logits, most);
        }
        cmha_archive_close(&expected);
    }
    snprintf(line, sizeof line, "--to hf %s", path_of("long"));
    refused("none", "frequency = table has no form there", line);
    CONVERT("%s %s", with("phi3_long", "\"original_max_position_embeddings\": 16,", ""), path_of("long"));
    CHECK_THAT(strstr(said, "--context up to 4096 takes short_factor"), "%s", said); /* Phi-3's usual one */
}

/* A factor of YaRN that its lengths contradict gets a line. */
static void yarn_ratio(void) {
    static const struct { const char *length, *note; } rows[] = {
        {"", ""},
        {", \"original_max_position_embeddings\": 16", ""},
        {", \"original_max_position_embeddings\": 8", "YaRN scales by its factor, 4; some versions"}};
    char text[200];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4%s}",
                 rows[i].length);
        CONVERT("%s %s", with("llama", "\"use_cache\": true", text), path_of("yarn"));
        CHECK_THAT(*rows[i].note ? strstr(said, rows[i].note) != NULL : !strstr(said, "YaRN"), "%s", said);
    }
}

/* What is dynamic beyond a context is nothing within it. */
static void nomic_context(void) {
    char line[600];
    snprintf(line, sizeof line, "--context 64 %s", model_of("nomic_biased"));
    refused("none", "its angles are scaled dynamically beyond its own context", line);
    CONVERT("--context 32 %s %s", model_of("nomic_biased"), path_of("short"));
    make_own(path_of("narrow"), "causal=0 placement=post embedding_norm=1 token_types=1 tied=1 n_kv_heads=0 "
                                "layout=half norm=layernorm d_ff=200");
    snprintf(line, sizeof line, "--to hf --as nomic_bert %s", path_of("narrow"));
    refused("none", "d_ff = 200 has no form there, only multiples of 256", line);
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "causal=0 first_norm=0 embedding_norm=1 tied=1 n_kv_heads=0 layout=half "
                 "n_layers=3 norm=layernorm_gain layer_kinds=%s window=3 local_base=50 activation=geglu_erf "
                 "pool=mean",
                 i ? "llg" : "gl");
        make_own(path_of("mixed"), line);
        if (i) break;
        CONVERT("--to hf %s %s", path_of("mixed"), path_of("hf"));
        CONVERT("%s %s", path_of("hf"), path_of("b"));
        CHECK(tensors_apart(path_of("mixed"), path_of("b"), "") <= 0);
    }
    snprintf(line, sizeof line, "--to hf --as modernbert %s", path_of("mixed"));
    refused("none", "layer_kinds = llg has no form there", line);
}

/* Writes a model to "bad" with one tensor more: a copy of another, whose first number is `more` larger. */
static void with_copy(const char *name, const char *copy, const char *of, cmha_real more) {
    enum { MOST = 100, ROOM = 65536 };
    static cmha_real numbers[ROOM];
    cmha_archive_item items[MOST];
    cmha_archive a;
    size_t used = 0;
    (void)with(name, "{", "{");
    if (!CHECK(!cmha_archive_open(&a, &context, path_of("bad/model.safetensors")))) return;
    if (!CHECK(a.n_tensors < MOST)) return;
    for (size_t i = 0; i <= a.n_tensors; i++) {
        const cmha_archive_tensor *t = i < a.n_tensors ? &a.tensors[i] : cmha_archive_find(&a, of);
        if (!CHECK(t && used + t->count <= ROOM)) return;
        const cmha_archive_item item = {i < a.n_tensors ? t->name : copy, numbers + used, t->shape, t->rank,
                                        NULL};
        CHECK_OK(cmha_archive_read(&a, t, numbers + used));
        if (i == a.n_tensors) numbers[used] += more;
        items[i] = item;
        used += t->count;
    }
    CHECK_OK(cmha_archive_write(&context, path_of("bad/model.safetensors"), items, a.n_tensors + 1, NULL, 0));
    cmha_archive_close(&a);
}

/* What encoders store twice is left out where it is the same, and refused where it is not. */
static void copies(void) {
    static const char *const rows[][3] = {
        {"roberta", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
        {"roberta", "lm_head.decoder.bias", "lm_head.bias"},
        {"distilbert", "vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"},
        {"modernbert", "decoder.weight", "model.embeddings.tok_embeddings.weight"},
        {"bert_mlm", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
        {"bert_mlm", "cls.predictions.decoder.bias", "cls.predictions.bias"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char what[200];
        with_copy(rows[i][0], rows[i][1], rows[i][2], 0);
        CONVERT("%s %s", path_of("bad"), path_of("a"));
        with_copy(rows[i][0], rows[i][1], rows[i][2], 1);
        snprintf(what, sizeof what, "%s is another tensor than %s", rows[i][1], rows[i][2]);
        refused("none", what, path_of("bad"));
    }
}

/* An index of shards, and where it may point. */
static void shards(void) {
    char text[4096], more[256];
    cmha_archive a;
    size_t used = 0;
    (void)with("llama", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    refused("none", "lm_head is another matrix", path_of("bad"));
    CHECK(!rename(path_of("bad/model.safetensors"), path_of("bad/pytorch_model.bin")));
    refused("none", "only as pytorch_model.bin", path_of("bad"));
    CHECK_THAT(strstr(said, "import LlamaForCausalLM as M"), "%s", said);
    write_file(path_of("bad/pytorch_model.bin"), "PK\3\4 and what else a zip has", 28);
    refused("none", "holds PyTorch's own objects; name its folder", path_of("bad/pytorch_model.bin"));
    (void)with("llama", "{", "{");
    if (!CHECK(!cmha_archive_open(&a, &context, path_of("bad/model.safetensors")))) return;
    used += (size_t)snprintf(text, sizeof text, "{\"metadata\": {}, \"weight_map\": {");
    for (size_t i = 0; i < a.n_tensors; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\": \"one.safetensors\"",
                                 i ? ", " : "", a.tensors[i].name);
    snprintf(text + used, sizeof text - used, "}}");
    cmha_archive_close(&a);
    CHECK(!rename(path_of("bad/model.safetensors"), path_of("bad/one.safetensors")));
    refused("none", "neither model.safetensors nor", path_of("bad"));
    write_file(path_of("bad/model.safetensors.index.json"), text, strlen(text));
    CONVERT("%s %s", path_of("bad"), path_of("sharded"));
    CONVERT("%s %s", model_of("llama"), path_of("whole"));
    CHECK(same_numbers(path_of("whole"), path_of("sharded"), ""));
    static const char *const places[] = {"../one.safetensors", "/etc/passwd", "", ".one", "a\\\\b"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(more, sizeof more, "{\"weight_map\": {\"model.norm.weight\": \"%s\"}}", places[i]);
        write_file(path_of("bad/model.safetensors.index.json"), more, strlen(more));
        refused("none", "no file in that folder", path_of("bad"));
    }
    snprintf(more, sizeof more, "{\"weight_map\": {\"model.norm.weight\": \"one.safetensors\"}}");
    write_file(path_of("bad/model.safetensors.index.json"), more, strlen(more));
    refused("none", "its index names 1 tensors, its shards have 21", path_of("bad"));
    write_file(path_of("bad/model.safetensors.index.json"), "{\"weight_map\": 1}", 17);
    refused("none", "no weight_map", path_of("bad"));
    /* a second shard of one tensor, which the index seeks in the first, and a tensor of the first in it */
    static const char other[] = "A\0\0\0\0\0\0\0"
                                "{\"other\": {\"dtype\": \"F32\", \"shape\": [1], "
                                "\"data_offsets\": [0, 4]}}\0\0\0";
    write_file(path_of("bad/two.safetensors"), other, sizeof other);
    snprintf(text + used - strlen("one.safetensors\""), 80,
             "two.safetensors\", \"other\": \"one.safetensors\"}}");
    write_file(path_of("bad/model.safetensors.index.json"), text, strlen(text));
    refused("none", "is not in the shard that the index says", path_of("bad"));
    CHECK(!rename(path_of("bad/one.safetensors"), path_of("bad/two.safetensors")));
    snprintf(more, sizeof more, "cp %s %s", path_of("bad/two.safetensors"), path_of("bad/one.safetensors"));
    CHECK(system(more) == 0);
    refused("none", "comes twice", path_of("bad"));
}

/* The tokenizer that a checkpoint names, and whether it lies beside it. */
static const char *tokens_of(const char *name) {
    static cmha_model_config config;
    char path[600];
    CHECK_OK(cmha_config_read(&context, path_of(name), &config, NULL));
    snprintf(path, sizeof path, "%.500s", path_of(name));
    *strrchr(path, '.') = 0;
    strcat(path, ".tokenizer.json");
    CHECK_THAT(!access(path, R_OK) == !!*config.tokenizer, "%s and %s", config.tokenizer, path);
    return config.tokenizer;
}

/* BERT's words go into GGUF, and come back the same; other WordPieces have no form there. */
static void words(void) {
    static const char *const lines =
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nab\n##c\n##a\n##ab\n[y]\nA\n.\n##.\n\xC3\xA9\n";
    static const char *const settings[] = {"{}", "{\"do_lower_case\": false}"};
    char line[600];
    for (int cased = 0; cased < 2; cased++) {
        (void)with("nomic", "{", "{");
        write_file(path_of("bad/vocab.txt"), lines, strlen(lines));
        write_file(path_of("bad/tokenizer_config.json"), settings[cased], strlen(settings[cased]));
        CONVERT("%s %s", path_of("bad"), path_of("t.safetensors"));
        (void)tokens_of("t.safetensors");
        CONVERT("--to gguf %s %s", path_of("t.safetensors"), path_of("t.gguf"));
        CONVERT("%s %s", path_of("t.gguf"), path_of("v.safetensors"));
        size_t n, m;
        char first[8192];
        snprintf(first, sizeof first, "%.8000s", read_file(path_of("t.tokenizer.json"), &n));
        const char *again = read_file(path_of("v.tokenizer.json"), &m);
        (void)tokens_of("v.safetensors");
        for (const char *word = "ab\0##c\0##ab\0[y]\0\xC3\xA9\0"; *word; word += strlen(word) + 1) {
            char quoted[32];
            snprintf(quoted, sizeof quoted, "\"%s\":", word);
            CHECK_THAT(strstr(first, quoted) && strstr(again, quoted), "%s: %s", quoted, again);
        }
        CHECK((strstr(again, "\"lowercase\":true") == NULL) == cased);
    }
    size_t n;
    char *json = read_file(path_of("t.tokenizer.json"), &n), *at = strstr(json, "\"BertPreTokenizer\"");
    if (CHECK(at)) memcpy(at, "\"WhitespaceSplit\" ", 18);
    write_file(path_of("bad/tokenizer.json"), json, n);
    snprintf(line, sizeof line, "--to gguf %s", path_of("bad"));
    refused("none", "splits unlike BERT's", line);
    json = read_file(path_of("t.tokenizer.json"), &n);
    at = strstr(json, "\"max_input_chars_per_word\":100");
    if (CHECK(at)) memcpy(at + 27, "200", 3);
    write_file(path_of("bad/tokenizer.json"), json, n);
    refused("none", "splits unlike BERT's", line);
}

/* GGUF has a name for a byte-level tokenizer's way to split, or is refused. */
static void splits(void) {
    static const char *const json =
        "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": %s, \"pre_tokenizer\": %s, "
        "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
        "\"ignore_merges\": %s, \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}}";
#define SPLITS(pattern) \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern \
    "\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, " \
    "\"use_regex\": false}]}"
#define LLAMA3 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|" \
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define BYTES "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"
    static const struct { const char *normalizer, *splits, *ignores, *name; } rows[] = {
        {"null", BYTES, "false", "gpt-2"},
        {"null", SPLITS(LLAMA3), "true", "llama-bpe"},
        {"null", SPLITS(LLAMA3), "false", "smaug-bpe"},
        {"{\"type\": \"NFC\"}", SPLITS(LLAMA3), "false", NULL},
        {"{\"type\": \"Lowercase\"}", BYTES, "false", NULL},
        {"null", BYTES, "true", NULL},
        {"null", "{\"type\": \"ByteLevel\"}", "false", NULL}, /* a blank in front */
        {"null", "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", \"individual_digits\": "
         "true}, " BYTES "]}", "false", "smollm"},
        {"null", "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, " BYTES "]}", "false",
         NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[2048], line[600], error[GGUF_ERROR];
        gguf_file g;
        const gguf_value *pre;
        (void)with("llama", "{", "{");
        snprintf(text, sizeof text, json, rows[i].normalizer, rows[i].splits, rows[i].ignores);
        write_file(path_of("bad/tokenizer.json"), text, strlen(text));
        snprintf(line, sizeof line, "--to gguf %s", path_of("bad"));
        if (!rows[i].name) {
            refused("none", "no name for the way", line);
            continue;
        }
        CONVERT("%s %s", line, path_of("t.gguf"));
        if (!CHECK_THAT(gguf_open(&g, path_of("t.gguf"), error), "%s", error)) continue;
        pre = gguf_find(&g, "tokenizer.ggml.pre");
        CHECK_THAT(pre && pre->count == strlen(rows[i].name) &&
                       !memcmp(pre->at, rows[i].name, strlen(rows[i].name)),
                   "row %d: %.*s", (int)i, pre ? (int)pre->count : 0, pre ? (const char *)pre->at : "");
        gguf_close(&g);
    }
}

/* A tokenizer goes along, into every form and back. */
static void tokenizers(void) {
    static const char *const json =
        "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": %d, \"content\": \"<s>\", \"special\": true, "
        "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false}], "
        "\"normalizer\": "
        "null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
        "true, \"use_regex\": true}, \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}, \"model\": {\"type\": "
        "\"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}}";
    char text[2048], identity[32], arguments[600];
    (void)with("llama", "{", "{");
    snprintf(text, sizeof text, json, 19);
    write_file(path_of("bad/tokenizer.json"), text, strlen(text));
    CONVERT("%s %s", path_of("bad"), path_of("t.safetensors"));
    snprintf(identity, sizeof identity, "%s", tokens_of("t.safetensors"));
    CHECK_THAT(!strncmp(identity, "bpe-", 4), "the tokenizer is \"%s\"", identity);
    CONVERT("--to hf %s %s", path_of("t.safetensors"), path_of("t-hf"));
    CONVERT("%s %s", path_of("t-hf"), path_of("u.safetensors"));
    CHECK(!strcmp(tokens_of("u.safetensors"), identity));
    CONVERT("--to gguf %s %s", path_of("t.safetensors"), path_of("t.gguf"));
    CONVERT("%s %s", path_of("t.gguf"), path_of("v.safetensors"));
    CHECK(!strncmp(tokens_of("v.safetensors"), "bpe-", 4));
    CONVERT("--tokenizer none %s %s", path_of("bad"), path_of("w.safetensors"));
    CHECK(!*tokens_of("w.safetensors"));
    CONVERT("--tokenizer %s %s %s", path_of("t.tokenizer.json"), path_of("w.safetensors"),
            path_of("x.safetensors"));
    CHECK(!strcmp(tokens_of("x.safetensors"), identity));
    snprintf(text, sizeof text, json, 19);
    memcpy(strstr(text, "\"lstrip\": false"), "\"lstrip\":  true", 15); /* GGUF has no word for it */
    write_file(path_of("bad/tokenizer.json"), text, strlen(text));
    CONVERT("--to gguf %s %s", path_of("bad"), path_of("t.gguf"));
    CHECK_THAT(strstr(said, "left out: lstrip, rstrip or single_word of the token <s>"), "%s", said);
    snprintf(text, sizeof text, json, 20); /* a token more than the model has */
    write_file(path_of("bad/tokenizer.json"), text, strlen(text));
    refused("none", "has 21 tokens, the model only 20", path_of("bad"));
    snprintf(arguments, sizeof arguments, "--tokenizer %s %s", path_of("bad/tokenizer.json"),
             path_of("t.safetensors"));
    refused("none", "the model speaks the tokens of", arguments);
    write_file(path_of("bad/tokenizer.json"), "{", 1);
    refused("none", "--tokenizer none goes without", path_of("bad"));
}

/* Files cut at every length, and with every byte of their head changed, end in one line or are read. */
static void cut_files(void) {
    static char whole[65536];
    size_t n, step, i;
    char *bytes;
    CONVERT("--to gguf %s %s", model_of("grouped"), path_of("g"));
    bytes = read_file(path_of("g"), &n);
    memcpy(whole, bytes, n);
    for (step = 0; step < 40; step++) {
        size_t length = step < 12 ? step * 4 : n * (step - 11) / 30;
        write_file(path_of("bad.gguf"), whole, length < n ? length : n - 1);
        refused("none", path_of("bad.gguf"), path_of("bad.gguf"));
    }
    for (i = 8; i < 900; i++) { /* by the reader itself, as a process takes milliseconds */
        gguf_file g;
        char error[GGUF_ERROR];
        static const unsigned char values[] = {0, 1, 0x7F, 0x80, 0xFF};
        for (size_t v = 0; v < sizeof values; v++) {
            char old = whole[i];
            whole[i] = (char)values[v];
            int done = gguf_read(&g, whole, n, error);
            CHECK(done || (*error && !strchr(error, '\n')));
            gguf_close(&g);
            whole[i] = old;
        }
    }
    for (i = 0; i < 40; i++)
        write_file(path_of("bad.bin"), whole + 4, i), refused("none", path_of("bad.bin"), path_of("bad.bin"));
}

/* A GGUF of one value and one tensor of 4 numbers, 40 bytes behind its header: the value's type, of lists
   that of the elements, and where the tensor begins. Returns what the reader says of it. */
static const char *one_value(uint32_t type, uint32_t of, uint64_t begin) {
    static char error[GGUF_ERROR];
    static unsigned char bytes[256];
    unsigned char *at = bytes;
    gguf_file g;
    memset(bytes, 0, sizeof bytes), memset(error, 0, sizeof error);
    at = gguf_store(gguf_store(gguf_store(gguf_store(at, 0x46554747, 4), 3, 4), 1, 8), 1, 8);
    at = gguf_store(gguf_store(at, 1, 8), 'v', 1);
    at = gguf_store(at, type, 4);
    if (type == GGUF_ARRAY) at = gguf_store(gguf_store(at, of, 4), 1, 8);
    at = gguf_store(at, 7, 4);
    at = gguf_store(gguf_store(at, 1, 8), 't', 1);
    at = gguf_store(gguf_store(gguf_store(gguf_store(at, 1, 4), 4, 8), GGUF_AS_F32, 4), begin, 8);
    if (gguf_read(&g, bytes, (size_t)(at - bytes + 31) / 32 * 32 + 40, error)) gguf_close(&g);
    return error;
}

/* A list of numbers is read, one of lists is not; a tensor lies inside of the file, also where sums wrap. */
static void gguf_places(void) {
    CHECK_THAT(!*one_value(GGUF_U32, 0, 0), "%s", one_value(GGUF_U32, 0, 0));
    CHECK_THAT(!*one_value(GGUF_ARRAY, GGUF_U32, 0), "%s", one_value(GGUF_ARRAY, GGUF_U32, 0));
    CHECK(strstr(one_value(GGUF_ARRAY, GGUF_ARRAY, 0), "unknown type"));
    CHECK(strstr(one_value(GGUF_U32, 0, 16), "is not where it can be")); /* 16 is no multiple of 32 */
    static const uint64_t beyond[] = {32, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX - 31};
    for (int i = 0; i < 4; i++)
        CHECK_THAT(strstr(one_value(GGUF_U32, 0, beyond[i]), "ends beyond the file"), "tensor at %g",
                   (double)beyond[i]);
}

/* A width that its heads do not divide is named. */
static void plain_heads(void) {
    unsigned char head[28], *at = head;
    static const unsigned sizes[7] = {10, 16, 1, 3, 3, 20, 16};
    for (int i = 0; i < 7; i++) at = gguf_store(at, sizes[i], 4);
    write_file(path_of("heads.bin"), head, sizeof head);
    refused("none", "not divisible by its heads", path_of("heads.bin"));
}

/* What is read is never what is written, by whatever name. */
static void onto_itself(void) {
    static const char *const to[] = {"it", "it/", "it/model.safetensors", "it/../it.safetensors"};
    char before[65536], command[1600];
    size_t n, m;
    CONVERT("%s %s", model_of("llama"), path_of("it.safetensors"));
    snprintf(command, sizeof command, "cp -r %s %s", model_of("llama"), path_of("it"));
    CHECK(system(command) == 0);
    const char *bytes = read_file(path_of("it/model.safetensors"), &n);
    memcpy(before, bytes, n);
    for (int i = 0; i < 4; i++) {
        const char *in = path_of(i < 3 ? "it" : "it.safetensors");
        int status = convert("--to %s %s %s", i < 2 ? "hf" : "cmha", in, path_of(to[i]));
        CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 2 && strstr(said, "is what is read"), "%s: %s",
                   to[i], said);
    }
    bytes = read_file(path_of("it/model.safetensors"), &m);
    CHECK(n == m && !memcmp(before, bytes, n));
}

/* Where one of a folder's files cannot be written, no new weights stand beside it, nor half of them. */
static void in_the_way(void) {
    CHECK(mkdir(path_of("way"), 0777) == 0 && mkdir(path_of("way/config.json"), 0777) == 0);
    int status = convert("--to hf %s %s", model_of("llama"), path_of("way"));
    CHECK_THAT(status && strstr(said, "cannot write") && strstr(said, "config.json"), "%s", said);
    CHECK(rmdir(path_of("way/config.json")) == 0 && rmdir(path_of("way")) == 0); /* which was alone */
}

/* A logit that is no number is the farthest of all. */
static void not_a_number(void) {
    float logits[20] = {NAN};
    size_t n;
    CONVERT("%s %s", model_of("llama"), path_of("plain"));
    write_file(path_of("logits"), logits, sizeof logits);
    CONVERT("--check %s --ids 1 %s", path_of("logits"), path_of("plain"));
    const char *out = read_file(path_of("out"), &n);
    CHECK_THAT(strstr(out, "at most inf apart"), "%s", out);
    CHECK(convert("--check %s --ids '1 2 3' %s", path_of("logits"), path_of("plain")) &&
          strstr(said, "fewer rows than tokens in --ids: "));
    CHECK(convert("--check %s --ids 1 --type f16 %s", path_of("logits"), path_of("plain")) &&
          strstr(said, "--type is for what is written, not for --check"));
}

/* --check of encoders: states, logits and scores, told apart by the size of the file. */
static void check_encoders(void) {
    static const struct { const char *name, *what; } cases[] = {
        {"modernbert", "logits"}, {"modernbert_biased", "states"}, {"roberta_classes", "classes"}};
    char ids[200], line[900];
    for (size_t i = 0; i < 3; i++) {
        cmha_archive a;
        float x[512];
        int64_t wide[TOKENS];
        size_t used = 0, n;
        open_expected(&a, cases[i].name);
        const cmha_archive_tensor *t = cmha_archive_find(&a, cases[i].what);
        CHECK_OK(cmha_archive_read_i64(&a, cmha_archive_find(&a, "ids"), wide));
        if (!CHECK(t && t->count <= 512)) return;
        CHECK_OK(cmha_archive_read(&a, t, x));
        for (int k = 0; k < TOKENS; k++)
            used += (size_t)snprintf(ids + used, sizeof ids - used, "%d ", (int)wide[k]);
        write_file(path_of("numbers"), x, t->count * sizeof *x);
        CONVERT("%s %s", model_of(cases[i].name), path_of("e"));
        CONVERT("--check %s --ids '%s' %s", path_of("numbers"), ids, path_of("e"));
        const char *at = strstr(read_file(path_of("out"), &n), " at most ");
        CHECK_THAT(at && strtod(at + 9, NULL) < 1e-5, "%s: %s", cases[i].name, read_file(path_of("out"), &n));
        snprintf(line, sizeof line, "--check %s --ids '%s7' %s", path_of("numbers"), ids, path_of("e"));
        if (i < 2) CHECK(convert("%s", line) && strstr(said, "of an encoder these are F32 of every token"));
        cmha_archive_close(&a);
    }
}

#endif

/* Every F16 comes back from its float, and what lies between two goes to the nearer, halfway to the even. */
static void halves(void) {
    uint32_t wrong = 0;
    for (uint32_t half = 0; half < 0x7C00; half++) {
        double low = (double)gguf_from_half(half), high = (double)gguf_from_half(half + 1);
        if (half == 0x7BFF) high = 65536; /* where the next one is infinite */
        uint32_t even = half + (half & 1);
        float middle = (float)((low + high) / 2);
        int right = gguf_to_half((float)low) == half && gguf_to_half(middle) == even &&
                    gguf_to_half(nextafterf(middle, 0)) == half &&
                    gguf_to_half(nextafterf(middle, INFINITY)) == half + 1;
        if (!right) wrong = half + 1;
    }
    CHECK_THAT(!wrong, "the half %#x", (unsigned)wrong - 1);
}

/* Sets n bits of a block from bit `at` on, counted from the lowest of the first byte. */
static void put_bits(unsigned char *block, size_t at, int n, unsigned bits) {
    for (int i = 0; i < n; i++)
        if (bits >> i & 1) block[(at + (size_t)i) / 8] |= (unsigned char)(1u << (at + (size_t)i) % 8);
}

/* Blocks of 32, written bit by bit: bytes of the factor, 4 or 5 bits a number, with a least number or not */
static void blocks_of_32(uint32_t as, int bits, int least) {
    unsigned char block[34] = {0};
    float x[32], factor = -0.375f, low = least ? 1.25f : 0;
    size_t begin = (least ? 4u : 2u) + (bits == 5 ? 4u : 0u);
    unsigned codes[32];
    gguf_store(block, gguf_to_half(factor), 2);
    if (least) gguf_store(block + 2, gguf_to_half(low), 2);
    for (size_t i = 0; i < 32; i++) {
        codes[i] = (unsigned)check_below(bits == 5 ? 32 : 16);
        put_bits(block, 8 * begin + i % 16 * 8 + i / 16 * 4, 4, codes[i] & 15);
        if (bits == 5) put_bits(block, 8 * (begin - 4) + i, 1, codes[i] >> 4);
    }
    CHECK(gguf_size(as, 32) == begin + 16 && gguf_size(as, 64) == 2 * (begin + 16) && !gguf_size(as, 33));
    gguf_decode(as, block, 32, x);
    for (size_t i = 0; i < 32; i++) {
        float middle = least ? 0 : bits == 5 ? 16 : 8;
        CHECK_THAT(x[i] == factor * ((float)codes[i] - middle) + low, "%s: number %zu", gguf_storage(as), i);
    }
}

/* Blocks of 256 likewise: 8 pieces, each with a factor and a least number of 6 bits */
static void blocks_of_256(uint32_t as, int bits) {
    unsigned char block[176] = {0};
    float x[256];
    const size_t begin = bits == 5 ? 48 : 16;
    unsigned codes[256], scale[8], low[8];
    gguf_store(gguf_store(block, gguf_to_half(0.25f), 2), gguf_to_half(0.5f), 2);
    for (size_t i = 0; i < 8; i++) {
        scale[i] = (unsigned)check_below(64), low[i] = (unsigned)check_below(64);
        size_t j = i % 4; /* lower 4 bits of the last four: bytes 12 - 15; upper 2: above the first four */
        if (i < 4) put_bits(block, 32 + 8 * j, 6, scale[i]), put_bits(block, 64 + 8 * j, 6, low[i]);
        else {
            put_bits(block, 96 + 8 * j, 4, scale[i] & 15), put_bits(block, 100 + 8 * j, 4, low[i] & 15);
            put_bits(block, 38 + 8 * j, 2, scale[i] >> 4), put_bits(block, 70 + 8 * j, 2, low[i] >> 4);
        }
    }
    for (size_t i = 0; i < 256; i++) {
        codes[i] = (unsigned)check_below(bits == 5 ? 32 : 16);
        put_bits(block, 8 * (begin + i / 64 * 32 + i % 32) + i / 32 % 2 * 4, 4, codes[i] & 15);
        if (bits == 5) put_bits(block, 8 * (16 + i % 32) + i / 32, 1, codes[i] >> 4);
    }
    CHECK(gguf_size(as, 256) == begin + 128 && !gguf_size(as, 128));
    gguf_decode(as, block, 256, x);
    for (size_t i = 0; i < 256; i++) {
        float want = 0.25f * (float)scale[i / 32] * (float)codes[i] - 0.5f * (float)low[i / 32];
        CHECK_THAT(x[i] == want, "%s: number %zu", gguf_storage(as), i);
    }
}

static void blocks_of_6_bits(void) {
    unsigned char block[210] = {0};
    float x[256];
    unsigned codes[256];
    for (size_t i = 0; i < 16; i++) block[192 + i] = (unsigned char)check_below(256);
    gguf_store(block + 208, gguf_to_half(-0.125f), 2);
    for (size_t i = 0; i < 256; i++) {
        size_t half = i / 128, l = i % 32, part = i / 32 % 4;
        codes[i] = (unsigned)check_below(64);
        put_bits(block, 8 * (64 * half + 32 * (part % 2) + l) + 4 * (part / 2), 4, codes[i] & 15);
        put_bits(block, 8 * (128 + 32 * half + l) + 2 * part, 2, codes[i] >> 4);
    }
    CHECK(gguf_size(GGUF_AS_Q6_K, 256) == 210);
    gguf_decode(GGUF_AS_Q6_K, block, 256, x);
    for (size_t i = 0; i < 256; i++) {
        float scale = (float)(signed char)block[192 + i / 16];
        CHECK_THAT(x[i] == -0.125f * scale * ((float)codes[i] - 32), "Q6_K: number %zu", i);
    }
}

/* A GGUF of one tensor of a row of n numbers stored so; returns what the reader says. */
static const char *one_tensor(uint32_t as, uint64_t n, uint64_t bytes) {
    static char error[GGUF_ERROR];
    static unsigned char file[2048];
    static float x[512];
    unsigned char *at = file;
    gguf_file g;
    memset(file, 0, sizeof file), memset(error, 0, sizeof error);
    at = gguf_store(gguf_store(gguf_store(gguf_store(at, 0x46554747, 4), 3, 4), 1, 8), 0, 8);
    at = gguf_store(gguf_store(at, 1, 8), 't', 1);
    at = gguf_store(gguf_store(gguf_store(gguf_store(at, 1, 4), n, 8), as, 4), 0, 8);
    if (!gguf_read(&g, file, (size_t)(at - file + 31) / 32 * 32 + (size_t)bytes, error)) return error;
    gguf_read_tensor(&g, g.tensors, x, error);
    gguf_close(&g);
    return error;
}

/* What is stored in a few bits is read whole or refused in a line that has its name. */
static void few_bits(void) {
    blocks_of_32(GGUF_AS_Q4_0, 4, 0), blocks_of_32(GGUF_AS_Q4_1, 4, 1);
    blocks_of_32(GGUF_AS_Q5_0, 5, 0), blocks_of_32(GGUF_AS_Q5_1, 5, 1);
    blocks_of_256(GGUF_AS_Q4_K, 4), blocks_of_256(GGUF_AS_Q5_K, 5), blocks_of_6_bits();
    CHECK(!*one_tensor(GGUF_AS_Q4_K, 512, 288));
    CHECK(strstr(one_tensor(GGUF_AS_Q4_K, 512, 287), "beyond the file"));
    CHECK(strstr(one_tensor(GGUF_AS_Q6_K, 128, 210), "rows of Q6_K that are no multiple of 256"));
    CHECK(strstr(one_tensor(GGUF_AS_Q5_1, 33, 210), "rows of Q5_1 that are no multiple of 32"));
    CHECK(strstr(one_tensor(23, 256, 300), "stored as IQ4_XS (type 23), not as F32"));
    CHECK(strstr(one_tensor(99, 256, 300), "stored as what is unknown here (type 99)"));
}

/* A NaN of the lowest bit stays one in BF16; a list has no element behind its last. */
static void small_things(void) {
    static const uint32_t nan_bits = 0x7F800001u;
    static const unsigned char bytes[2] = {7, 9};
    gguf_value list;
    double x = 0;
    float f;
    memcpy(&f, &nan_bits, sizeof f);
    CHECK((gguf_to_brain(f) & 0x7F) != 0);
    memset(&list, 0, sizeof list);
    list.type = GGUF_ARRAY, list.of = GGUF_U8, list.count = 1, list.at = bytes;
    CHECK(gguf_element(&list, 0, &x) && x == 7);
    CHECK(!gguf_element(&list, 1, &x));
}

int main(int argc, char **argv) {
    char *slash;
    snprintf(program, sizeof program, "%s", argc ? argv[0] : "build/x");
    slash = strrchr(program, '/');
    snprintf(slash ? slash + 1 : program, sizeof program / 2, "convert");
    if (access(program, X_OK)) strcpy(program, "build/convert");
    CHECK_OK(cmha_context_init(&context, NULL));
    if (!CHECK(mkdtemp(folder) != NULL)) return check_end();
    small_things();
    halves();
    few_bits();
    like_elsewhere();
    stories();
    peft();
    for (size_t i = LEARNED; i < MODELS; i++)
        if (i < ENCODERS || i >= TURNED) learns_like(models[i]), adapts(models[i]);
#ifndef CMHA_DOUBLE
    back_again();
    gguf_and_back();
    gguf_modernbert();
    gguf_asked();
    packed_at_once();
    packed_exactly();
    complexformer();
    settings();
    usual_settings();
    vectors();
    labels();
    texts();
    nested_angles();
    yarn_ratio();
    nomic_context();
    long_rope();
    shards();
    copies();
    tokenizers(), splits();
    words();
    cut_files();
    gguf_places();
    plain_heads();
    onto_itself();
    in_the_way();
    not_a_number();
    check_encoders();
    peft_refused();
#endif
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    cmha_context_close(&context);
    return check_end();
}
