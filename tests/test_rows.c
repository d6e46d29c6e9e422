/* Rows of a user's own (examples/tools/rows.h): what is refused, and with which line. tests/rows.sh has the
   programs, and files that are loaded. */
#include "check.h"

#include "../examples/tools/rows.h"

static char line[TEXT_ERROR];

static void update(const cmha_optimiser *optimiser, const cmha_update *u) { (void)optimiser, (void)u; }

static own_rows fitting(void) {
    own_rows rows;
    memset(&rows, 0, sizeof rows);
    rows.version = CMHA_VERSION, rows.real = sizeof(cmha_real);
    rows.score = sizeof(cmha_score), rows.optimiser = sizeof(cmha_optimiser);
    return rows;
}

static int refuses(const own_rows *rows, const char *words) {
    *line = 0;
    return !own_rows_fit(rows, "a file", line) && strstr(line, words) != NULL;
}

static void marks(void) {
    own_rows rows = fitting();
    CHECK(own_rows_fit(&rows, "a file", line));
    rows.version = CMHA_VERSION / 100 * 100 + 99; /* another patch fits */
    CHECK(own_rows_fit(&rows, "a file", line));
    rows = fitting(), rows.version += 100, CHECK(refuses(&rows, "for version"));
    rows = fitting(), rows.version -= 100, CHECK(refuses(&rows, "for version"));
    rows = fitting(), rows.real ^= 12, CHECK(refuses(&rows, "numbers of"));
    rows = fitting(), rows.score += 8, CHECK(refuses(&rows, "other sizes"));
    rows = fitting(), rows.optimiser -= 8, CHECK(refuses(&rows, "other sizes"));
    rows = fitting(), rows.n_scores = 1, CHECK(refuses(&rows, "not there"));
    rows = fitting(), rows.n_optimisers = 1, CHECK(refuses(&rows, "not there"));
    CHECK(refuses(NULL, "returns nothing"));
}

/* Do two scores and two optimisers of these names get on with the library's? */
static int takes(const char *a, const char *b, const char *c, const char *d) {
    cmha_score scores[2];
    cmha_optimiser optimisers[2];
    cmha_context context;
    cmha_context_config config;
    own_rows rows = fitting();
    memset(scores, 0, sizeof scores), memset(optimisers, 0, sizeof optimisers);
    memset(&config, 0, sizeof config);
    scores[0].name = a, scores[1].name = b, optimisers[0].name = c, optimisers[1].name = d;
    scores[0].planes = scores[1].planes = 1, optimisers[0].update = optimisers[1].update = update;
    rows.scores = scores, rows.n_scores = 2, rows.optimisers = optimisers, rows.n_optimisers = 2;
    own_rows_give(&rows, &config);
    CHECK_OK(cmha_context_init(&context, &config));
    *line = 0;
    int all = own_rows_names(&context, line);
    CHECK(all == !*line);
    cmha_context_close(&context);
    return all;
}

static void names(void) {
    CHECK(takes("a", "b", "c", "d"));
    CHECK(takes("same", "b", "same", "d")); /* a score and an optimiser may share one */
    CHECK(takes("a-name_of.31+letters-and-digits", "b", "c", "d"));
    CHECK(!takes("a-name_of.32+letters-and-digits0", "b", "c", "d") && strstr(line, "1 to 31"));
    CHECK(!takes("a", "", "c", "d") && !takes("a", NULL, "c", "d") && !takes("a b", "b", "c", "d"));
    CHECK(!takes("a", "a", "c", "d") && strstr(line, "already an attention a"));
    CHECK(!takes("a", "rope", "c", "d") && strstr(line, "rope"));
    CHECK(!takes("a", "b", "c", "c") && strstr(line, "already an optimiser c"));
    CHECK(!takes("a", "b", "c", "adamw") && !takes("a", "b", "muon", "d") && strstr(line, "muon"));
    CHECK(!takes("a", "b", "c", NULL) && !takes("a", "b", "", "d"));
}

static void hints(void) {
    CHECK(!*own_rows_hint("there is no kind of attention", 0));
    CHECK(strstr(own_rows_hint("model: there is no score x", 0), "--rows names the file"));
    CHECK(strstr(own_rows_hint("there is no optimiser x", 1), "have none of that name"));
}

static void kinds(void) {
    cmha_score scores[2];
    cmha_context context;
    cmha_context_config config;
    cmha_model_config model;
    memset(scores, 0, sizeof scores), memset(&config, 0, sizeof config);
    scores[0].name = "one", scores[1].name = "two", scores[0].planes = scores[1].planes = 1;
    config.scores = scores, config.n_scores = 2;
    CHECK_OK(cmha_context_init(&context, &config));
    CHECK_OK(cmha_preset(&context, "cope", &model, NULL));
    CHECK(!own_rows_kind(&context, "three", &model) && model.family == CMHA_FAMILY_COPE);
    CHECK(own_rows_kind(&context, "two", &model) && model.family == CMHA_FAMILY_REAL);
    CHECK(!strcmp(model.score, "two"));
    cmha_context_close(&context);
}

static void files(void) {
    own_rows rows;
    CHECK(own_rows_find(NULL, &rows, line) && !rows.n_scores && !rows.n_optimisers);
    *line = 0;
    CHECK(!own_rows_find("/nowhere/at/all.so", &rows, line) && strstr(line, "/nowhere/at/all.so"));
    *line = 0;
    CHECK(!own_rows_find("/", &rows, line) && *line);
}

int main(void) {
    marks();
    names();
    hints();
    kinds();
    files();
    return check_end();
}
