/* tools.c - claims whose runs are programs of this project, which lie beside this one: CRAT's ablation and
   its retrieval (rag), radio signals (signal, signal_data), spoken digits (spoken). */
#include "papers.h"
#include "program.h"

#include <errno.h>
#include <stdarg.h>
#include <math.h>
#include <sys/wait.h>
#ifdef __linux__
#include <signal.h>
#include <sys/prctl.h>
#endif

enum { MOST_ARGUMENTS = 96 };

/* ---- Programs ---- */

/* The path of what lies beside this program, or further on from there. */
static void beside(const char *name, char path[1024]) {
    ssize_t n = readlink("/proc/self/exe", path, 900);
    while (n > 0 && path[n - 1] != '/') n--;
    if (n <= 0) n = (ssize_t)strlen(strcpy(path, "build/"));
    snprintf(path + n, 1024 - (size_t)n, "%s", name);
}

/* In the child: becomes the program, or the system's env. Another one of the system would be a stranger:
   convert is ImageMagick's. */
static void become(const char *const *arguments, const int ends[2]) {
    char path[1024], *list[MOST_ARGUMENTS];
    size_t n = 0;
    while (n < MOST_ARGUMENTS - 1 && arguments[n]) memcpy(&list[n], &arguments[n], sizeof *list), n++;
    list[n] = NULL;
    beside(arguments[0], path);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* it ends with this program */
#endif
    if (dup2(ends[1], 1) < 0 || dup2(ends[1], 2) < 0) _exit(127);
    close(ends[0]), close(ends[1]);
    execv(path, list);
    if (!strcmp(arguments[0], "env")) execvp(arguments[0], list);
    _exit(127);
}

/* Reads all that a program prints; NULL without memory. */
static char *listen(int end) {
    size_t room = 65536, n = 0;
    char *text = malloc(room), *more;
    for (ssize_t got; text && (got = read(end, text + n, room - n - 1)) != 0;) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        n += (size_t)got;
        if (n + 1 < room) continue;
        more = text_memory(text, room *= 2, 1, 1);
        if (!more) free(text);
        text = more;
    }
    if (text) text[n] = 0;
    return text;
}

/* Makes the last line that a program printed the run's error. */
static void complain(const evidence_run *run, const char *name, char *said) {
    size_t n = strlen(said), line, skip = strlen(name);
    while (n && said[n - 1] == '\n') said[--n] = 0;
    for (line = n; line && said[line - 1] != '\n';) line--;
    if (!strncmp(said + line, name, skip) && said[line + skip] == ':') line += skip + 2; /* said already */
    evidence_fail(run->error, "%s: %.300s", name, n > line ? said + line : "it failed");
}

int papers_tool(const evidence_run *run, const char *const *arguments, char **output) {
    int ends[2], status = 0;
    *output = NULL;
    fflush(NULL);
    if (pipe(ends)) return evidence_fail(run->error, "cannot run %s", arguments[0]);
    pid_t child = fork();
    if (!child) become(arguments, ends);
    close(ends[1]);
    if (child > 0) *output = listen(ends[0]);
    close(ends[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (child > 0 && *output && WIFEXITED(status) && !WEXITSTATUS(status)) return 1;
    if (child > 0 && *output && WIFEXITED(status) && WEXITSTATUS(status) == 127 && !**output)
        evidence_fail(run->error, "there is no program %s beside this one: make it first", arguments[0]);
    else if (child > 0 && *output) complain(run, arguments[0], *output);
    else evidence_fail(run->error, "cannot run %s", arguments[0]);
    free(*output), *output = NULL;
    return 0;
}

int papers_work(const evidence_run *run, const char *name, char path[1024]) {
    return (size_t)snprintf(path, 1024, "%s/%s", run->work, name) < 1024 ||
           evidence_fail(run->error, "too long a path: %.100s", run->work);
}

int papers_made(const char *path, char own[1200]) {
    snprintf(own, 1200, "%s.%ld", path, (long)getpid());
    return !access(path, R_OK);
}

int papers_keep(const evidence_run *run, const char *own, const char *path) {
    return text_replace(own, path) || evidence_fail(run->error, "cannot write %s", path);
}

/* Arguments of a program; their texts live in `room`. */
typedef struct command {
    const char *list[MOST_ARGUMENTS];
    char room[8192];
    size_t n, used;
} command;

/* Appends one; a list that is full stays without its end, which run_command refuses. */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
static void say(command *c, const char *format, ...) {
    va_list list;
    size_t left = sizeof c->room - c->used;
    va_start(list, format);
    int n = vsnprintf(c->room + c->used, left, format, list);
    va_end(list);
    if (n < 0 || (size_t)n >= left || c->n + 1 >= MOST_ARGUMENTS) c->n = MOST_ARGUMENTS;
    else c->list[c->n++] = c->room + c->used, c->used += (size_t)n + 1, c->list[c->n] = NULL;
}

static void start_command(command *c, const char *name) { c->n = c->used = 0, say(c, "%s", name); }

static int run_command(const evidence_run *run, command *c, char **output) {
    if (c->n < MOST_ARGUMENTS) return papers_tool(run, c->list, output);
    return evidence_fail(run->error, "too many settings for %s", c->list[0]);
}

int papers_work_of(const evidence_run *run, char path[1024], const char *name, const char *depends,
                   const char *ending) {
    uint32_t hash = 2166136261u;
    for (const char *s = depends; *s; s++) hash = (hash ^ (unsigned char)*s) * 16777619u;
    int n = snprintf(path, 1024, "%s/%s-%08x%s", run->work, name, (unsigned)hash, ending);
    return (n > 0 && n < 1024) || evidence_fail(run->error, "too long a path: %.100s", run->work);
}

/* What a run's programs make depends on, but for its seed and rate. */
static void depends_on(const evidence_run *run, char depends[1024]) {
    snprintf(depends, 1024, "%s; %s; %s; %s", cmha_version(), run->part->settings,
             run->more ? run->more : "", evidence_rows_path ? evidence_rows_path : "");
}

static void say_seed(command *c, const evidence_run *run, uint64_t seed) {
    if (evidence_rows_path) say(c, "--rows"), say(c, "%s", evidence_rows_path);
    say(c, "--threads"), say(c, "%d", run->threads);
    say(c, "--seed"), say(c, "%llu", (unsigned long long)seed);
}

/* Appends the run's fields as --set PREFIXNAME=VALUE, and its kind, where one is named, as --attention. Of
   others, words whose name has a dot are the claim's own. */
static void say_settings(command *c, const evidence_run *run, const char *prefix) {
    const evidence_variant *like = evidence_like(run->claim, run->variant);
    const char *texts[4] = {run->part->settings, like && like != run->variant ? like->settings : "",
                            run->variant->settings, run->more ? run->more : ""};
    char kind[64];
    if (evidence_word(run, "kind", kind)) say(c, "--attention"), say(c, "%s", kind); /* the last one named */
    for (int i = 0; i < 4; i++)
        for (const char *at = texts[i] + strspn(texts[i], " "); *at; at += strspn(at, " ")) {
            int n = (int)strcspn(at, " "), length = (int)strcspn(at, "=");
            char name[64];
            snprintf(name, sizeof name, "%.*s", length, at);
            if (strcmp(name, "kind") != 0 && !strchr(name, '.') && !evidence_reads(name))
                say(c, "--set"), say(c, "%s%.*s", prefix, n, at);
            at += n;
        }
}

/* Finds what stands before a number in a text, and reads it. */
static int number_behind(const char *text, const char *before, double *value) {
    const char *at = text ? strstr(text, before) : NULL;
    char *end = NULL;
    if (at) *value = strtod(at + strlen(before), &end);
    return at && end != at + strlen(before);
}

/* ---- CRAT: rag ---- */

enum { RECALL_1, RECALL_5, RECALL_20, MRR, FOUND_20, RAG_MEASURES };

/* The passages and questions of a collection, in the working folder; made where they are not. */
static int make_passages(const evidence_run *run, char passages[1024], char pairs[1024]) {
    static const char *const cranfield[] = {"cran.all.1400.xml", "cran.qry.xml", "cranqrel.trec.txt"};
    int is_cranfield = !strcmp(run->part->name, "cranfield"), files = is_cranfield ? 3 : 1;
    char name[128], path[1024], script[1024], own[1200], out[1200], *said;
    command c;
    snprintf(name, sizeof name, "%s.passages.txt", run->part->name);
    if (!papers_work(run, name, passages)) return 0;
    snprintf(name, sizeof name, "%s.pairs.tsv", run->part->name);
    if (!papers_work(run, name, pairs)) return 0;
    if (papers_made(pairs, out)) return 1;
    snprintf(name, sizeof name, "../examples/tools/%s.awk", is_cranfield ? "cranfield" : "squad");
    beside(name, script);
    start_command(&c, "env");
    say(&c, "LC_ALL=C"), say(&c, "awk"), say(&c, "-v"), say(&c, "out=%s.", out);
    say(&c, "-f"), say(&c, "%s", script);
    for (int f = 0; f < files; f++) {
        const char *file = is_cranfield ? cranfield[f] : "dev-v2.0.json";
        snprintf(name, sizeof name, "qa/%s/%s", run->part->name, file);
        if (!evidence_data(run, name, path)) return 0;
        say(&c, "%s", path);
    }
    if (!run_command(run, &c, &said)) return 0;
    free(said);
    snprintf(own, sizeof own, "%.1150s.passages.txt", out);
    if (!papers_keep(run, own, passages)) return 0;
    snprintf(own, sizeof own, "%.1150s.pairs.tsv", out);
    return papers_keep(run, own, pairs); /* last: with it all is there */
}

/* What all calls of rag for this part begin with. */
static int begin_rag(const evidence_run *run, command *c, char pairs[1024], uint64_t seed) {
    char passages[1024];
    if (!make_passages(run, passages, pairs)) return 0;
    start_command(c, "rag");
    say(c, "--text"), say(c, "%s", passages);
    say_seed(c, run, seed);
    return 1;
}

/* Trains the encoder of a part, seed, rate (0: rag's own) and number of threads, unless a run has; `model` is
   its name. */
static int make_encoder(const evidence_run *run, uint64_t seed, double rate, char model[1024]) {
    static const char *const ends[] = {".tokenizer.json", ".encoder"}; /* the last one last */
    char name[128], path[1100], own[1200], pairs[1024], steps[64], depends[1024], *said;
    command c;
    int is_there;
    snprintf(name, sizeof name, "crat-%s-%llu-%g-%d", run->part->name, (unsigned long long)seed, rate,
             run->threads);
    depends_on(run, depends);
    if (!papers_work_of(run, model, name, depends, "")) return 0;
    snprintf(path, sizeof path, "%s.encoder", model);
    is_there = papers_made(path, own);
    if (is_there) return 1;
    papers_made(model, own);
    if (!begin_rag(run, &c, pairs, seed)) return 0;
    say(&c, "--quiet"), say(&c, "--read"), say(&c, "0"), say(&c, "--save"), say(&c, "%s", own);
    if (evidence_word(run, "rag.encoder_steps", steps)) say(&c, "--steps"), say(&c, "%s", steps);
    if (rate > 0) say(&c, "--set"), say(&c, "encoder.lr=%g", rate);
    if (!run_command(run, &c, &said)) return 0;
    free(said);
    for (int i = 0; i < 2; i++) {
        char from[1300];
        snprintf(path, sizeof path, "%s%s", model, ends[i]);
        snprintf(from, sizeof from, "%s%s", own, ends[i]);
        if (access(from, R_OK) && !i) continue; /* tokens are bytes in a build without tokenizers */
        if (!papers_keep(run, from, path)) return 0;
    }
    return 1;
}

/* Trains a decoder with a window on the passages that an encoder finds: one encoder for all rows. */
static int run_crat(const evidence_run *run, evidence_result *result) {
    char model[1024], pairs[1024], steps[64] = "100", length[64] = "64", *said;
    double with = NAN, without = NAN, numbers = NAN;
    evidence_run same = *run;
    command c;
    same.threads = 1; /* rows differ in the decoder alone, also the one of two threads */
    evidence_word(run, "rag.steps", steps), evidence_word(run, "rag.length", length);
    if (!make_encoder(&same, 1000, 0, model) || !begin_rag(run, &c, pairs, run->seed)) return 0;
    say(&c, "--model"), say(&c, "%s", model), say(&c, "--read"), say(&c, "%s", steps);
    say(&c, "--length"), say(&c, "%s", length), say(&c, "--set"), say(&c, "decoder.lr=%g", run->rate);
    say_settings(&c, run, "decoder.");
    if (!run_command(run, &c, &said)) return 0;
    int done = number_behind(said, "nats per token: ", &with) &&
               number_behind(said, "with the base of the others, ", &without) &&
               number_behind(said, "decoder of ", &numbers);
    free(said);
    if (!done) return evidence_fail(run->error, "rag does not say how many nats");
    evidence_add(result, "val", with), evidence_add(result, "without_base", without);
    result->parameters = (size_t)numbers;
    result->tokens = strtod(steps, NULL) * 16 * strtod(length, NULL); /* at most: abstracts may be shorter */
    return 1;
}

/* Fails where `row --set` names a field: rag's encoder has its own. */
static int reads_no_field(const evidence_run *run) {
    for (const char *at = run->more ? run->more : ""; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, "= ");
        if (!memchr(at, '.', n))
            return evidence_fail(run->error, "%s reads no field: %.*s", run->claim->name, (int)n, at);
        at += strcspn(at, " ");
    }
    return 1;
}

/* Finds the passages of questions: rag.list names which of rag's lists counts. BM25 learns nothing. */
static int run_retrieval(const evidence_run *run, evidence_result *result) {
    static const char *const names[] = {"recall_1", "recall_5", "recall_20", "mrr", "found_20"};
    char model[1024], pairs[1024], list[64] = "", line[64], *said, *at;
    int learns = strcmp(run->variant->name, "bm25") != 0;
    command c;
    evidence_word(run, "rag.list", list);
    if (!reads_no_field(run)) return 0;
    if (learns && !make_encoder(run, run->seed, run->rate, model)) return 0;
    if (!begin_rag(run, &c, pairs, run->seed)) return 0;
    say(&c, "--pairs"), say(&c, "%s", pairs), say(&c, "--read"), say(&c, "0"), say(&c, "--quiet");
    if (learns) say(&c, "--model"), say(&c, "%s", model);
    else say(&c, "--steps"), say(&c, "1");
    if (!run_command(run, &c, &said)) return 0;
    snprintf(line, sizeof line, "\n%s", !strcmp(list, "bm25") ? "BM25, k1 1.2, b 0.75"
                                       : !strcmp(list, "both") ? "both, by reciprocal rank" : "CRAT encoder");
    at = strstr(said, line);
    if (at) at += strlen(line);
    for (int m = 0; at && m < RAG_MEASURES; m++) {
        char *end;
        size_t blanks = strspn(at, " ");
        double value = strtod(at, &end);
        if (end == at || at[blanks] == '\n') break; /* without numbers of passages there is no found_20 */
        evidence_add(result, names[m], value), at = end;
    }
    free(said);
    return result->n > MRR || evidence_fail(run->error, "rag does not say what it finds");
}

/* ---- Signals ---- */

/* The file of signals of a part; made where it is not. */
static int make_signals(const evidence_run *run, char path[1024]) {
    char name[128], own[1200], runs[64], depends[1024], *said;
    int plain = !strcmp(run->part->name, "plain");
    command c;
    snprintf(name, sizeof name, "signals-%s", run->part->name);
    depends_on(run, depends);
    if (!papers_work_of(run, path, name, depends, ".safetensors")) return 0;
    if (papers_made(path, own)) return 1;
    start_command(&c, plain ? "signal" : "signal_data");
    if (plain) { /* one epoch of the smallest model, for its file */
        say(&c, "--synthetic"), say(&c, "%s", own), say(&c, "--epochs"), say(&c, "1"), say(&c, "--quiet");
        say(&c, "--threads"), say(&c, "1");
    } else {
        say(&c, "--out"), say(&c, "%s", own);
        if (!strcmp(run->part->name, "one-phase")) say(&c, "--phase"), say(&c, "0");
        if (evidence_word(run, "signal.runs", runs)) say(&c, "--runs"), say(&c, "%s", runs);
    }
    if (!run_command(run, &c, &said)) return 0;
    free(said);
    return papers_keep(run, own, path);
}

/* The line of a table that begins with a kind, behind its name; NULL where there is none. */
static char *row_of(char *table, const char *kind) {
    size_t n = strlen(kind);
    for (char *at = table; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (!strncmp(at, kind, n) && at[n] == ' ') return at + n;
    }
    return NULL;
}

/* Takes the next number of a line. */
static double take_number(char **at) {
    const char *from = *at;
    double value = strtod(from, at);
    return *at == from ? NAN : value;
}

/* The call of signal or spoken, but for the file: words PROGRAM.NAME of the settings are its options. */
static void begin_learning(const evidence_run *run, command *c, const char *program) {
    static const char *const options[] = {"parameters", "epochs", "features"};
    char name[64], value[64];
    start_command(c, program);
    say(c, "--validate"), say(c, "0"); /* the rows are of the last epochs */
    say(c, "--quiet"), say(c, "--lr"), say(c, "%g", run->rate), say_seed(c, run, run->seed);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        snprintf(name, sizeof name, "%s.%s", program, options[i]);
        if (evidence_word(run, name, value)) say(c, "--%s", options[i]), say(c, "%s", value);
    }
    say_settings(c, run, "");
}

/* Learns modulations; accuracy in percent of all test frames, from 0 dB on, at each level, and with every
   frame turned by a phase of its own. */
static int run_modulation(const evidence_run *run, evidence_result *result) {
    static const char *const shares[] = {"snr_from_0", "accuracy", "turned"};
    char path[1024], kind[64] = "rope", *said, *level, *row;
    command c;
    evidence_word(run, "kind", kind);
    if (!make_signals(run, path)) return 0;
    begin_learning(run, &c, "signal"), say(&c, "%s", path);
    if (!run_command(run, &c, &said)) return 0;
    level = strstr(said, "seconds"), row = row_of(said, kind);
    if (level && row) {
        level += strlen("seconds");
        result->parameters = (size_t)take_number(&row), take_number(&row);
        const char *ends = strstr(level, ">= 0 dB");
        while (ends && level + strspn(level, " ") < ends) {
            char name[32];
            snprintf(name, sizeof name, "snr_%g", take_number(&level));
            evidence_add(result, name, take_number(&row));
        }
        for (size_t i = 0; i < 3; i++) /* each with its spread over seeds, of which there is one */
            evidence_add(result, shares[i], take_number(&row)), take_number(&row);
        evidence_add(result, "change", take_number(&row));
    }
    free(said);
    return result->n > 4 || evidence_fail(run->error, "signal prints no row of %s", kind);
}

/* Learns spoken digits; accuracy in percent on takes 0 to 4 of every speaker. */
static int run_spoken(const evidence_run *run, evidence_result *result) {
    char path[1024], kind[64] = "rope", *said, *row;
    double accuracy = NAN;
    command c;
    evidence_word(run, "kind", kind);
    if (!evidence_data(run, "audio/fsdd.tar", path)) return 0;
    begin_learning(run, &c, "spoken"), say(&c, "%s", path);
    if (!run_command(run, &c, &said)) return 0;
    row = row_of(said, kind);
    if (row) result->parameters = (size_t)take_number(&row);
    int done = row && number_behind(row, "takes 0 to 4: ", &accuracy);
    free(said);
    return done ? evidence_add(result, "accuracy", accuracy)
                : evidence_fail(run->error, "spoken prints no row of %s", kind);
}

/* ---- The claims ---- */

static const evidence_part crat_parts[] = {
    {"cranfield", "Cranfield's abstracts", "program=rag rag.steps=200 rag.length=64 rag.encoder_steps=300"}};
static const evidence_variant crat_variants[] = {
    {"whole", "the whole model", "n_layers=2"},
    FLOOR("whole", "the whole model"),
    {"real", "real only", "family=real"},
    {"dot", "dot product", "crat_attention=dot"},
    {"no-window", "no window", "irw_layers=0"},
    {"one-frequency", "a single frequency", "pe_terms=1"},
    {"no-rotation", "no rotation", "state_rotation=0"},
    {"arctan", "arctan, which normalises no phase", "angle=atan"},
    {"plain-norm", "plain layer norm", "complex_norm=split"},
    {"dense", "one dense layer instead of experts", "experts=0"},
    {"plain-residual", "plain residual (no row of the paper)", "complex_residual=none"}};
const evidence_claim evidence_claim_crat = {
    "crat", "CRAT without one of its parts",
    "CRAT's Table 6: perplexity on WikiText-103 is 20.4, and higher by 2.1 without complex states, 1.5 "
    "without angles, 1.8 without the window, 0.6 with one frequency, 0.9 without rotation, 0.7 without "
    "phase normalisation, 1.0 without its norm, 0.5 without experts.",
    crat_parts, LENGTH(crat_parts), crat_variants, LENGTH(crat_variants), "val", "nats a token", 0, 5,
    {1e-3, 3e-3, 1e-2}, run_crat, 0.3, 0, NULL, 0, 0, 1, 0};

static const evidence_part retrieval_parts[] = {
    {"cranfield", "Cranfield: 1,400 abstracts, 225 questions", "program=rag rag.encoder_steps=300"},
    {"squad", "SQuAD 2.0: 646 passages, 2,910 questions", "program=rag rag.encoder_steps=300"}};
static const evidence_variant retrieval_variants[] = {
    {"encoder", "CRAT's encoder, from the passages alone", "rag.list=encoder"},
    FLOOR("encoder", "the encoder"),
    {"bm25", "BM25, which learns nothing", "rag.list=bm25"},
    {"both", "both, by reciprocal rank", "rag.list=both"}};
const evidence_claim evidence_claim_retrieval = {
    "retrieval", "Retrieval",
    "CRAT's section 6: no external retriever is needed, and passages that are found are more relevant.",
    retrieval_parts, LENGTH(retrieval_parts), retrieval_variants, LENGTH(retrieval_variants), "mrr",
    "mean reciprocal rank", 1, 5, {3e-4, 1e-3, 3e-3}, run_retrieval, 0.8, 0, NULL, 0, 0, 1, 0};

#define SIGNAL "program=signal signal.parameters=72000 signal.epochs=6 signal.runs=32"
static const evidence_part modulation_parts[] = {
    {"any-phase", "13 modulations, liquid-dsp", SIGNAL},
    {"one-phase", "13 modulations, trained at phase 0 alone", SIGNAL},
    {"plain", "4 plain modulations, 480 frames", "program=signal signal.parameters=72000 signal.epochs=20"}};
static const evidence_variant modulation_variants[] = {
    {"rope", "RoPE, real", "kind=rope"},
    FLOOR("rope", "RoPE"),
    {"learned", "learned positions, real", "kind=dot+learned"},
    {"cmha", "ComplexFormer, real", "kind=cmha"},
    {"cope-real", "CoPE real, complex", "kind=cope-real"},
    {"cope-phase", "CoPE phase, complex", "kind=cope-phase"},
    {"cope-magnitude", "CoPE magnitude, complex", "kind=cope-magnitude"},
    {"mobius-rope", "Möbius and RoPE, complex", "kind=mobius+rope"},
    {"angular", "CRAT angular, complex", "kind=angular"},
    {"lag", "CRAT lag, complex", "kind=lag"},
    {"crat", "CRAT, complex", "kind=crat"}};
const evidence_claim evidence_claim_modulation = {
    "modulation", "Radio signals",
    "The four papers' ground: complex numbers hold what phases say. Ours to test, on signals that are "
    "complex, with equal numbers to learn.",
    modulation_parts, LENGTH(modulation_parts), modulation_variants, LENGTH(modulation_variants), "accuracy",
    "%", 1, 5, {1e-3, 3e-3, 1e-2}, run_modulation, 0.4, 0, "turned", 1, 0, 1, 0};

#define SPOKEN "program=spoken spoken.parameters=90000 spoken.epochs=14 "
static const evidence_part spoken_parts[] = {
    {"complex", "spectra with their phases", SPOKEN "spoken.features=complex"},
    {"magnitude", "spectra without phases", SPOKEN "spoken.features=magnitude"}};
const evidence_claim evidence_claim_spoken = {
    "spoken", "Spoken digits",
    "As with radio signals: complex families against real ones, on spectra of the Free Spoken Digit "
    "Dataset.",
    spoken_parts, LENGTH(spoken_parts), modulation_variants, LENGTH(modulation_variants), "accuracy",
    "%", 1, 5, {2e-3, 5e-3, 1e-2}, run_spoken, 0.4, 0, NULL, 0, 0, 1, 0};
