/* The claims of papers.c and tools.c: what they read, and every run on a data set of the test's own. */
#include "check.h"
#include "system.h"

#include "papers.h"

static char folder[64] = "/tmp/cmha-papers-XXXXXX", line[EVIDENCE_ERROR];

/* ---- Data: the least that each run can learn from ---- */

static FILE *create(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')) != NULL; at++)
        *at = 0, (void)system_make_folder(path), *at = '/';
    FILE *file = fopen(path, "wb");
    if (!CHECK_THAT(file != NULL, "cannot write %s", path)) exit(1);
    return file;
}

static void write_text(const char *name, size_t lines) {
    FILE *file = create(name);
    for (size_t i = 0; i < lines; i++)
        fprintf(file, "the %s dog %zu sees a %s cat\n", i % 3 ? "big" : "old", i % 7, i % 2 ? "red" : "sad");
    fclose(file);
}

static void write_tasks(void) {
    static const char *const words[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                        "good",  "bad",   "film",  "a"};
    FILE *file = create("tokenizers/bert/vocab.txt");
    for (size_t i = 0; i < LENGTH(words); i++) fprintf(file, "%s\n", words[i]);
    fclose(file);
    for (int dev = 0; dev < 2; dev++) {
        FILE *sst = create(dev ? "glue/SST-2/dev.tsv" : "glue/SST-2/train.tsv");
        FILE *mrpc = create(dev ? "glue/MRPC/dev.tsv" : "glue/MRPC/train.tsv");
        FILE *sts = create(dev ? "glue/STS-B/dev.tsv" : "glue/STS-B/train.tsv");
        fputs("sentence\tlabel\n", sst), fputs("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n", mrpc);
        fputs("sentence1\tsentence2\tscore\n", sts);
        for (int i = 0; i < 12; i++) {
            const char *a = i % 2 ? "good" : "bad", *b = i % 3 ? "good" : "bad";
            fprintf(sst, "a %s film\t%d\n", a, i % 2), fprintf(sts, "%s film\t%s film\t%d.5\n", a, b, i % 5);
            fprintf(mrpc, "%d\t1\t2\t%s film\ta %s film\n", i % 2 == (i % 3 > 0), a, b);
        }
        fclose(sst), fclose(mrpc), fclose(sts);
    }
}

static void write_music(void) {
    static const char *const parts[] = {"test", "train", "valid"};
    FILE *file = create("music/jsb-chorales-quarter.json");
    for (int p = 0; p < 3; p++) {
        fprintf(file, "%s\"%s\": [", p ? ", " : "{", parts[p]);
        for (int c = 0; c < 3 + p; c++) {
            fputs(c ? ", [" : "[", file);
            for (int q = 0; q < 4 + c; q++)
                fprintf(file, q % 4 == 3 ? "%s[]" : "%s[%d, %d]", q ? ", " : "", 48 + q + c,
                        60 + (2 * q) % 7);
            fputs("]", file);
        }
        fputs("]", file);
    }
    fputs("}\n", file), fclose(file);
}

static void write_squad(void) {
    FILE *file = create("qa/squad/dev-v2.0.json");
    fputs("{\"version\":\"v2.0\",\"data\":[{\"title\":\"T\",\"paragraphs\":[", file);
    for (int i = 0; i < 24; i++)
        fprintf(file,
                "%s{\"qas\":[{\"question\":\"what does number %d "
                "\\\"see\\\"?\",\"id\":\"%d\",\"answers\":[{\"text\":"
                "\"cat\",\"answer_start\":1}],\"is_impossible\":false},{\"question\":\"no\",\"id\":\"n\","
                "\"answers\":[],"
                "\"is_impossible\":true}],\"context\":\"number %d sees a caf\\u00e9 cat %d times . and "
                "then it goes on and "
                "on to place %d\"}",
                i ? "," : "", i, i, i, i * i, 3 * i);
    fputs("]}]}\n", file), fclose(file);
}

static void put_number(FILE *file, uint32_t value, int bytes) {
    for (; bytes--; value >>= 8) putc((int)(value & 0xFF), file);
}

/* A tar archive of short recordings, two takes to learn from and one to test for each of three digits */
static void write_digits(void) {
    enum { SAMPLES = 1200, BYTES = 44 + 2 * SAMPLES };
    FILE *file = create("audio/fsdd.tar");
    for (int which = 0; which < 9; which++) {
        char head[512] = {0};
        unsigned sum = 0;
        snprintf(head, 100, "%d_ann_%d.wav", which % 3, 2 * which);
        snprintf(head + 100, 8, "0000644"), snprintf(head + 124, 12, "%011o", BYTES);
        memcpy(head + 148, "        ", 8), head[156] = '0', memcpy(head + 257, "ustar", 6);
        for (int i = 0; i < 512; i++) sum += (unsigned char)head[i];
        snprintf(head + 148, 8, "%06o", sum);
        fwrite(head, 1, sizeof head, file);
        fputs("RIFF", file), put_number(file, BYTES - 8, 4), fputs("WAVEfmt ", file), put_number(file, 16, 4);
        put_number(file, 1, 2), put_number(file, 1, 2), put_number(file, 8000, 4), put_number(file, 16000, 4);
        put_number(file, 2, 2), put_number(file, 16, 2), fputs("data", file),
            put_number(file, 2 * SAMPLES, 4);
        for (int i = 0; i < SAMPLES; i++)
            put_number(file, (uint32_t)(int32_t)(9000 * sin(0.1 * (1 + which % 3) * i + which)), 2);
        for (int i = BYTES; i % 512; i++) putc(0, file);
    }
    for (int i = 0; i < 1024; i++) putc(0, file);
    fclose(file);
}

/* A model as llama2.c has it: 1 layer of 8, 2 heads, 1 key head, 300 tokens, 64 positions; and its tokens. */
static void write_stories(void) {
    static const uint32_t sizes[] = {8, 12, 1, 2, 1, 300, 64};
    size_t numbers = 300 * 8 + 8 + 64 + 32 + 32 + 64 + 8 + 3 * 96 + 8 + 2 * 64 * 2;
    FILE *file = create("weights/stories260k/stories260K.bin");
    for (size_t i = 0; i < LENGTH(sizes); i++) put_number(file, sizes[i], 4);
    for (size_t i = 0; i < numbers; i++) {
        float x = (float)sin(1.7 * (double)i * (double)(i % 13));
        fwrite(&x, sizeof x, 1, file);
    }
    fclose(file), file = create("weights/stories260k/tok512.bin");
    put_number(file, 8, 4);
    for (int i = 0; i < 300; i++) {
        static const char *const special[] = {"<unk>", "\n<s>\n", "\n</s>\n"};
        char piece[16];
        float score = (float)-i;
        if (i < 3) snprintf(piece, sizeof piece, "%s", special[i]);
        else if (i < 259) snprintf(piece, sizeof piece, "<0x%02X>", i - 3);
        else if (i < 285) snprintf(piece, sizeof piece, "%c", 'a' + i - 259);
        else snprintf(piece, sizeof piece, i == 285 ? " " : "q%c", 'a' + i - 286);
        fwrite(&score, sizeof score, 1, file), put_number(file, (uint32_t)strlen(piece), 4),
            fputs(piece, file);
    }
    fclose(file);
}

/* ---- Runs ---- */

/* Makes a run of a claim's own function with small settings; 1 and finite measures, or the line. */
static int go(const evidence_claim *claim, const char *part, const char *settings, const char *variant,
              const char *baseline, evidence_result *result) {
    evidence_claim small = *claim;
    evidence_part own = {part, part, settings};
    evidence_variant both[2] = {{"base", "base", baseline}, {"other", "other", variant}};
    evidence_run run;
    char work[128], data[128];
    snprintf(work, sizeof work, "%s/work", folder), snprintf(data, sizeof data, "%s", folder);
    memset(&run, 0, sizeof run), memset(result, 0, sizeof *result);
    small.parts = &own, small.n_parts = 1, small.variants = both, small.n_variants = 2;
    run.claim = &small, run.part = &own, run.variant = &both[1], run.seed = 1, run.rate = 1e-3,
    run.threads = 1;
    run.data = data, run.work = work, run.error = line, line[0] = 0;
    return claim->run(&run, result);
}

static double measure(const evidence_result *r, const char *name) {
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->measures[i].name, name)) return r->measures[i].value;
    return NAN;
}

static void goes(const evidence_claim *claim, const char *part, const char *settings, const char *variant,
                 const char *baseline) {
    evidence_result r;
    int done = go(claim, part, settings, variant, baseline, &r);
    CHECK_THAT(done, "%s, %s: %s", claim->name, variant, line);
    CHECK_THAT(r.n > 0 && r.parameters > 0, "%s, %s: nothing measured", claim->name, variant);
    for (size_t i = 0; i < r.n; i++)
        CHECK_THAT(fabs(r.measures[i].value) < 1e30, "%s, %s: %s is %g", claim->name, variant,
                   r.measures[i].name, r.measures[i].value);
    CHECK_THAT(!done || fabs(measure(&r, claim->measure)) < 1e30, "%s, %s: no %s", claim->name, variant,
               claim->measure);
    for (size_t i = 0; i < r.points; i++) CHECK(r.curve[i].loss > 0 && r.curve[i].loss < 100);
}

static void fails(const evidence_claim *claim, const char *part, const char *settings, const char *variant,
                  const char *says) {
    evidence_result r;
    CHECK_THAT(!go(claim, part, settings, variant, variant, &r) && strstr(line, says) && !strchr(line, '\n'),
               "%s, %s: \"%s\" is not about %s", claim->name, variant, line, says);
}

#define SMALL "n_layers=2 d_model=16 n_heads=2 d_ff=16 trainer.batch=4 trainer.length=16 trainer.steps=4 "

static void texts(void) {
    static const char *const kinds[] = {"kind=rope",
                                        "kind=cope-phase",
                                        "kind=cope-phase head_temperature=1 cope_gamma_learned=1",
                                        "kind=cope-linear",
                                        "kind=rope score=rope-mixed",
                                        "kind=cope-real attention=rope",
                                        "kind=dot+learned"};
    static const char *const maps[] = {"kind=mobius mobius_heads=1", "kind=mobius+rope mobius_heads=2",
                                       "kind=mobius mobius_heads=1 mobius_mode=full",
                                       "kind=mobius mobius_heads=1 mobius_mode=literal"};
    evidence_result r;
    for (size_t i = 0; i < LENGTH(kinds); i++)
        goes(&evidence_claim_cope_text, "t", SMALL "text.file=books/tinyshakespeare.txt", kinds[i],
             "kind=rope");
    for (size_t i = 0; i < LENGTH(maps); i++)
        goes(&evidence_claim_mobius_text, "t",
             SMALL "placement=post causal=0 vocabulary=257 trainer.mask_token=256 "
                   "text.file=books/tinyshakespeare.txt",
             maps[i], "kind=dot+learned");
    if (go(&evidence_claim_mobius_text, "t", SMALL "placement=post text.file=books/tinyshakespeare.txt",
           maps[0], "kind=rope", &r)) {
        static const char *const when[] = {"start", "near", "close"};
        for (int w = 0; w < 3; w++) { /* the geometries are shares of all maps */
            double sum = 0;
            for (int g = 0; g < MOBIUS_GEOMETRIES; g++) {
                char name[32];
                snprintf(name, sizeof name, "%s_%s", when[w], mobius_name((mobius_geometry)g));
                sum += measure(&r, name);
            }
            CHECK_NEAR(sum, 1, 1e-12);
        }
    } else
        CHECK_THAT(0, "%s", line);
    fails(&evidence_claim_cope_text, "t", SMALL "text.file=books/none.txt", "kind=rope",
          "none.txt is not there");
    fails(&evidence_claim_cope_text, "t", SMALL "text.file=books/tinyshakespeare.txt", "kind=nothing",
          "nothing");
}

static void tasks(void) {
    static const char *const kinds[] = {"kind=rope", "kind=cope-magnitude", "kind=rope score=rope-mixed",
                                        "kind=mobius"};
    static const char task[] = SMALL "preset=cope glue.folder=SST-2 glue.epochs=2";
    if (!codec_can_learn()) {
        fails(&evidence_claim_cope_glue, "sst2", task, "kind=rope", "no tokenizers in this build");
        return;
    }
    for (size_t i = 0; i < LENGTH(kinds); i++)
        goes(&evidence_claim_cope_glue, "sst2", task, kinds[i], "kind=rope");
    goes(&evidence_claim_cope_glue, "mrpc", SMALL "preset=cope glue.folder=MRPC glue.rows=7",
         "kind=cope-hybrid", "kind=rope");
    goes(&evidence_claim_cope_glue, "stsb", SMALL "preset=cope glue.folder=STS-B label_range=5",
         "kind=cope-phase", "kind=rope");
    fails(&evidence_claim_cope_glue, "stsb", SMALL "preset=cope glue.folder=SST-2", "kind=rope", "no column");
    fails(&evidence_claim_cope_glue, "cola", SMALL "preset=cope glue.folder=CoLA", "kind=rope",
          "CoLA/train.tsv");
    fails(&evidence_claim_cope_glue, "wnli", task, "kind=rope", "wnli");
}

static void chorales(void) {
    static const struct { const char *text, *says;
    } wrong[] = {{"", "no list"},
                 {"{\"train\": 3}", "no list"},
                 {"{\"train\": []}", "no chorales"},
                 {"{\"train\": [3]}", "not a chorale"},
                 {"{\"train\": [[3]]}", "not a list"},
                 {"{\"train\": [[[3]]]}", "not a pitch"},
                 {"{\"train\": [[[60, 60]]]}", "not a pitch"},
                 {"{\"train\": [[[60.5]]]}", "no comma"},
                 {"{\"train\": [[[100]]]}", "not a pitch"},
                 {"{\"train\": [[[60 62]]]}", "no comma"},
                 {"{\"train\": [[[60", "no comma"},
                 {"{\"train\": [[[99999999999999999999]]]}", "not a pitch"},
                 {"{\"train\": [[[60]] [[60]]]}", "no comma"}};
    static const int32_t want[] = {EDGE, LOWEST + 24, LOWEST + 28, NEXT, NEXT, LOWEST, NEXT, EDGE};
    pieces p;
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        CHECK_THAT(!read_pieces(&p, wrong[i].text, "train", line) && strstr(line, wrong[i].says), "%s: %s",
                   wrong[i].text, line);
        close_pieces(&p);
    }
    if (CHECK(read_pieces(&p, "{\"valid\": [], \"train\": [[[60,64], [ ],\n[36]], []]}", "train", line))) {
        CHECK(p.e.n == 2 && p.longest == 8 && p.notes == 3 && p.e.start[1] == 8 && p.e.start[2] == 10);
        CHECK(!memcmp(p.e.ids, want, sizeof want) && p.e.ids[8] == EDGE && p.e.ids[9] == EDGE);
    }
    close_pieces(&p);
    goes(&evidence_claim_music, "jsb", SMALL "dropout=0.1", "kind=cmha", "kind=rope");
    goes(&evidence_claim_music, "jsb", SMALL, "kind=dot+learned", "kind=rope");
    goes(&evidence_claim_music, "jsb", SMALL, "kind=pope", "kind=rope");
}

/* Models that are far from the baseline's size are brought to it, near ones stay. */
static void sizes(void) {
    static const char *const variants[] = {"kind=mobius mobius_heads=1 placement=post", "kind=cmha",
                                           "kind=cope-real"};
    for (size_t i = 0; i < LENGTH(variants); i++) {
        evidence_part part = {"p", "p", "n_layers=2 d_model=32 n_heads=2 d_ff=1024"};
        evidence_variant both[2] = {{"a", "a", "kind=rope"}, {"b", "b", variants[i]}};
        evidence_claim claim = evidence_claim_cope_text;
        evidence_run run;
        cmha_context ctx;
        cmha_model_config mc;
        double apart = NAN;
        size_t one;
        memset(&run, 0, sizeof run);
        claim.variants = both, claim.n_variants = 2, run.claim = &claim, run.part = &part,
        run.variant = &both[1];
        run.rate = 1, run.threads = 1, run.error = line;
        if (!CHECK(evidence_open(&run, &ctx) && evidence_configure(&run, &ctx, &mc, NULL))) return;
        CHECK(papers_match(&run, &ctx, &mc, &apart));
        one = count(&ctx, &mc, mc.d_ff + 2) - count(&ctx, &mc, mc.d_ff);
        CHECK_THAT(i == 1 ? mc.d_ff == 1024 : mc.d_ff != 1024 && apart <= 0 && -apart < (double)one,
                   "%s: d_ff %zu, %g", variants[i], mc.d_ff, apart);
        cmha_context_close(&ctx);
    }
}

/* ---- Runs that are programs ---- */

/* Is it beside this test? */
static int there(const char *name) {
    char path[1024];
    beside(name, path);
    if (!access(path, X_OK)) return 1;
    printf("without build/%s, what needs it is left out\n", name);
    return 0;
}

static void programs(void) {
    static const char *const none[] = {"no-such-program-at-all", NULL};
    static const char *const other[] = {"sh", "-c", "", NULL};
    static const char *const bad[] = {"env", "sh", "-c", "echo a; echo b >&2; exit 3", NULL};
    static const char *const good[] = {"env", "sh", "-c", "echo one; echo two", NULL};
    evidence_run run;
    command c;
    char *said;
    memset(&run, 0, sizeof run), run.error = line;
    CHECK(!papers_tool(&run, none, &said) && !said && strstr(line, "no-such-program"));
    CHECK(!papers_tool(&run, other, &said) && !said && strstr(line, "no program sh beside this one"));
    CHECK(!papers_tool(&run, bad, &said) && !said && !strcmp(line, "env: b"));
    CHECK(papers_tool(&run, good, &said) && said && !strcmp(said, "one\ntwo\n"));
    free(said);
    start_command(&c, "sh");
    for (int i = 0; i < 200; i++) say(&c, "%d", i);
    CHECK(!run_command(&run, &c, &said) && strstr(line, "too many settings"));
    if (there("convert") && codec_can_learn()) {
        static const char small[] =
            "n_layers=1 d_model=8 n_heads=2 n_kv_heads=1 d_ff=12 vocabulary=300 norm=rmsnorm "
            "activation=swiglu ffn_bias=0 delta_init=const delta_value=1 trainer.steps=3 trainer.batch=2 "
            "trainer.length=16 trainer.eval_tokens=256 max_positions=64";
        evidence_result r;
        goes(&evidence_claim_finetune, "s", small, "kind=rope lora_rank=2 lora_on=wq,wv", "kind=rope");
        CHECK(go(&evidence_claim_finetune, "s", small,
                 "kind=cmha finetune.freeze=* finetune.train=*.delta,*.b", "kind=rope", &r) &&
              r.parameters == 2 * 2 * 2);
        double before = measure(&r, "before");
        CHECK(go(&evidence_claim_finetune, "s", small, "kind=rope", "kind=rope", &r));
        CHECK_NEAR(measure(&r, "before"), before, 1e-4); /* delta 1 and b 0 are RoPE */
    }
    if (there("signal"))
        goes(&evidence_claim_modulation, "plain", "signal.parameters=40000 signal.epochs=1",
             "kind=angular d_model=32", "kind=rope");
    if (there("spoken"))
        goes(&evidence_claim_spoken, "s", "spoken.parameters=60000 spoken.epochs=1 spoken.features=offset",
             "kind=cope-real d_model=32", "kind=rope");
    if (there("rag")) {
        goes(&evidence_claim_crat, "squad", "rag.steps=2 rag.length=16 rag.encoder_steps=2",
             "experts=0 n_layers=2", "n_layers=2");
        goes(&evidence_claim_crat, "squad", "rag.steps=2 rag.length=16 rag.encoder_steps=2", "angle=atan",
             "n_layers=2");
        fails(&evidence_claim_crat, "squad", "rag.steps=2 rag.encoder_steps=2", "no_field=1", "no_field");
    }
}

static void retrieval(void) {
    static const char *const lists[] = {"rag.list=bm25", "rag.list=encoder", "rag.list=both"};
    evidence_result r;
    for (size_t i = 0; there("rag") && i < LENGTH(lists); i++) {
        CHECK_THAT(go(&evidence_claim_retrieval, "squad", "rag.encoder_steps=2", lists[i], lists[i], &r),
                   "%s", line);
        CHECK(r.n == RAG_MEASURES && measure(&r, "mrr") > 0 && measure(&r, "mrr") <= 1);
        CHECK(measure(&r, "recall_20") >= measure(&r, "recall_1"));
    }
}

int main(void) {
    char sweep[128], work[128];
    if (!system_folder(folder)) return puts("cannot make a folder"), 1;
    snprintf(work, sizeof work, "%s/work", folder), (void)system_make_folder(work);
    write_text("books/tinyshakespeare.txt", 60), write_tasks(), write_music(), write_squad(), write_digits();
    write_stories();
    texts(), tasks(), chorales(), sizes(), programs(), retrieval();
    snprintf(sweep, sizeof sweep, "rm -rf %s", folder);
    CHECK(system(sweep) == 0);
    return check_end();
}
