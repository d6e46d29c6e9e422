/* papers.c - claims of CoPE, of MöbiusAttention, about a RoPE model opened as ComplexFormer, and music:
   models that are trained here. tools.c has those that other programs of this project train. */
#include "papers.h"

#include "../../examples/tools/labelled.h"
#include "../../examples/tools/mobius_geometry.h"

/* The library's line of a call that has failed, if it has. */
static int went(const evidence_run *run, const cmha_context *ctx, cmha_status status) {
    return !status || evidence_fail(run->error, "%s", cmha_error(ctx));
}

/* ---- Equal numbers ---- */

/* Numbers of a model but its embeddings of tokens and positions, with d_ff as given; 0: it is refused. */
static size_t count(cmha_context *ctx, const cmha_model_config *config, size_t d_ff) {
    cmha_model_config c = *config;
    size_t bytes = 0;
    c.d_ff = d_ff, c.vocabulary = c.tokens ? 16 : 0, c.max_positions = 1;
    if (cmha_model_memory(ctx, &c, 1, 1, &bytes, NULL)) return 0;
    return bytes / sizeof(cmha_real);
}

int papers_match(const evidence_run *run, cmha_context *ctx, cmha_model_config *config, double *apart) {
    evidence_run first = *run;
    cmha_model_config base;
    size_t low = 1, high = 4 * config->d_ff, most, numbers;
    first.variant = &run->claim->variants[0];
    if (!evidence_configure(&first, ctx, &base, NULL)) return 0;
    base.token_types = config->token_types, base.classes = config->classes;
    most = count(ctx, &base, base.d_ff), numbers = count(ctx, config, config->d_ff);
    if (!most || !numbers) return went(run, ctx, CMHA_ERR_SHAPE);
    if (fabs((double)numbers - (double)most) > 0.01 * (double)most) {
        while (high - low > 1) {
            size_t middle = (low + high) / 2;
            if (count(ctx, config, 2 * middle) <= most) low = middle;
            else high = middle;
        }
        config->d_ff = 2 * low, numbers = count(ctx, config, 2 * low);
    }
    if (apart) *apart = (double)numbers - (double)most;
    return 1;
}

/* ---- CoPE's RoPE ---- */

/* The RoPE that CoPE is compared with in its authors' code, as PAPERS.md says: number c of a head is turned
   with number c + d/2, as half-split pairs are, but by the angle of pair c/2, as if neighbours were pairs:
   its partner turns by another one, (c + d/2)/2. */
static void mixed_map(const cmha_score_call *call, cmha_rows x, size_t n, cmha_real *y) {
    size_t d = call->args->d_k, P = d / 2;
    for (size_t i = 0; i < n; i++) {
        const cmha_real *from = x.data + i * x.ld, *c = call->rotation + i * d, *s = c + P;
        cmha_real *to = y + i * d;
        for (size_t j = 0; j < P; j++) {
            size_t k = j / 2, m = (j + P) / 2;
            to[j] = from[j] * c[k] - from[j + P] * s[k];
            to[j + P] = from[j + P] * c[m] + from[j] * s[m];
        }
    }
}

static void mixed_back(const cmha_score_call *call, cmha_rows x, size_t n, const cmha_real *dy,
                       cmha_rows dx) {
    size_t d = call->args->d_k, P = d / 2;
    (void)x;
    for (size_t i = 0; dx.data && i < n; i++) {
        const cmha_real *from = dy + i * d, *c = call->rotation + i * d, *s = c + P;
        cmha_real *to = dx.data + i * dx.ld;
        for (size_t j = 0; j < P; j++) {
            size_t k = j / 2, m = (j + P) / 2;
            to[j] += from[j] * c[k] + from[j + P] * s[m];
            to[j + P] += from[j + P] * c[m] - from[j] * s[k];
        }
    }
}

static const cmha_score mixed_rope = {.name = "rope-mixed", .planes = 1, .rotates = 1, .shared_keys = 1,
                                      .map = mixed_map, .map_back = mixed_back};

/* As evidence_open, with that score before those of --rows. */
static int open_context(const evidence_run *run, cmha_context *ctx) {
    static cmha_score scores[16];
    cmha_context_config config;
    size_t most = sizeof scores / sizeof *scores, more = evidence_rows.n_scores;
    if (more >= most) return evidence_fail(run->error, "of --rows this claim takes %zu scores", most - 1);
    scores[0] = mixed_rope;
    if (more) memcpy(scores + 1, evidence_rows.scores, more * sizeof *scores);
    memset(&config, 0, sizeof config);
    config.seed = run->seed, config.threads = run->threads;
    config.scores = scores, config.n_scores = 1 + more;
    config.optimisers = evidence_rows.optimisers, config.n_optimisers = evidence_rows.n_optimisers;
    return went(run, ctx, cmha_context_init(ctx, &config));
}

/* A step that came to nothing is skipped; ten in a row are a run that diverged, 0 with *diverged. */
static int step_went(const evidence_run *run, const cmha_context *ctx, cmha_status status, int *bad) {
    *bad = status == CMHA_ERR_NOT_FINITE ? *bad + 1 : 0;
    return *bad || went(run, ctx, status);
}
enum { DIVERGED = 10 };

/* ---- Labelled texts: GLUE ---- */

typedef struct glue {
    cmha_context ctx;
    cmha_model_config mc;
    cmha_trainer_config tc;
    codec words;
    text_labels labels;
    labelled train, dev;
    labelled_room room;
    cmha_model model;
    cmha_trainer trainer;
    const labelled_task *task;
    int metric;
} glue;

static void close_glue(glue *g) {
    cmha_trainer_close(&g->trainer), cmha_model_close(&g->model), labelled_room_close(&g->room);
    labelled_close(&g->train), labelled_close(&g->dev), text_labels_close(&g->labels);
    codec_close(&g->words), cmha_context_close(&g->ctx);
    free(g);
}

/* Reads FOLDER/train.tsv or dev.tsv of the run's task. */
static int read_glue(const evidence_run *run, glue *g, labelled *rows, const char *file) {
    char folder[64] = "", name[128], path[1024], columns[3][256];
    const char *const names[3] = {columns[0], columns[1], columns[2]};
    int n, regression = g->metric >= LABELLED_SPEARMAN;
    evidence_word(run, "glue.folder", folder);
    snprintf(name, sizeof name, "glue/%s/%s", folder, file);
    if (!evidence_data(run, name, path) ||
        !labelled_columns(g->task->columns, 0, columns, &n, run->error) ||
        !text_table_load(&rows->table, path, (size_t)1 << 31, names, (size_t)n, run->error))
        return 0;
    if (rows->table.rows < 2) return evidence_fail(run->error, "there are no rows in %s", path);
    if (!labelled_encode(rows, &g->words, 1, g->tc.length, g->tc.batch, run->seed, run->error)) return 0;
    if (!regression && !g->labels.n && !text_labels_collect(&g->labels, &rows->table, 0, 100, run->error))
        return 0;
    return text_values(&rows->table, 0, regression ? NULL : &g->labels, path, rows->label, run->error);
}

static int open_glue(const evidence_run *run, glue *g) {
    char vocabulary[1024];
    if (!open_context(run, &g->ctx) || !evidence_configure(run, &g->ctx, &g->mc, &g->tc)) return 0;
    g->task = labelled_task_named(run->part->name);
    if (!g->task) return evidence_fail(run->error, "no task of GLUE: %s", run->part->name);
    g->metric = labelled_metric_named(g->task->metric);
    if (!evidence_data(run, "tokenizers/bert/vocab.txt", vocabulary) ||
        !codec_open(&g->words, vocabulary, vocabulary, "", 0, run->error))
        return 0;
    codec_add_specials(&g->words);
    if (!read_glue(run, g, &g->train, "train.tsv") || !read_glue(run, g, &g->dev, "dev.tsv")) return 0;
    size_t rows = (size_t)evidence_number(run, "glue.rows", 0), epochs;
    text_shuffle(g->train.order, g->train.n, 0); /* the same rows for every seed */
    if (rows && rows < g->train.n) g->train.n = rows;
    g->train.batches = (g->train.n + g->tc.batch - 1) / g->tc.batch;
    epochs = (size_t)evidence_number(run, "glue.epochs", 1);
    g->tc.steps = g->train.batches * (epochs ? epochs : 1);
    g->mc.classes = g->metric < LABELLED_SPEARMAN ? g->labels.n : 1;
    g->mc.vocabulary = g->words.size, g->mc.token_types = 2;
    if (g->mc.classes > 1) g->mc.label_range = 0;
    if (!papers_match(run, &g->ctx, &g->mc, NULL) ||
        !labelled_room_init(&g->room, g->tc.batch, g->tc.length, g->mc.classes, g->words.pad, run->error) ||
        !evidence_start(run, &g->ctx, &g->mc, &g->model, NULL))
        return 0;
    return went(run, &g->ctx, cmha_trainer_init(&g->trainer, &g->model, &g->tc));
}

/* What the model says of the other rows: the task's metric in percent as `score`, others beside it. */
static int score_glue(const evidence_run *run, glue *g, double *score, evidence_result *result) {
    int32_t *choice = text_memory(NULL, g->dev.n, 1, sizeof *choice);
    double *value = text_memory(NULL, g->dev.n, 1, sizeof *value);
    int regression = g->metric >= LABELLED_SPEARMAN, done = choice && value;
    if (!done) evidence_fail(run->error, "no memory for %zu rows", g->dev.n);
    else done = went(run, &g->ctx, labelled_judge(&g->model, &g->dev, &g->room, choice, value));
    if (done) *score = 100 * labelled_metric(g->metric, &g->dev, g->mc.classes, choice, value);
    for (int m = regression ? LABELLED_SPEARMAN : 0; done && result && m < LABELLED_METRICS; m++) {
        if (!regression && m >= LABELLED_SPEARMAN) break;
        if (m == LABELLED_F1 && g->mc.classes != 2) continue;
        evidence_add(result, labelled_metrics[m],
                     100 * labelled_metric(m, &g->dev, g->mc.classes, choice, value));
    }
    free(choice), free(value);
    return done;
}

static int learn_glue(const evidence_run *run, glue *g, evidence_result *result) {
    double sum = 0, loss, score = NAN, best = -INFINITY, last = NAN;
    size_t steps = 0;
    int bad = 0;
    while (g->trainer.step < g->tc.steps && bad < DIVERGED) {
        size_t at = g->trainer.step % g->train.batches, epoch = g->trainer.step / g->train.batches;
        if (!at) {
            text_arrange(&g->train.examples, g->train.order, g->train.n, g->tc.batch,
                         (run->seed << 32) + epoch, g->train.turn);
            sum = 0, steps = 0;
        }
        cmha_batch b = labelled_batch(&g->train, g->train.turn[at], &g->room);
        b.labels = g->room.labels;
        for (size_t i = 0; i < b.batch * b.length; i++) result->tokens += g->room.mask[i];
        if (!step_went(run, &g->ctx, cmha_trainer_step_batch(&g->trainer, &b, &loss), &bad)) return 0;
        if (!bad) sum += loss, steps++;
        if (at + 1 < g->train.batches) continue;
        last = sum / (double)(steps ? steps : 1);
        evidence_point(result, g->trainer.step, last);
        if (!score_glue(run, g, &score, NULL)) return 0;
        if (score > best) best = score;
    }
    if (bad == DIVERGED) return evidence_add(result, "score", NAN);
    evidence_add(result, "score", score), evidence_add(result, "best", best);
    evidence_add(result, "train_loss", last), evidence_add(result, "d_ff", (double)g->mc.d_ff);
    return score_glue(run, g, &score, result);
}

/* Trains an encoder from its start on a task of GLUE and measures it after the last epoch; `best` is that of
   the epochs, which chose itself on the rows that it is measured on. */
static int run_glue(const evidence_run *run, evidence_result *result) {
    glue *g = calloc(1, sizeof *g);
    if (!g) return evidence_fail(run->error, "no memory for a task");
    int done = open_glue(run, g) && learn_glue(run, g, result);
    result->parameters = g->model.parameters.learning;
    close_glue(g);
    return done;
}

/* ---- Texts ---- */

/* The shares of the model's Möbius maps that are of each geometry; names begin with `when`. */
static void count_geometries(const cmha_model *model, const char *when, double tolerance,
                             evidence_result *result) {
    size_t counts[MOBIUS_GEOMETRIES] = {0}, all = 0;
    for (size_t l = 0; l < model->config.n_layers; l++) {
        const cmha_tensor *maps = model->blocks[l].mobius;
        size_t D = maps ? maps->shape[2] : 0, one[MOBIUS_GEOMETRIES];
        mobius_class *classes = D ? malloc(D * sizeof *classes) : NULL;
        if (!classes) continue;
        mobius_classify(maps->data, D, tolerance, classes), mobius_count(classes, D, one);
        for (int g = 0; g < MOBIUS_GEOMETRIES; g++) counts[g] += one[g];
        all += D, free(classes);
    }
    for (int g = 0; all && g < MOBIUS_GEOMETRIES; g++) {
        char name[32];
        snprintf(name, sizeof name, "%s_%s", when, mobius_name((mobius_geometry)g));
        evidence_add(result, name, (double)counts[g] / (double)all);
    }
}

/* Trains on the bytes of a text, decoders by the next byte and encoders by hidden ones, and measures on its
   last tenth. */
static int run_text(const evidence_run *run, evidence_result *result) {
    cmha_context ctx;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config mc;
    cmha_trainer_config tc;
    cmha_tokens text, train, held_out;
    char name[64] = "", path[1024];
    double loss = NAN, paired = 0;
    memset(&model, 0, sizeof model), memset(&trainer, 0, sizeof trainer), memset(&text, 0, sizeof text);
    evidence_word(run, "text.file", name);
    if (!evidence_data(run, name, path) || !open_context(run, &ctx)) return 0;
    int done = evidence_configure(run, &ctx, &mc, &tc) && papers_match(run, &ctx, &mc, NULL) &&
               went(run, &ctx, cmha_tokens_open(&text, &ctx, path, 1)) &&
               evidence_start(run, &ctx, &mc, &model, &paired) &&
               went(run, &ctx, cmha_trainer_init(&trainer, &model, &tc));
    if (done) {
        count_geometries(&model, "start", 0.1, result);
        cmha_trainer_split(&trainer, &text, &train, &held_out);
        done = evidence_train(run, &trainer, &train, &held_out, result, &loss);
    }
    if (done) {
        evidence_add(result, "val", loss), evidence_add(result, "paired", paired);
        evidence_add(result, "d_ff", (double)mc.d_ff);
        count_geometries(&model, "near", 0.1, result), count_geometries(&model, "close", 0.01, result);
    }
    result->parameters = model.parameters.learning;
    result->tokens = (double)trainer.step * (double)tc.batch * (double)tc.length;
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_tokens_close(&text);
    cmha_context_close(&ctx);
    return done;
}

/* ---- Music ---- */

/* Chorales as tokens. A chorale is, quarter by quarter, its pitches from the lowest on (each once) and then
   NEXT; before the first quarter and behind the last one stands EDGE. */
enum { EDGE, NEXT, LOWEST, LEAST_PITCH = 36, MOST_PITCH = 99,
       MUSIC_TOKENS = LOWEST + MOST_PITCH - LEAST_PITCH + 1 };
typedef struct pieces {
    text_examples e;       /* one chorale after another */
    codec_ids ids;         /* e.ids, while they grow */
    size_t longest, notes; /* in tokens; of all chorales */
} pieces;

static void close_pieces(pieces *p) {
    codec_ids_free(&p->ids), p->e.ids = NULL;
    text_examples_close(&p->e);
    memset(p, 0, sizeof *p);
}

/* Steps over blanks and, if it comes next, the character c; tells whether it did. */
static int next_is(const char **at, char c) {
    *at += strspn(*at, " \t\r\n");
    return **at == c ? (*at)++, 1 : 0;
}

/* Reads a list of pitches "[60, 64, 67]", ascending as the file has them. */
static int read_quarter(const char **at, codec_ids *ids, char *error) {
    const int32_t next = NEXT;
    long last = 0;
    if (!next_is(at, '[')) return text_fail(error, "not a list of pitches: %.20s", *at);
    for (int first = 1; !next_is(at, ']'); first = 0) {
        char *end;
        if (!first && !next_is(at, ',')) return text_fail(error, "no comma between pitches: %.20s", *at);
        long pitch = strtol(*at, &end, 10);
        int32_t id = (int32_t)(pitch - LEAST_PITCH + LOWEST);
        if (end == *at || pitch < LEAST_PITCH || pitch > MOST_PITCH || pitch <= last)
            return text_fail(error, "not a pitch from %d to %d above the last one: %.20s", LEAST_PITCH,
                             MOST_PITCH, *at);
        last = pitch, *at = end;
        if (!codec_append(ids, &id, 1, error)) return 0;
    }
    return codec_append(ids, &next, 1, error);
}

/* Reads the chorales that stand under a name in the file's text, which ends with a 0. */
static int read_pieces(pieces *p, const char *text, const char *name, char *error) {
    const int32_t edge = EDGE;
    char key[32];
    memset(p, 0, sizeof *p);
    snprintf(key, sizeof key, "\"%s\"", name);
    const char *at = strstr(text, key);
    if (at) at += strlen(key);
    if (!at || !next_is(&at, ':') || !next_is(&at, '['))
        return text_fail(error, "there is no list %s of chorales", key);
    while (!next_is(&at, ']')) {
        size_t *start = text_memory(p->e.start, p->e.n + 2, 1, sizeof *start);
        if (!start) return text_fail(error, "no memory for chorales");
        p->e.start = start, start[p->e.n] = p->ids.n;
        if (p->e.n && !next_is(&at, ',')) return text_fail(error, "no comma between chorales: %.20s", at);
        if (!next_is(&at, '[')) return text_fail(error, "not a chorale: %.20s", at);
        if (!codec_append(&p->ids, &edge, 1, error)) return 0;
        for (int first = 1; !next_is(&at, ']'); first = 0) {
            if (!first && !next_is(&at, ',')) return text_fail(error, "no comma between quarters: %.20s", at);
            if (!read_quarter(&at, &p->ids, error)) return 0;
        }
        if (!codec_append(&p->ids, &edge, 1, error)) return 0;
        size_t length = p->ids.n - start[p->e.n];
        start[++p->e.n] = p->ids.n;
        if (length > p->longest) p->longest = length;
    }
    p->e.ids = p->ids.at, p->e.first = calloc(p->e.n + 1, sizeof *p->e.first);
    for (size_t i = 0; i < p->ids.n; i++) p->notes += p->ids.at[i] >= LOWEST;
    if (!p->e.n || !p->e.first) return text_fail(error, "there are no chorales under %s", key);
    return 1;
}

typedef struct music {
    cmha_context ctx;
    cmha_model_config mc;
    cmha_trainer_config tc;
    pieces part[3]; /* train, valid, test */
    size_t *order, *turn;
    int32_t *ids, *types, *targets;
    unsigned char *mask;
    cmha_model model;
    cmha_trainer trainer;
} music;
enum { TRAIN, VALID, TEST };

static void close_music(music *m) {
    cmha_trainer_close(&m->trainer), cmha_model_close(&m->model), cmha_context_close(&m->ctx);
    for (int p = TRAIN; p <= TEST; p++) close_pieces(&m->part[p]);
    free(m->order), free(m->turn), free(m->ids), free(m->types), free(m->targets), free(m->mask);
    free(m);
}

static int read_music(const evidence_run *run, music *m) {
    static const char *const names[] = {"train", "valid", "test"};
    char path[1024], why[EVIDENCE_ERROR];
    size_t bytes;
    char *text, *whole = NULL;
    if (!evidence_data(run, "music/jsb-chorales-quarter.json", path) ||
        !text_read(path, (size_t)1 << 26, &text, &bytes, run->error))
        return 0;
    int done = (whole = text_memory(text, bytes + 1, 1, 1)) != NULL;
    if (!done) free(text), evidence_fail(run->error, "no memory for %s", path);
    else whole[bytes] = 0;
    for (int p = TRAIN; done && p <= TEST; p++)
        if (!read_pieces(&m->part[p], whole, names[p], why))
            done = evidence_fail(run->error, "%.200s: %.200s", path, why);
    free(whole);
    return done;
}

static int open_music(const evidence_run *run, music *m) {
    size_t longest = 0, pieces_most = 0, room;
    if (!read_music(run, m) || !evidence_open(run, &m->ctx) ||
        !evidence_configure(run, &m->ctx, &m->mc, &m->tc))
        return 0;
    for (int p = TRAIN; p <= TEST; p++) {
        longest = m->part[p].longest > longest ? m->part[p].longest : longest;
        pieces_most = m->part[p].e.n > pieces_most ? m->part[p].e.n : pieces_most;
    }
    m->mc.vocabulary = MUSIC_TOKENS, m->tc.length = longest;
    room = m->tc.batch * longest;
    m->order = calloc(pieces_most, sizeof *m->order), m->turn = calloc(pieces_most, sizeof *m->turn);
    m->ids = calloc(room, sizeof *m->ids), m->types = calloc(room, sizeof *m->types);
    m->targets = calloc(room, sizeof *m->targets), m->mask = calloc(room, 1);
    if (!m->order || !m->turn || !m->ids || !m->types || !m->targets || !m->mask)
        return evidence_fail(run->error, "no memory for batches of chorales");
    return papers_match(run, &m->ctx, &m->mc, NULL) &&
           evidence_start(run, &m->ctx, &m->mc, &m->model, NULL) &&
           went(run, &m->ctx, cmha_trainer_init(&m->trainer, &m->model, &m->tc));
}

/* Batch number `which` of whole chorales: every token tells the next. With rng each chorale is played up to
   three semitones higher or lower. *targets counts, *notes are those among them. */
static cmha_batch lay_out_music(music *m, const pieces *p, size_t which, cmha_rng *rng, size_t *targets,
                                size_t *notes) {
    size_t first = which * m->tc.batch, left = p->e.n - first, i, t;
    cmha_batch b;
    memset(&b, 0, sizeof b);
    b.ids = m->ids, b.targets = m->targets, b.key_mask = m->mask;
    b.batch = left < m->tc.batch ? left : m->tc.batch;
    b.length = text_batch(&p->e, m->order + first, b.batch, 8, m->tc.length, EDGE, m->ids, m->types, m->mask);
    for (*targets = *notes = i = 0; i < b.batch; i++) {
        int32_t *ids = m->ids + i * b.length, *to = m->targets + i * b.length;
        int32_t shift = rng ? (int32_t)cmha_rng_below(rng, 7) - 3 : 0;
        for (t = 0; t < b.length; t++) {
            int32_t moved = ids[t] + shift;
            if (ids[t] >= LOWEST && moved >= LOWEST && moved < MUSIC_TOKENS) ids[t] = moved;
        }
        for (t = 0; t < b.length; t++) {
            size_t there = t + 1 < b.length && m->mask[i * b.length + t + 1];
            to[t] = there ? ids[t + 1] : -1;
            *targets += there, *notes += there && ids[t + 1] >= LOWEST;
        }
    }
    return b;
}

/* Nats of all tokens of a part's chorales, from their beginnings, for each of its notes; *quarter: for each
   of its quarters. */
static int score_music(const evidence_run *run, music *m, const pieces *p, double *note, double *quarter) {
    double nats = 0, loss;
    size_t all = 0, notes = 0, targets, some, batches;
    for (size_t i = 0; i < p->e.n; i++) m->order[i] = i;
    batches = text_arrange(&p->e, m->order, p->e.n, m->tc.batch, 1, m->turn);
    for (size_t which = 0; which < batches; which++) {
        cmha_batch b = lay_out_music(m, p, which, NULL, &targets, &some);
        cmha_status status = cmha_model_loss(&m->model, &b, &loss);
        if (status == CMHA_ERR_NOT_FINITE) loss = NAN;
        else if (!went(run, &m->ctx, status)) return 0;
        nats += loss * (double)targets, all += targets, notes += some;
    }
    *note = nats / (double)notes, *quarter = nats / (double)(all - notes - p->e.n);
    return 1;
}

static int learn_music(const evidence_run *run, music *m, evidence_result *result) {
    double loss, valid, quarter, best = INFINITY, test = NAN, test_quarter = NAN, step_of_best = 0;
    size_t every = (m->tc.steps + 15) / 16, batches = 0, at = 0, targets, notes, n = m->part[TRAIN].e.n;
    int bad = 0;
    while (m->trainer.step < m->tc.steps && bad < DIVERGED) {
        cmha_rng rng = cmha_rng_make(run->seed, m->trainer.step);
        if (at == batches) {
            for (size_t i = 0; i < n; i++) m->order[i] = i;
            batches = text_arrange(&m->part[TRAIN].e, m->order, n, m->tc.batch,
                                   (run->seed << 32) + m->trainer.step, m->turn);
            at = 0;
        }
        cmha_batch b = lay_out_music(m, &m->part[TRAIN], m->turn[at++], &rng, &targets, &notes);
        if (!step_went(run, &m->ctx, cmha_trainer_step_batch(&m->trainer, &b, &loss), &bad)) return 0;
        result->tokens += (double)targets;
        if (bad || (m->trainer.step % every && m->trainer.step < m->tc.steps)) continue;
        if (!score_music(run, m, &m->part[VALID], &valid, &quarter)) return 0;
        at = batches; /* the order was theirs meanwhile */
        evidence_point(result, m->trainer.step, valid);
        if (!(valid < best)) continue;
        best = valid, step_of_best = (double)m->trainer.step;
        if (!score_music(run, m, &m->part[TEST], &test, &test_quarter)) return 0;
    }
    evidence_add(result, "nats_note", test), evidence_add(result, "nats_quarter", test_quarter);
    evidence_add(result, "valid", best), evidence_add(result, "best_step", step_of_best);
    return evidence_add(result, "d_ff", (double)m->mc.d_ff);
}

/* Learns chorales, and measures the test ones where the validation ones were told best. */
static int run_music(const evidence_run *run, evidence_result *result) {
    music *m = calloc(1, sizeof *m);
    if (!m) return evidence_fail(run->error, "no memory for music");
    int done = open_music(run, m) && learn_music(run, m, result);
    result->parameters = m->model.parameters.learning;
    close_music(m);
    return done;
}

/* ---- A RoPE model opened as ComplexFormer ---- */

/* The paths of stories260K as a checkpoint of ours, and of a text in its tokens; made where they are not. */
static int make_stories(const evidence_run *run, char model[1024], char ids[1024]) {
    char bin[1024], vocabulary[1024], text[1024], own[1200], own_ids[1200], words_at[1300];
    char *said;
    const char *const convert[] = {"convert", "--tokenizer", vocabulary, bin, own, NULL};
    volatile sig_atomic_t stop = 0;
    codec words;
    if (!evidence_data(run, "weights/stories260k/stories260K.bin", bin) ||
        !evidence_data(run, "weights/stories260k/tok512.bin", vocabulary) ||
        !evidence_data(run, "books/tinyshakespeare.txt", text) ||
        !papers_work(run, "stories260k.safetensors", model) ||
        !papers_work(run, "tinyshakespeare.stories260k.ids", ids))
        return 0;
    if (papers_made(model, own)) return 1; /* the tokens came first */
    if (!papers_tool(run, convert, &said)) return 0;
    free(said);
    if (!codec_beside(own, ".tokenizer.json", words_at, sizeof words_at))
        return evidence_fail(run->error, "too long a path: %s", own);
    papers_made(ids, own_ids);
    int done = codec_open(&words, words_at, words_at, "", 0, run->error);
    done = done && codec_encode_file(&words, text, own_ids, &stop, run->error) &&
           papers_keep(run, own_ids, ids) && papers_keep(run, own, model);
    codec_close(&words), (void)remove(words_at), (void)remove(own);
    return done;
}

/* Learns another text, all numbers or those that settings finetune.train names; of LoRA its adapters. */
static int run_finetune(const evidence_run *run, evidence_result *result) {
    cmha_context ctx;
    cmha_model model;
    cmha_trainer trainer;
    cmha_model_config mc;
    cmha_trainer_config tc;
    cmha_tokens text, train, held_out;
    char path[1024], ids[1024], pattern[64];
    double before = NAN, loss = NAN;
    memset(&model, 0, sizeof model), memset(&trainer, 0, sizeof trainer), memset(&text, 0, sizeof text);
    if (!make_stories(run, path, ids) || !evidence_open(run, &ctx)) return 0;
    int done = evidence_configure(run, &ctx, &mc, &tc) &&
               went(run, &ctx, cmha_tokens_open(&text, &ctx, ids, 2)) &&
               went(run, &ctx, cmha_model_init(&model, &ctx, &mc)) &&
               went(run, &ctx, cmha_model_read(&model, path, 2, NULL));
    if (done && evidence_word(run, "finetune.freeze", pattern))
        done = went(run, &ctx, cmha_parameters_tune(&model.parameters, pattern, CMHA_TUNE_FROZEN, 1, NULL));
    if (done && evidence_word(run, "finetune.train", pattern))
        done = went(run, &ctx, cmha_parameters_tune(&model.parameters, pattern, CMHA_TUNE_FROZEN, 0, NULL));
    done = done && went(run, &ctx, cmha_trainer_init(&trainer, &model, &tc));
    if (done) cmha_trainer_split(&trainer, &text, &train, &held_out);
    done = done && went(run, &ctx, cmha_trainer_evaluate(&trainer, &held_out, &before)) &&
           evidence_train(run, &trainer, &train, &held_out, result, &loss);
    if (done) evidence_add(result, "val", loss), evidence_add(result, "before", before);
    cmha_trainer_close(&trainer), cmha_model_close(&model), cmha_tokens_close(&text);
    cmha_context_close(&ctx);
    return done;
}

/* ---- The claims ---- */

/* A small encoder in the paper's manner: post-norm, ReLU, [CLS]. */
#define COPE_SMALL \
    "preset=cope n_layers=2 d_model=64 n_heads=4 d_ff=128 dropout=0.1 attention_dropout=0.1 " \
    "max_positions=96 trainer.batch=32 trainer.length=96 trainer.warmup=0.1 trainer.weight_decay=0.01 " \
    "trainer.beta2=0.99 trainer.adam_eps=1e-8 "
static const evidence_part cope_sentences[] = {
    {"sst2", "SST-2, accuracy", COPE_SMALL "glue.folder=SST-2 glue.rows=16000 glue.epochs=3"}};
static const evidence_part cope_tasks[] = {
    {"cola", "CoLA, Matthews correlation", COPE_SMALL "glue.folder=CoLA glue.epochs=4"},
    {"mrpc", "MRPC, F1", COPE_SMALL "glue.folder=MRPC glue.epochs=4"},
    {"stsb", "STS-B, Spearman correlation", COPE_SMALL "glue.folder=STS-B glue.epochs=4 label_range=5"},
    {"rte", "RTE, accuracy", COPE_SMALL "glue.folder=RTE glue.epochs=4"}};
/* the last two for texts alone */
static const evidence_variant cope_variants[] = {
    {"rope", "RoPE", "kind=rope"},
    FLOOR("rope", "RoPE"),
    {"rope-mixed", "the authors' RoPE", "kind=rope score=rope-mixed"},
    {"none", "no positions", "kind=dot"},
    {"learned", "learned positions", "kind=dot+learned"},
    {"phase", "CoPE phase", "kind=cope-phase"},
    {"magnitude", "CoPE magnitude", "kind=cope-magnitude"},
    {"real", "CoPE real", "kind=cope-real"},
    {"hybrid", "CoPE hybrid", "kind=cope-hybrid"},
    {"hybrid_norm", "CoPE hybrid-norm", "kind=cope-hybrid_norm"},
    {"linear", "CoPE linear", "kind=cope-linear"},
    {"real-rope", "CoPE real, RoPE in the layers above", "kind=cope-real attention=rope"},
    {"sinusoidal", "sinusoidal positions", "kind=dot+sinusoidal"},
    {"phase-temperature", "CoPE phase, learned temperature", "kind=cope-phase head_temperature=1"},
    {"phase-both", "CoPE phase, learned temperature and gamma",
     "kind=cope-phase head_temperature=1 cope_gamma_learned=1"}};
#define COPE_CODE \
    " The authors' code chooses the epoch on the rows that it reports, and its RoPE (`rope-mixed`) is not " \
    "orthogonal."
const evidence_claim evidence_claim_cope_sst2 = {
    "cope_sst2", "CoPE on SST-2",
    "CoPE's Table 1: on SST-2 phase scores and sinusoidal positions have 82.57 %, RoPE 81.31." COPE_CODE,
    cope_sentences, LENGTH(cope_sentences), cope_variants, LENGTH(cope_variants) - 2, "score", "points", 1,
    12, {1e-4, 3e-4, 1e-3}, run_glue, 0.4, 0, NULL, 0, 0, 1, 0};
const evidence_claim evidence_claim_cope_glue = {
    "cope_glue", "CoPE on other tasks of GLUE",
    "CoPE's Table 1: on MRPC phase scores have an F1 of 81.71, RoPE 80.98, sinusoidal positions 79.74; on "
    "QNLI, not measured here, 59.86, 60.74 and 63.87 % are right." COPE_CODE,
    cope_tasks, LENGTH(cope_tasks), cope_variants, LENGTH(cope_variants) - 2, "score", "points", 1, 5,
    {1e-4, 3e-4, 1e-3}, run_glue, 0.2, 0, NULL, 0, 0, 1, 0};

#define TEXT_SMALL \
    "n_layers=3 d_model=128 n_heads=4 d_ff=512 max_positions=128 trainer.batch=16 trainer.length=128 " \
    "trainer.steps=250 trainer.eval_tokens=65536 "
static const evidence_part cope_texts[] = {
    {"shakespeare", "Tiny Shakespeare, next byte", TEXT_SMALL "text.file=books/tinyshakespeare.txt"}};
const evidence_claim evidence_claim_cope_text = {
    "cope_text", "CoPE as a language model",
    "CoPE's sections 3.3 and 3.4: positions in the first layer alone are enough, without RoPE's long-term "
    "decay; no language model is measured.",
    cope_texts, LENGTH(cope_texts), cope_variants, LENGTH(cope_variants), "val", "nats a byte", 0, 5,
    {1e-3, 3e-3, 1e-2}, run_text, 0.6, 0, NULL, 0, 0, 1, 0};

#define MOBIUS_SMALL \
    "n_layers=4 d_model=128 n_heads=4 d_ff=512 placement=post attention_bias=1 head_bias=1 " \
    "max_positions=128 trainer.batch=16 trainer.length=128 trainer.steps=250 trainer.warmup=0.5 " \
    "trainer.eval_tokens=65536 "
/* With norms behind its sublayers BERT learns nothing at 0.001 and above, unless the rate rises slowly. */
static const evidence_part mobius_texts[] = {
    {"shakespeare", "Tiny Shakespeare, next byte", MOBIUS_SMALL "text.file=books/tinyshakespeare.txt"}};
static const evidence_variant mobius_variants[] = {
    {"bert", "BERT (learned positions)", "kind=dot+learned"},
    FLOOR("bert", "BERT"),
    {"roformer", "RoFormer (RoPE)", "kind=rope"},
    {"framed", "framed, T, 2 of 4 heads", "kind=mobius"},
    {"framed-rope", "framed, T, RoPE in plain heads", "kind=mobius+rope"},
    {"top", "top", "kind=mobius mobius_wiring=top"},
    {"stacked", "stacked", "kind=mobius mobius_wiring=stacked"},
    {"framed-7", "framed, 7 layers", "kind=mobius n_layers=7"}, /* of four, alternating takes the same two */
    {"alternating", "alternating, 7 layers", "kind=mobius mobius_wiring=alternating n_layers=7"},
    {"full", "framed, full", "kind=mobius mobius_mode=full"},
    {"literal", "framed, literal", "kind=mobius mobius_mode=literal"},
    {"heads-1", "framed, T, 1 of 4 heads", "kind=mobius mobius_heads=1"},
    {"heads-3", "framed, T, 3 of 4 heads", "kind=mobius mobius_heads=3"},
    {"heads-4", "framed, T, all heads", "kind=mobius mobius_heads=4"},
    {"ortho", "framed, T, orthogonal start", "kind=mobius mobius_init=ortho"},
    {"softmax-real", "framed, T, softmax of the real part", "kind=mobius mobius_softmax=real"}};
const evidence_claim evidence_claim_mobius_text = {
    "mobius_text", "MöbiusAttention: wiring, modes, share of heads, learned geometries",
    "MöbiusAttention's section 5 and appendix A.7: framed beats stacked and alternating, and all geometries "
    "are learned (its Figure 3, by eye); half of the heads are Möbius by choice, other shares are not "
    "measured. Its models are pretrained once each and compared on GLUE.",
    mobius_texts, LENGTH(mobius_texts), mobius_variants, LENGTH(mobius_variants), "val", "nats a byte", 0, 5,
    {3e-4, 1e-3, 3e-3}, run_text, 0.7, 0, NULL, 0, 0, 1, 0};

#define MOBIUS_TASK \
    "preset=encoder placement=post attention_bias=1 n_layers=3 d_model=64 n_heads=4 d_ff=128 dropout=0.1 " \
    "attention_dropout=0.1 pool=first max_positions=96 trainer.batch=32 trainer.length=96 trainer.warmup=0.1 "
static const evidence_part mobius_tasks[] = {
    {"cola", "CoLA, Matthews correlation", MOBIUS_TASK "glue.folder=CoLA glue.epochs=4"},
    {"mrpc", "MRPC, F1", MOBIUS_TASK "glue.folder=MRPC glue.epochs=4"},
    {"rte", "RTE, accuracy", MOBIUS_TASK "glue.folder=RTE glue.epochs=4"}};
static const evidence_variant mobius_hosts[] = {
    {"bert", "BERT", "kind=dot+learned"},
    FLOOR("bert", "BERT"),
    {"mobiusbert", "MobiusBERT, H and T", "kind=mobius"},
    {"roformer", "RoFormer", "kind=rope"},
    {"mobroformer", "MobRoFormer, H and T", "kind=mobius+rope"}};
const evidence_claim evidence_claim_mobius_glue = {
    "mobius_glue", "MöbiusAttention on GLUE",
    "MöbiusAttention's Table 2, with H (half of the heads) and T (a linear map before the Möbius one): "
    "MobiusBERT and MobRoFormer beat their hosts on CoLA (56.84 to BERT's 56.29, 56.74 to RoFormer's 53.16) "
    "and RTE (76.75 to 76.61, 77.91 to 77.62); by MRPC's F1 the one does (91.5 to 90.88), the other does not "
    "(91.67 to 92.3). After pretraining on C4; here without any.",
    mobius_tasks, LENGTH(mobius_tasks), mobius_hosts, LENGTH(mobius_hosts), "score", "points", 1, 5,
    {1e-4, 3e-4, 1e-3}, run_glue, 0.2, 0, NULL, 0, 0, 1, 0};

/* stories260K as build/convert makes it of llama2.c's file */
static const evidence_part finetune_parts[] = {
    {"stories", "stories260K on Tiny Shakespeare",
     "n_layers=5 d_model=64 n_heads=8 n_kv_heads=4 d_ff=172 vocabulary=512 max_positions=512 norm=rmsnorm "
     "activation=swiglu ffn_bias=0 delta_init=const delta_value=1 trainer.steps=300 trainer.batch=8 "
     "trainer.length=256 trainer.warmup=0.1 trainer.weight_decay=0 trainer.eval_tokens=65536"}};
static const evidence_variant finetune_variants[] = {
    {"all", "all weights", "kind=rope"},
    FLOOR("all", "all weights"),
    {"all-delta", "all weights, δ and b", "kind=cmha"},
    {"delta", "δ and b alone", "kind=cmha finetune.freeze=* finetune.train=*.delta,*.b"},
    {"lora", "LoRA of rank 4 on q and v", "kind=rope lora_rank=4 lora_on=wq,wv"},
    {"lora-delta", "LoRA, δ and b", "kind=cmha lora_rank=4 lora_on=wq,wv finetune.train=*.delta,*.b"}};
const evidence_claim evidence_claim_finetune = {
    "finetune", "A RoPE model opened as ComplexFormer",
    "Ours: with δ = 1 and b = 0 a model that was trained with RoPE is a ComplexFormer, whose δ and b can "
    "learn.",
    finetune_parts, 1, finetune_variants, LENGTH(finetune_variants), "val", "nats a token", 0, 5,
    {3e-3, 3e-2, 1e-1}, run_finetune, 0.5, 0, NULL, 0, 0, 1, 0};

static const evidence_part music_parts[] = {{"jsb", "JSB chorales, quarter notes",
                                             "n_layers=3 d_model=128 n_heads=4 d_ff=256 dropout=0.2 "
                                             "max_positions=1024 choose=valid trainer.steps=400 "
                                             "trainer.batch=8 trainer.warmup=0.1"}};
static const evidence_variant music_variants[] = {
    {"rope", "RoPE", "kind=rope"},
    FLOOR("rope", "RoPE"),
    {"learned", "learned positions", "kind=dot+learned"},
    {"cmha", "ComplexFormer, δ from 1", "kind=cmha delta_init=rope_start"},
    {"cmha-near-0", "ComplexFormer, δ from near 0", "kind=cmha delta_init=paper"},
    {"pope", "PoPE", "kind=pope"}};
const evidence_claim evidence_claim_music = {
    "music", "Music",
    "PoPE (arXiv 2509.10534) claims lower losses than RoPE's on music, the JSB chorales among it.",
    music_parts, 1, music_variants, LENGTH(music_variants), "nats_note", "nats a note", 0, 8,
    {1e-3, 3e-3, 1e-2}, run_music, 0.8, 0, NULL, 0, 0, 1, 0};
