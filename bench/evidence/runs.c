/* runs.c - what most runs do: settings by name, a context, a paired start, training with its curve. */
#include "program.h"

#include <math.h>
#include <stdarg.h>
#include <sys/resource.h>

int evidence_fail(char *error, const char *format, ...) {
    va_list list;
    char line[EVIDENCE_ERROR];
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    return text_fail(error, "%s", line);
}

/* ---- Results ---- */

int evidence_name(const char *name) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n && n < 32 && n == strlen(name);
}

int evidence_add(evidence_result *r, const char *name, double value) {
    if (!evidence_name(name) || r->n == EVIDENCE_MEASURES) return 0;
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->measures[i].name, name)) return 0;
    snprintf(r->measures[r->n].name, sizeof r->measures[r->n].name, "%s", name);
    r->measures[r->n++].value = value;
    return 1;
}

int evidence_point(evidence_result *r, size_t step, double loss) {
    if (r->points && step <= r->curve[r->points - 1].step) return 0;
    if (r->points == EVIDENCE_POINTS) {
        for (size_t i = 0; i < EVIDENCE_POINTS / 2; i++) r->curve[i] = r->curve[2 * i];
        r->points = EVIDENCE_POINTS / 2;
    }
    r->curve[r->points].step = step, r->curve[r->points++].loss = loss;
    return 1;
}

double evidence_step_at(const evidence_result *r, double loss) {
    size_t i = 0;
    while (i < r->points && !(r->curve[i].loss <= loss)) i++;
    if (i == r->points) return NAN;
    double step = (double)r->curve[i].step;
    if (!i) return step;
    double above = r->curve[i - 1].loss - loss, fall = r->curve[i - 1].loss - r->curve[i].loss;
    double before = (double)r->curve[i - 1].step;
    return before + (step - before) * above / fall;
}

/* ---- Settings ---- */

/* Takes the next word NAME=VALUE of a text; 0 at its end, -1 where a word is none. */
static int next_word(const char **text, char name[64], char value[64]) {
    const char *at = *text + strspn(*text, " ");
    size_t all = strcspn(at, " "), n = strcspn(at, "= ");
    *text = at + all;
    if (!all) return 0;
    if (!n || n == all || n > 63 || all - n - 1 > 63) return -1;
    memcpy(name, at, n), name[n] = 0;
    memcpy(value, at + n + 1, all - n - 1), value[all - n - 1] = 0;
    return 1;
}

/* The variant whose learning rate this one takes: its own or that of like=. */
const evidence_variant *evidence_like(const evidence_claim *claim, const evidence_variant *variant) {
    char name[64], value[64];
    const char *text = variant->settings;
    if (next_word(&text, name, value) != 1 || strcmp(name, "like") != 0) return variant;
    for (size_t i = 0; i < claim->n_variants; i++)
        if (!strcmp(claim->variants[i].name, value)) return &claim->variants[i];
    return NULL;
}

/* The settings of a run in the order in which they count: part, like's, variant's, those of --set. */
static int settings_of(const evidence_run *run, const char *list[4]) {
    const evidence_variant *like = evidence_like(run->claim, run->variant);
    list[0] = run->part->settings, list[1] = "", list[2] = run->variant->settings;
    list[3] = run->more ? run->more : "";
    if (!like)
        return evidence_fail(run->error, "%s/%s is like no variant", run->claim->name, run->variant->name);
    if (like != run->variant) list[1] = like->settings;
    return 1;
}

int evidence_word(const evidence_run *run, const char *name, char value[64]) {
    const char *list[4];
    char word[64], text[64];
    int found = 0, got;
    if (!settings_of(run, list)) return 0;
    for (int i = 0; i < 4; i++)
        for (const char *at = list[i]; (got = next_word(&at, word, text)) != 0;)
            if (got > 0 && !strcmp(word, name)) memcpy(value, text, 64), found = 1;
    return found;
}

double evidence_number(const evidence_run *run, const char *name, double otherwise) {
    char value[64], *end;
    double number = evidence_word(run, name, value) ? strtod(value, &end) : otherwise;
    return number;
}

int evidence_reads(const char *name) {
    static const char *const ours[] = {"preset", "like", "reseed", "threads", "instructions",
                                     "choose", "program"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (!strcmp(name, ours[i])) return 1;
    return 0;
}

/* Sets what one word asks for. */
static int set_word(const evidence_run *run, cmha_context *ctx, cmha_model_config *model,
                    cmha_trainer_config *trainer, const char *name, const char *value) {
    cmha_status status;
    if (evidence_reads(name)) return 1;
    if (!strcmp(name, "kind")) status = cmha_kind(ctx, value, model);
    else if (!strncmp(name, "trainer.", 8))
        status = cmha_config_set(ctx, cmha_trainer_table(), trainer, name + 8, value);
    else if (strchr(name, '.')) return 1;
    else status = cmha_config_set(ctx, cmha_model_table(), model, name, value);
    return !status || evidence_fail(run->error, "%s/%s: %s", run->claim->name, run->variant->name,
                                    cmha_error(ctx));
}

int evidence_configure(const evidence_run *run, cmha_context *ctx, cmha_model_config *model,
                       cmha_trainer_config *trainer) {
    cmha_model_config m;
    cmha_trainer_config t;
    const char *list[4];
    char name[64], value[64] = "tiny";
    int got;
    if (!settings_of(run, list)) return 0;
    evidence_word(run, "preset", value);
    if (cmha_preset(ctx, value, &m, &t)) return evidence_fail(run->error, "%s", cmha_error(ctx));
    t.lr = run->rate * evidence_number(run, "rate.times", 1), t.min_lr = t.lr / 30;
    for (int i = 0; i < 4; i++)
        for (const char *at = list[i]; (got = next_word(&at, name, value)) != 0;)
            if (got < 0) return evidence_fail(run->error, "no settings: %.100s", list[i]);
            else if (!set_word(run, ctx, &m, &t, name, value)) return 0;
    if (model) *model = m;
    if (trainer) *trainer = t;
    return 1;
}

/* ---- Starting ---- */

int evidence_data(const evidence_run *run, const char *name, char path[1024]) {
    if ((size_t)snprintf(path, 1024, "%s/%s", run->data, name) >= 1024)
        return evidence_fail(run->error, "too long a path: %.100s", run->data);
    return !access(path, R_OK) ||
           evidence_fail(run->error, "%.200s is not there; --data names the folder", path);
}

own_rows evidence_rows;
const char *evidence_rows_path;

int evidence_open(const evidence_run *run, cmha_context *ctx) {
    cmha_context_config config;
    memset(&config, 0, sizeof config);
    config.seed = run->seed, config.threads = run->threads;
    config.scores = evidence_rows.scores, config.n_scores = evidence_rows.n_scores;
    config.optimisers = evidence_rows.optimisers, config.n_optimisers = evidence_rows.n_optimisers;
    return !cmha_context_init(ctx, &config) ||
           evidence_fail(run->error, "cannot open a context: %s", cmha_error(ctx));
}

/* Does a parameter begin as its namesake in the other model does? */
static int begins_alike(const cmha_model *a, const cmha_parameter *p, const cmha_model *b,
                        const cmha_parameter *q) {
    const cmha_model_config *c = &a->config, *d = &b->config;
    return p->start == q->start && p->tensor.rank == q->tensor.rank &&
           !memcmp(p->tensor.shape, q->tensor.shape, (size_t)p->tensor.rank * sizeof *p->tensor.shape) &&
           c->init == d->init && !(c->init_std < d->init_std) && !(c->init_std > d->init_std) &&
           c->n_layers == d->n_layers && c->mobius_init == d->mobius_init &&
           (c->delta_init == d->delta_init || !strstr(p->name, ".delta"));
}

/* Copies what the data decides and settings may not know. */
static void take_data_fields(cmha_model_config *to, const cmha_model_config *from) {
    to->vocabulary = from->vocabulary, to->tokens = from->tokens, to->token_types = from->token_types;
    to->classes = from->classes, to->label_range = from->label_range, to->values = from->values;
    to->gaussian = from->gaussian, to->features = from->features;
    to->complex_features = from->complex_features;
    memcpy(to->tokenizer, from->tokenizer, sizeof to->tokenizer);
}

/* Refuses a causal model with a score of the caller's in which a later token moves earlier logits: it would
   win here without knowing anything. */
static int sees_nothing_later(const evidence_run *run, cmha_context *ctx, cmha_model *model) {
    enum { N = 16 };
    const cmha_model_config *c = &model->config;
    size_t V = c->vocabulary, n = c->max_positions < N ? c->max_positions : N;
    int32_t ids[N];
    cmha_batch batch;
    double moved = 0;
    if (!c->score[0] || !c->causal || !c->tokens || V < 2 || n < 2) return 1;
    cmha_real *before = (cmha_real *)malloc(2 * n * V * sizeof *before), *after;
    if (!before) return evidence_fail(run->error, "out of memory");
    after = before + n * V;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.batch = 1, batch.length = n;
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(i % V);
    int done = !cmha_model_logits(model, &batch, before);
    ids[n - 1] = (int32_t)(n % V);
    done = done && !cmha_model_logits(model, &batch, after);
    for (size_t i = 0; done && i < (n - 1) * V; i++) {
        double d = fabs((double)after[i] - (double)before[i]) / (1 + fabs((double)before[i]));
        if (d > moved) moved = d;
    }
    free(before);
    if (!done) return evidence_fail(run->error, "%s", cmha_error(ctx));
    return moved < 1e-4 || evidence_fail(run->error, "score=%s: a later token changes logits", c->score);
}

int evidence_start(const evidence_run *run, cmha_context *ctx, const cmha_model_config *config,
                   cmha_model *model, double *paired) {
    evidence_run base = *run;
    cmha_model_config base_config;
    cmha_model other;
    size_t same = 0;
    base.variant = &run->claim->variants[0];
    if (cmha_model_init(model, ctx, config)) return evidence_fail(run->error, "%s", cmha_error(ctx));
    if (!evidence_configure(&base, ctx, &base_config, NULL)) return cmha_model_close(model), 0;
    take_data_fields(&base_config, config);
    if (cmha_model_init(&other, ctx, &base_config))
        return cmha_model_close(model), evidence_fail(run->error, "the baseline: %s", cmha_error(ctx));
    for (size_t i = 0; i < model->parameters.count; i++) {
        cmha_parameter *p = &model->parameters.list[i];
        const cmha_parameter *q = cmha_parameters_find(&other.parameters, p->name);
        if (!q || !p->tensor.data || !q->tensor.data || !begins_alike(model, p, &other, q)) continue;
        memcpy(p->tensor.data, q->tensor.data, p->tensor.size * sizeof *p->tensor.data);
        same += p->tensor.size;
    }
    if (paired) *paired = (double)same / (double)model->parameters.size;
    cmha_model_close(&other);
    return sees_nothing_later(run, ctx, model) || (cmha_model_close(model), 0);
}

/* ---- Training ---- */

double evidence_seconds(void) {
    static const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    double sum = 0;
    for (size_t i = 0; i < LENGTH(whose); i++) {
        struct rusage used;
        if (getrusage(whose[i], &used)) continue;
        sum += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
        sum += 1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
    return sum;
}

/* The state of a long run is two files. KEEP.txt: what its digits depend on, the seconds so far, the points
   of the curve. Then KEEP.safetensors, the trainer's; where a run ends between them, the last point has
   none. */
static const char *kept_path(const evidence_run *run, const char *ending, char path[1100]) {
    snprintf(path, 1100, "%s%s", run->keep, ending);
    return path;
}

void evidence_forget(const evidence_run *run) {
    char path[1100];
    (void)remove(kept_path(run, ".safetensors", path)), (void)remove(kept_path(run, ".txt", path));
}

static int keep_state(const evidence_run *run, cmha_trainer *trainer, const evidence_result *result) {
    text_file file;
    char path[1100];
    if (!text_begin(&file, kept_path(run, ".txt", path), run->error)) return 0;
    int whole = rows_origin(file.file, run);
    fprintf(file.file, "\n%.17g\n", result->seconds + evidence_seconds());
    for (size_t i = 0; i < result->points; i++)
        fprintf(file.file, "%zu %.17g\n", result->curve[i].step, result->curve[i].loss);
    if (!text_end(&file, whole, run->error)) return 0;
    return !cmha_trainer_save(trainer, kept_path(run, ".safetensors", path)) ||
           evidence_fail(run->error, "%s", cmha_error(trainer->context));
}

/* Reads KEEP.txt; 0 where it is of another program, setting or machine. */
static int read_kept(FILE *file, const evidence_run *run, evidence_result *result) {
    char *origin = NULL, *line = NULL;
    size_t n = 0, step;
    double loss;
    FILE *memory = open_memstream(&origin, &n);
    int whole = memory && rows_origin(memory, run);
    whole = whole && fputc('\n', memory) != EOF;
    if (memory && fclose(memory)) whole = 0;
    whole = getline(&line, &n, file) > 0 && whole && !strcmp(line, origin);
    whole = whole && fscanf(file, "%lf", &result->seconds) == 1;
    while (whole && fscanf(file, "%zu %lf", &step, &loss) == 2) whole = evidence_point(result, step, loss);
    free(origin), free(line);
    return whole;
}

/* Goes on where the run was stopped, if its state is there. */
static int take_up(const evidence_run *run, cmha_trainer *trainer, evidence_result *result) {
    evidence_result kept = *result;
    char path[1100];
    FILE *file = fopen(kept_path(run, ".txt", path), "r");
    if (!file) return 1;
    int usable = read_kept(file, run, &kept);
    fclose(file);
    if (access(kept_path(run, ".safetensors", path), R_OK)) return 1;
    if (!usable) {
        fprintf(stderr, "evidence: %s is of another build or CPU: begins anew\n", path);
        return evidence_forget(run), 1;
    }
    if (cmha_trainer_read(trainer, path))
        return evidence_fail(run->error, "%s (remove it to begin anew)", cmha_error(trainer->context));
    while (kept.points && kept.curve[kept.points - 1].step > trainer->step) kept.points--;
    fprintf(stderr, "evidence: %s goes on at step %zu\n", path, trainer->step);
    return *result = kept, 1;
}

/* The loss on so many tokens of the held-out text; NaN where it is not finite. */
static int judge(const evidence_run *run, cmha_trainer *trainer, const cmha_tokens *held_out, size_t tokens,
                 double *loss) {
    size_t usual = trainer->config.eval_tokens;
    trainer->config.eval_tokens = tokens;
    cmha_status status = cmha_trainer_evaluate(trainer, held_out, loss);
    trainer->config.eval_tokens = usual;
    if (status == CMHA_ERR_NOT_FINITE) *loss = NAN;
    else if (status) return evidence_fail(run->error, "%s", cmha_error(trainer->context));
    return 1;
}

int evidence_train(const evidence_run *run, cmha_trainer *trainer, const cmha_tokens *train,
                   const cmha_tokens *held_out, evidence_result *result, double *loss) {
    const cmha_trainer_config *c = &trainer->config;
    size_t every = (c->steps + 15) / 16, few = (c->eval_tokens + 7) / 8, bad = 0, sums = 0;
    double one, sum = 0;
    int keeps = run->keep && !result->points; /* a second training begins with what the first one left */
    if (keeps && !take_up(run, trainer, result)) return 0;
    for (*loss = NAN; trainer->step < c->steps && bad < 10;) {
        cmha_status status = cmha_trainer_step(trainer, train, &one);
        bad = status == CMHA_ERR_NOT_FINITE ? bad + 1 : 0;
        if (status && !bad) return evidence_fail(run->error, "%s", cmha_error(trainer->context));
        if (!bad) sum += one, sums++;
        if (bad || (trainer->step % every && trainer->step < c->steps)) continue;
        *loss = sum / (double)sums;
        if (held_out && !judge(run, trainer, held_out, few, loss)) return 0;
        sum = 0, sums = 0;
        evidence_point(result, trainer->step, *loss);
        if (keeps && trainer->step < c->steps && !keep_state(run, trainer, result)) return 0;
    }
    if (bad) *loss = NAN;
    else if (held_out && !judge(run, trainer, held_out, c->eval_tokens, loss)) return 0;
    else if (!sees_nothing_later(run, trainer->context, trainer->model)) return 0;
    result->parameters = trainer->model->parameters.learning;
    result->tokens = (double)trainer->step * (double)(c->batch * c->length * c->accumulate);
    return 1;
}
