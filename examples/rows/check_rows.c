/* Checks rows of one's own before they are used: are derivatives right, does no token see a later one, does a
   cache give what the whole pass gives, do threads change nothing, is an optimiser's update the same in one
   piece and in two? With fields of the model, if other ones than the usual are wanted:
       cc -O1 -fopenmp -DCMHA_DOUBLE -DCMHA_NO_CBLAS -I. examples/rows/check_rows.c examples/rows/my_rows.c \
           -o check_rows -lm
       ./check_rows n_kv_heads=1 window=6
   Exit status 1 if a row is wrong. Without -DCMHA_DOUBLE only coarse mistakes show; without -fopenmp there is
   one thread. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#include "examples/tools/own_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 20, V = 32, PIECE = 24 }; /* tokens, vocabulary, numbers that an optimiser gets */
static const double tolerance = sizeof(cmha_real) == 8 ? 1e-9 : 1e-3;

static cmha_context ctx;
static cmha_model model;
static cmha_model_config mc;
static int32_t ids[N + 1];
static cmha_real seen[N * V], again[N * V];
static int wrong;

/* What is printed behind a finding. */
static const char *mark(int right) {
    wrong |= !right;
    return right ? "" : " WRONG";
}

/* The largest difference of two arrays; a NaN counts as infinity. */
static double apart(size_t n, const cmha_real *a, const cmha_real *b) {
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most)) most = d <= 1e300 ? d : (double)INFINITY;
    }
    return most;
}

/* Opens a small model of that score. 0, and nothing open, with a line. */
static int opens(const char *score, int threads, char **fields) {
    const own_rows *rows = cmha_own_rows();
    cmha_context_config config;
    char words[256];
    memset(&config, 0, sizeof config);
    config.scores = rows->scores, config.n_scores = rows->n_scores;
    config.optimisers = rows->optimisers, config.n_optimisers = rows->n_optimisers;
    config.threads = threads, config.seed = 1;
    snprintf(words, sizeof words,
             "family=real position=none score=%.40s n_layers=2 d_model=16 n_heads=2 d_ff=16 init_std=0.3 "
             "vocabulary=%d", score, V);
    int status = cmha_context_init(&ctx, &config) || cmha_preset(&ctx, "tiny", &mc, NULL) ||
                 cmha_config_set_all(&ctx, cmha_model_table(), &mc, words);
    for (; !status && *fields; fields++)
        status = cmha_config_set_all(&ctx, cmha_model_table(), &mc, *fields) != CMHA_OK;
    int own = !status && mc.vocabulary != V; /* the arrays of logits have room for V a token */
    if (!status && !own && !cmha_model_init(&model, &ctx, &mc)) return 1;
    printf("  refused: %s%s\n", own ? "vocabulary is the program's own field" : cmha_error(&ctx), mark(0));
    return cmha_context_close(&ctx), 0;
}

static void closes(void) { cmha_model_close(&model), cmha_context_close(&ctx); }

static cmha_batch tokens(void) {
    cmha_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.targets = ids + 1, batch.batch = 1, batch.length = N;
    return batch;
}

static int sees(cmha_real *logits) {
    cmha_batch batch = tokens();
    batch.targets = NULL;
    if (!cmha_model_logits(&model, &batch, logits)) return 1;
    return printf("  %s%s\n", cmha_error(&ctx), mark(0)), 0;
}

static cmha_status loss_of(void *batch, double *loss) {
    return cmha_model_loss(&model, (const cmha_batch *)batch, loss);
}

static void gradients(void) {
    cmha_batch batch = tokens();
    double loss, error;
    if (cmha_model_gradient(&model, &batch, 1, 0, &loss)) {
        printf("  %s%s\n", cmha_error(&ctx), mark(0));
        return;
    }
    for (size_t i = 0; i < model.parameters.count; i++) {
        const cmha_parameter *one = &model.parameters.list[i];
        size_t zeros = 0;
        while (zeros < one->tensor.size && fabs((double)one->tensor.grad[zeros]) <= 0) zeros++;
        if (zeros == one->tensor.size) printf("  note: %s has no derivative here\n", one->name);
    }
    if (cmha_gradient_check(&model.parameters, loss_of, &batch, &error)) {
        printf("  %s%s\n", cmha_error(&ctx), mark(0));
        return;
    }
    int right = error <= (sizeof(cmha_real) == 8 ? 1e-3 : 1e-2);
    printf("  gradients within %.0e of differences%s\n", error, mark(right));
    if (!right) printf("  %s\n", cmha_error(&ctx));
}

/* The last token is another one: do the logits before it stay? */
static void later_tokens(void) {
    int32_t last = ids[N - 1];
    ids[N - 1] = (last + 1) % V;
    if (sees(again)) {
        double moved = apart((N - 1) * V, seen, again);
        printf("  a later token moves logits by %.0e%s\n", moved, mark(moved <= tolerance));
    }
    ids[N - 1] = last;
}

static void cached(void) {
    static const size_t pieces[] = {5, 1, 1, 4, 1, 8};
    cmha_cache cache;
    size_t end = 0;
    double most = 0;
    int fails = cmha_cache_init(&cache, &model, 1, N, 0, NULL) != CMHA_OK;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        fails = fails || cmha_cache_append(&cache, ids + end, pieces[i], again) != CMHA_OK;
        if (fails) break;
        end += pieces[i];
        double far = apart(V, again, seen + (end - 1) * V);
        if (far > most) most = far;
    }
    if (fails) printf("  %s%s\n", cmha_error(&ctx), mark(0));
    else printf("  a cache is within %.0e of the whole pass%s\n", most, mark(most <= tolerance));
    cmha_cache_close(&cache);
}

static void check_score(const cmha_score *score, char **fields) {
    printf("%s\n", score->name ? score->name : "(no name)"), fflush(stdout); /* should it crash */
    if (!opens(score->name ? score->name : "?", 1, fields)) return;
    if (sees(seen)) {
        gradients();
        if (mc.causal) later_tokens();
        if (mc.causal && !score->whole) cached();
    }
    closes();
    if (!opens(score->name, 3, fields)) return;
    if (sees(again)) {
        double far = apart(N * V, seen, again);
        printf("  with three threads within %.0e%s\n", far, mark(far <= tolerance));
    }
    closes();
}

/* Three steps of numbers, in one piece or in two, as several threads take them. */
static void step(const cmha_optimiser *row, size_t cut, cmha_real *p, cmha_real *moments) {
    cmha_adamw_args args;
    cmha_real g[PIECE];
    memset(&args, 0, sizeof args);
    args.lr = 0.01, args.beta1 = 0.9, args.beta2 = 0.99, args.eps = 1e-8, args.weight_decay = 0.1;
    args.momentum = 0.9, args.grad_scale = 0.5;
    memset(moments, 0, 2 * PIECE * sizeof *moments);
    for (size_t i = 0; i < PIECE; i++) p[i] = (cmha_real)cos((double)i);
    for (args.t = 1; args.t <= 3; args.t++) {
        for (size_t i = 0; i < PIECE; i++) g[i] = (cmha_real)sin((double)(i * args.t));
        if (row->direct) memcpy(p, g, sizeof g); /* it works in place */
        for (size_t at = 0, n; at < PIECE; at += n) {
            n = at ? PIECE - at : cut;
            cmha_update u = {&args, n, p + at, row->direct ? p + at : g + at, NULL, NULL};
            if (row->moments > 0) u.m = moments + at;
            if (row->moments > 1) u.v = moments + PIECE + at;
            row->update(row, &u);
        }
    }
}

static void check_optimiser(const cmha_optimiser *row, char **fields) {
    static cmha_real p[2][PIECE], moments[2][2 * PIECE];
    printf("%s\n", row->name ? row->name : "(no name)"), fflush(stdout);
    if (!opens("", 1, fields)) return;
    int fails = cmha_parameters_optimiser(&model.parameters, row->name ? row->name : "?") != CMHA_OK;
    if (fails) printf("  refused: %s%s\n", cmha_error(&ctx), mark(0));
    closes();
    if (fails) return;
    step(row, PIECE, p[0], moments[0]), step(row, 7, p[1], moments[1]);
    double far = apart(PIECE, p[0], p[1]) + apart(2 * PIECE, moments[0], moments[1]);
    printf("  in two pieces within %.0e%s\n", far, mark(far <= 0));
}

int main(int argc, char **argv) {
    const own_rows *rows = cmha_own_rows();
    int help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (help) puts("check_rows [FIELD=VALUE..]: checks the scores, layers and optimisers linked into it");
    for (int i = 0; i <= N; i++) ids[i] = (i * 7 + i * i * 3) % V;
    for (size_t i = 0; !help && i < rows->n_scores; i++) check_score(&rows->scores[i], argv + 1);
    for (size_t i = 0; !help && i < rows->n_optimisers; i++) check_optimiser(&rows->optimisers[i], argv + 1);
    return fclose(stdout) ? perror("check_rows"), 1 : wrong;
}
