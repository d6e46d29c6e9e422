/* The C code of the page: what it makes, learns, writes and saves; wrong settings and hostile checkpoints,
   which leave the model as it was. The page itself: tests/web.sh. */
#include "check.h"
#define WEB_TEST
#include "../examples/web/web.c"

static const char small[] = "kind=cmha n_layers=2 d_model=16 n_heads=2 d_ff=16 length=16 batch=2 steps=40";

/* A text of n bytes that is easy to learn, in the page's memory */
static void *sentence(size_t n) {
    static const char words[] = "to be or not to be, that is it; ";
    char *bytes = (char *)web_take(n);
    for (size_t i = 0; bytes && i < n; i++) bytes[i] = words[i % (sizeof words - 1)];
    return bytes;
}

/* A call that must fail with one line that has `words`, and leave the model as it is. */
static void refused(int status, const char *words, const double *before) {
    double now[8];
    memcpy(now, web_numbers(), sizeof now);
    CHECK_THAT(status != 0, "\"%s\" is not refused", words);
    CHECK_THAT(strstr(web_error(), words) != NULL, "\"%s\" is not in: %s", words, web_error());
    CHECK(!strchr(web_error(), '\n'));
    CHECK(!memcmp(now, before, sizeof now));
}

static void check_nothing_yet(void) {
    double none[8] = {0};
    CHECK(web_make("kind=rope d_model=nothing", 1) != 0);
    refused(web_step(), "no model yet", none);
    refused(web_judge(), "no model yet", none);
    refused(web_save(), "no model yet", none);
    refused(web_generate((const unsigned char *)"a", 1, 5, 1, 1), "no model yet", none);
    CHECK(!web_phases(0, 0) && !web_pairs());
}

static void check_learning(void) {
    CHECK(!web_make(small, 3));
    CHECK(web_numbers()[0] == 0 && web_numbers()[1] == 40 && web_numbers()[4] == 32);
    CHECK(web_numbers()[6] == 2 && web_numbers()[7] == 2);
    double first[8];
    memcpy(first, web_numbers(), sizeof first);
    CHECK(isnan(first[2]) && isnan(first[3]));
    refused(web_step(), "no text yet", first);
    CHECK(!web_text(sentence(4000), 4000));
    const cmha_real *phase = web_phases(1, 1);
    CHECK(phase && web_pairs() == 4);
    for (size_t j = 0; j < web_pairs(); j++)
        CHECK(phase[3 * j] > 0 && fabs(phase[3 * j + 1] - 1) < 0.1 && fabs(phase[3 * j + 2]) < 0.1);
    CHECK(!web_phases(2, 0) && !web_phases(0, 2) && !web_pairs());
    CHECK(!web_step() && !web_judge());
    double loss = web_numbers()[2], held = web_numbers()[3];
    for (int i = 1; i < 40; i++) CHECK(!web_step());
    CHECK(!web_judge());
    CHECK_THAT(web_numbers()[2] < loss - 1 && web_numbers()[3] < held - 1, "from %g to %g", loss,
               web_numbers()[2]);
    phase = web_phases(0, 0);
    CHECK(phase && (phase[1] != 1 || phase[4] != 1) && phase[2] != 0);
    CHECK(web_phases(0, 0)[1] == run->model.blocks[0].score[0]->data[0]);
}

static void check_writing(void) {
    unsigned char twice[50];
    const unsigned char *prompt = (const unsigned char *)"to be";
    double now[8];
    memcpy(now, web_numbers(), sizeof now);
    CHECK(!web_generate(prompt, 5, 50, 0.5, 7) && web_written_bytes() == 50);
    memcpy(twice, web_written(), 50);
    CHECK(!web_generate(prompt, 5, 50, 0.5, 7) && !memcmp(twice, web_written(), 50));
    CHECK(!web_generate(prompt, 5, 50, 0, -1) && !web_generate(prompt, 1, 0, 1, 1) && !web_written_bytes());
    CHECK(!web_generate(prompt, 5, 100000, 1, 1) && web_written_bytes() == WEB_WRITTEN);
    refused(web_generate(prompt, 0, 50, 1, 1), "beginning has 1 to", now);
    refused(web_generate(prompt, WEB_WRITTEN + 1, 50, 1, 1), "beginning has 1 to", now);
    refused(web_generate(prompt, 5, 50, -1, 1), "temperature", now);
    refused(web_generate(prompt, 5, 50, (double)NAN, 1), "temperature", now);
}

static void check_settings(void) {
    static const char *const wrong[][2] = {
        {"lr", "NAME=VALUE, not lr"}, {"d_modle=8", "d_modle"}, {"kind=never", "never"},
        {"preset=never", "never"}, {"n_heads=3 d_model=64", "3"}, {"causal=0", "encoder"},
        {"tokens=0 features=4 vocabulary=0 classes=2", "tokens=1"}, {"vocabulary=300", "300"},
        {"batch=70000 length=1", "70000"}, {"batch=1048576 length=16777216", "1048576"},
        {"accumulate=1000000", "1000000"}};
    double now[8];
    memcpy(now, web_numbers(), sizeof now);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(web_make(wrong[i][0], 1), wrong[i][1], now);
    char lengthy[300];
    memset(lengthy, 'a', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = 0;
    refused(web_make(lengthy, 1), "127 bytes", now);
    refused(web_text(sentence(1), 1), "1 bytes", now);
    refused(web_text(NULL, 0), "0 bytes", now);
    CHECK(!web_text(sentence(12), 12));
    refused(web_step(), "11 bytes to learn from", now); /* one is held out */
    CHECK(!web_text(sentence(4000), 4000));
}

/* What is learned is not shown as what is held out. */
static void check_held_out(void) {
    char words[128];
    snprintf(words, sizeof words, "%s held_out=0", small);
    CHECK(!web_make(words, 1) && !web_step() && !web_judge() && isnan(web_numbers()[3]));
    CHECK(!web_make(small, 1) && !web_step() && !web_judge() && web_numbers()[3] > 0);
}

/* Loads a copy of n bytes. */
static int load(const void *bytes, size_t n) {
    void *copy = web_take(n);
    if (copy && n) memcpy(copy, bytes, n);
    return web_load(copy, n);
}

/* A saved run goes on as the run that was not saved; cut or changed files change nothing. */
static void check_files(void) {
    double now[8], then[8];
    CHECK(!web_make(small, 5));
    for (int i = 0; i < 10; i++) CHECK(!web_step());
    CHECK(!web_save());
    size_t n = web_file_bytes();
    unsigned char *file = (unsigned char *)malloc(n);
    memcpy(file, web_file(), n);
    CHECK(!web_step());
    memcpy(then, web_numbers(), sizeof then);
    CHECK(!web_make("kind=rope d_model=8 n_heads=2 n_layers=1", 1));
    CHECK(!web_phases(0, 0));
    CHECK(!load(file, n));
    CHECK(web_numbers()[0] == 10 && isnan(web_numbers()[2]));
    CHECK(!web_step());
    CHECK(web_numbers()[2] == then[2] && web_numbers()[0] == then[0]);
    memcpy(now, web_numbers(), sizeof now);
    for (size_t cut = 0; cut < n; cut += 1 + n / 97) refused(load(file, cut), "the checkpoint", now);
    cmha_rng rng = cmha_rng_make(1, 1);
    size_t header = 8 + (size_t)file[0] + 256 * (size_t)file[1];
    for (int i = 0; i < 400; i++) {
        size_t at = (size_t)cmha_rng_below(&rng, header);
        unsigned char was = file[at];
        file[at] = (unsigned char)cmha_rng_next(&rng);
        if (load(file, n)) refused(1, "", now);
        else CHECK(!load(file, n) && (web_step(), 1));
        memcpy(now, web_numbers(), sizeof now);
        file[at] = was;
    }
    CHECK(!load(file, n) && web_numbers()[0] == 10);
    free(file);
    CHECK(!cmha_model_save(&run->model, file_name)); /* without the state of a training */
    file = (unsigned char *)malloc(web_file_bytes());
    memcpy(file, web_file(), n = web_file_bytes());
    CHECK(!load(file, n) && web_numbers()[0] == 0 && !web_step());
    free(file);
}

static void check_kinds(void) {
    char words[128];
    size_t n = 0;
    for (; web_kind(n); n++) {
        snprintf(words, sizeof words, "kind=%s n_layers=1 d_model=16 n_heads=4 d_ff=8 length=16 batch=2",
                 web_kind(n));
        CHECK_THAT(!web_make(words, 1) && !web_step(), "%s: %s", words, web_error());
        CHECK(!web_generate((const unsigned char *)"to", 2, 60, 1, 1) && web_written_bytes() >= 14);
    }
    CHECK(n > 10);
}

int main(void) {
    check_nothing_yet();
    check_learning();
    check_writing();
    check_settings();
    check_held_out();
    check_files();
    check_kinds();
    close_run(run);
    cmha_context_close(&ctx);
    free((void *)(uintptr_t)text.data);
    free(files[0].taken);
    free(phases);
    return check_end();
}
