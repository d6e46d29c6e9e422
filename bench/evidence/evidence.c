/* evidence.c - measures what papers claim: build/evidence list|run|row|check|report; README.md has the rest.

   A run trains one model and leaves one row in results/CLAIM.csv. `run` makes the rows that are missing, each
   in a process of its own, and may be killed and started again at any moment, also twice at once. Runs of
   minutes then go on where they were. */
#define PROGRAM "evidence"

#include "program.h"

#include "../../examples/tools/options.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>

#define CLAIM_ADDRESS(name) &evidence_claim_##name,
const evidence_claim *const evidence_claims[] = {EVIDENCE_CLAIMS(CLAIM_ADDRESS) NULL};
#undef CLAIM_ADDRESS
#ifndef EVIDENCE_FOLDER /* of a claim of one's own all lies in one folder: program, rows, pages */
#define EVIDENCE_FOLDER "bench/evidence"
#define EVIDENCE_WORK "build/evidence.work"
#define EVIDENCE_COMMAND "build/evidence"
#else
const evidence_primary evidence_primaries[] = {{"", "", "", "", 0}}; /* of one's own claim */
#define EVIDENCE_WORK EVIDENCE_FOLDER "/work"
#define EVIDENCE_COMMAND EVIDENCE_FOLDER "/evidence"
#endif
const char *const evidence_command = EVIDENCE_COMMAND;

enum { DATA, RESULTS, REPORT, WORK, JOBS, SEEDS, ONLY, TEST, SAVE, SET, QUICK, HELP, N_OPTIONS };
static setting option[N_OPTIONS] = {
    {"--data", NULL, "folder with the public data (CMHA_DATA, else ../shared/data)"},
    {"--results", EVIDENCE_FOLDER "/results", "folder with the rows, a CSV a claim"},
    {"--report", EVIDENCE_FOLDER, "folder with README.md, METHOD.md, results/ and figures/"},
    {"--work", EVIDENCE_WORK, "folder for what is made again where missing, and states of long runs"},
    {"--jobs", "1", "run: processes at once, each with one thread"},
    {"--seeds", "0", "run: so many seeds; 0 = the claim's"},
    {"--only", "", "WORD[,WORD..]: runs whose claim, part and variant hold all these words"},
    {"--test", NULL, "FILE: row alone: measures on these bytes, all of them, instead of the held-out text"},
    {"--save", NULL, "FILE.safetensors: row alone: keeps the trained model, for tests elsewhere"},
    {"--set", NULL, "NAME=VALUE: row alone, to see what a setting does; may be repeated"},
    {"--quick", NULL, "the quick claims alone"},
    {"--help", NULL, "this page"}};

static char more[1024]; /* the words of --set */
static char keep[1024]; /* of a long run: where its state is, see evidence_run */
static volatile sig_atomic_t stop;

static void on_signal(int sig) { stop = sig; }

/* ---- One run ---- */

typedef struct job {
    const evidence_claim *claim;
    const evidence_part *part;
    const evidence_variant *variant;
    size_t slot; /* below rows_slots: trials of rates; then seeds 1, 2, .. */
    size_t number; /* of its lock */
    enum { PENDING, RUNNING, ELSEWHERE, DONE, FAILED } state;
    pid_t pid;
} job;

static int is_trial(const job *j) { return j->slot < rows_slots(j->claim); }

static uint64_t seed_of(const job *j) {
    if (is_trial(j)) return rows_trial_seed(j->claim, j->slot);
    return (uint64_t)(j->slot - rows_slots(j->claim)) + 1;
}

/* 0: not known yet, or a trial that is not needed */
static double rate_of(const job *j, const evidence_table *table) {
    if (is_trial(j)) return rows_trial(table, j->claim, j->part, j->variant, j->slot);
    return rows_rate(table, j->claim, j->part, j->variant);
}

/* Trains and measures; *about says what the row says beside the result. */
static int perform(const job *j, double rate, evidence_about *about, evidence_run *run,
                   evidence_result *result, char *error) {
    char word[64];
    memset(run, 0, sizeof *run), memset(result, 0, sizeof *result), memset(about, 0, sizeof *about);
    run->claim = j->claim, run->part = j->part, run->variant = j->variant, run->rate = rate;
    run->data = option[DATA].value, run->work = option[WORK].value, run->error = error, run->more = more;
    run->trial = is_trial(j), run->test = option[TEST].value, run->save = option[SAVE].value;
    run->keep = *keep ? keep : NULL;
    run->seed = seed_of(j) + (uint64_t)evidence_number(run, "reseed", 0);
    run->threads = (int)evidence_number(run, "threads", 1);
    if (evidence_word(run, "instructions", word) && !cmha_instructions(word))
        return evidence_fail(error, "this CPU has no instructions %s", word);
    if ((run->test || run->save) && !evidence_word(run, "text.set", word))
        return evidence_fail(error, "--test and --save are for language models alone: %s has no text.set",
                             j->claim->name);
    about->run = run, about->seed = seed_of(j), about->chosen = !run->trial;
    double start = evidence_seconds();
    snprintf(error, EVIDENCE_ERROR, "%s failed without a reason", j->claim->name);
    if (!j->claim->run(run, result)) {
        const char *hint = own_rows_hint(error, evidence_rows.version > 0);
        strncat(error, hint, EVIDENCE_ERROR - 1 - strlen(error));
        return 0;
    }
    about->seconds = result->seconds + evidence_seconds() - start;
    for (size_t i = 0; i < result->n; i++)
        if (!strcmp(result->measures[i].name, j->claim->measure)) return 1;
    return evidence_fail(error, "%s left no measure %s", j->claim->name, j->claim->measure);
}

static double measured(const evidence_result *result, const char *name) {
    for (size_t i = 0; i < result->n; i++)
        if (!strcmp(result->measures[i].name, name)) return result->measures[i].value;
    return NAN;
}

/* What the process of a run does. Returns its status: 0, 1 after an error, 3 where another process has it. */
static int run_job(const job *j, double rate) {
    char error[EVIDENCE_ERROR];
    const char *results = option[RESULTS].value;
    evidence_run run;
    evidence_result result;
    evidence_about about;
    evidence_table table;
    int fd, got = rows_lock(results, j->claim, j->number, &fd, error);
    if (got == 0) return 3;
    int done = got > 0 && rows_load(&table, results, j->claim, error);
    int there = done && rows_find(&table, j->part, j->variant, seed_of(j), rate);
    if (done) rows_close(&table);
    if (there) return 0;
    if (j->claim->minutes >= EVIDENCE_LONG)
        snprintf(keep, sizeof keep, "%s/%s-%s-%s-%llu-%.9g", option[WORK].value, j->claim->name,
                 j->part->name, j->variant->name, (unsigned long long)seed_of(j), rate);
    done = done && perform(j, rate, &about, &run, &result, error) &&
           rows_append(results, &about, &result, error);
    if (done && run.keep) evidence_forget(&run);
    if (done)
        printf("%s %s %s seed %llu rate %g: %s %.6g (%.0f s)\n", j->claim->name, j->part->name,
               j->variant->name, (unsigned long long)seed_of(j), rate, j->claim->measure,
               measured(&result, j->claim->measure), about.seconds);
    else
        fprintf(stderr, PROGRAM ": %s %s %s seed %llu rate %g: %s\n", j->claim->name, j->part->name,
                j->variant->name, (unsigned long long)seed_of(j), rate, error);
    return !done;
}

/* ---- Which runs ---- */

static int claim_index(const evidence_claim *claim) {
    int i = 0;
    while (evidence_claims[i] != claim) i++;
    return i;
}

/* Does "claim part variant" hold every word of --only? */
static int is_wanted(const evidence_claim *claim, const evidence_part *part,
                     const evidence_variant *variant) {
    char all[512], word[128];
    snprintf(all, sizeof all, "%s %s %s", claim->name, part->name, variant->name);
    for (const char *at = option[ONLY].value; *at; at += *at == ',') {
        size_t n = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)(n < 127 ? n : 127), at);
        if (!strstr(all, word)) return 0;
        at += n;
    }
    return 1;
}

/* Is this variant's rate chosen for one that is wanted? */
static int chooses(const evidence_claim *claim, const evidence_part *part,
                   const evidence_variant *variant) {
    for (const evidence_variant *v = claim->variants; v < claim->variants + claim->n_variants; v++)
        if (evidence_like(claim, v) == variant && is_wanted(claim, part, v)) return 1;
    return 0;
}

/* Can this library do what the variant asks for? Says once what it cannot. */
static int is_possible(const evidence_claim *claim, const evidence_part *part,
                       const evidence_variant *variant, int say) {
    char line[EVIDENCE_ERROR];
    evidence_run run;
    memset(&run, 0, sizeof run);
    run.claim = claim, run.part = part, run.variant = variant, run.error = line;
    int can = evidence_configure(&run, &ctx, NULL, NULL);
    if (!can && say) fprintf(stderr, PROGRAM ": left out: %s\n", line);
    return can;
}

/* Appends the jobs of a claim: all trials of rates before all seeds, so that processes seldom wait. say: also
   says what is left out. */
static size_t list_jobs(const evidence_claim *claim, job *jobs, int say) {
    size_t n = 0, seeds = (size_t)whole_of(&option[SEEDS], 0, MOST_SEEDS), trials = rows_slots(claim);
    if (!seeds) seeds = claim->seeds;
    for (size_t slot = 0; slot < trials + seeds; slot++)
        for (size_t p = 0; p < claim->n_parts; p++)
            for (size_t v = 0; v < claim->n_variants; v++) {
                const evidence_part *part = &claim->parts[p];
                const evidence_variant *variant = &claim->variants[v];
                int missed = slot / rows_tuners(claim) == 2 && !(claim->rates[2] > 0);
                int tried = slot < trials && claim->rates[1] > 0 && !missed && chooses(claim, part, variant);
                if (slot < trials ? !tried : !is_wanted(claim, part, variant)) continue;
                if (!is_possible(claim, part, variant, say && slot == trials)) continue;
                if (jobs) {
                    size_t number = (p * claim->n_variants + v) * 1000 + slot;
                    job one = {claim, part, variant, slot, number, PENDING, 0};
                    jobs[n] = one;
                }
                n++;
            }
    return n;
}

/* ---- run ---- */

static evidence_table tables[256]; /* of evidence_claims */

static void load_table(const evidence_claim *claim) {
    evidence_table *table = &tables[claim_index(claim)];
    rows_close(table);
    must(rows_load(table, option[RESULTS].value, claim, failure));
}

/* Every row has to be of the settings that the claim has now. */
static void must_be_current(const evidence_claim *claim) {
    char line[EVIDENCE_ERROR];
    const evidence_table *table = &tables[claim_index(claim)];
    for (size_t i = 0; i < table->n; i++)
        if (!rows_current(&table->rows[i], claim)) {
            snprintf(line, sizeof line,
                     "%s/%s.csv: line %zu was made with other settings than the claim has now; take it away",
                     option[RESULTS].value, claim->name, table->rows[i].line);
            complain(1, line, "");
        }
}

/* Starts the first job that can be: its rate is known and its row is missing. */
static job *start_one(job *jobs, size_t n) {
    for (job *j = jobs; j < jobs + n; j++) {
        if (j->state != PENDING) continue;
        const evidence_table *table = &tables[claim_index(j->claim)];
        double rate = rate_of(j, table);
        if (!(rate > 0)) continue;
        if (rows_find(table, j->part, j->variant, seed_of(j), rate)) {
            j->state = DONE;
            continue;
        }
        fflush(stdout), fflush(stderr);
        if ((j->pid = fork()) < 0) complain(1, "cannot start a process", "");
        if (!j->pid) {
            signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL);
            int status = run_job(j, rate);
            _exit(fflush(stdout) ? 1 : status);
        }
        j->state = RUNNING;
        return j;
    }
    return NULL;
}

/* Waits for the end of a process, or where none runs a second for those of others. */
static void wait_for_one(job *jobs, size_t n, size_t running) {
    int status;
    if (!running) {
        sleep(1);
        for (job *j = jobs; j < jobs + n; j++)
            if (j->state == ELSEWHERE) j->state = PENDING, load_table(j->claim);
        return;
    }
    pid_t pid = waitpid(-1, &status, 0);
    for (job *j = jobs; pid > 0 && j < jobs + n; j++) {
        if (j->state != RUNNING || j->pid != pid) continue;
        int end = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        j->state = end == 0 ? DONE : end == 3 ? ELSEWHERE : FAILED;
        load_table(j->claim);
    }
}

static size_t count(const job *jobs, size_t n, int state) {
    size_t counted = 0;
    for (size_t i = 0; i < n; i++) counted += (int)jobs[i].state == state;
    return counted;
}

/* Counts the jobs whose rows are asked for: all but trials of rates that nobody needs. */
static size_t count_asked(const job *jobs, size_t n) {
    size_t asked = 0;
    for (const job *j = jobs; j < jobs + n; j++)
        asked += !is_trial(j) || rate_of(j, &tables[claim_index(j->claim)]) > 0;
    return asked;
}

static int run_jobs(job *jobs, size_t n) {
    size_t at_once = (size_t)whole_of(&option[JOBS], 1, 256);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal; /* without SA_RESTART: waitpid has to return */
    sigaction(SIGINT, &action, NULL), sigaction(SIGTERM, &action, NULL);
    while (!stop) {
        while (!stop && count(jobs, n, RUNNING) < at_once && start_one(jobs, n)) continue;
        size_t running = count(jobs, n, RUNNING);
        if (!running && !count(jobs, n, ELSEWHERE)) break;
        wait_for_one(jobs, n, running);
    }
    for (job *j = jobs; stop && j < jobs + n; j++)
        if (j->state == RUNNING) kill(j->pid, SIGTERM), waitpid(j->pid, NULL, 0);
    size_t asked = count_asked(jobs, n), missing = asked - count(jobs, n, DONE);
    if (stop) complain(128 + stop, "stopped; the same command continues", "");
    if (missing) fprintf(stderr, PROGRAM ": %zu of %zu rows are missing\n", missing, asked);
    return missing > 0;
}

/* Of equal names all but the first would be measured in vain, and rows be taken for others'. */
static void must_differ(const evidence_claim *claim, const char *what, const char *name, const char *other) {
    char line[EVIDENCE_ERROR];
    if (strcmp(name, other) != 0) return;
    snprintf(line, sizeof line, "%s has two %s named ", claim->name, what);
    complain(2, line, name);
}

static void must_be_told_apart(const evidence_claim *claim) {
    for (size_t i = 0; i < claim->n_parts; i++)
        for (size_t k = 0; k < i; k++)
            must_differ(claim, "parts", claim->parts[i].name, claim->parts[k].name);
    for (size_t i = 0; i < claim->n_variants; i++)
        for (size_t k = 0; k < i; k++)
            must_differ(claim, "variants", claim->variants[i].name, claim->variants[k].name);
}

static const evidence_claim *find_claim(const char *name) {
    const char *nearest = NULL;
    int apart = 0;
    for (const evidence_claim *const *c = evidence_claims; *c; c++)
        if (!strcmp((*c)->name, name)) return *c;
    for (const evidence_claim *const *c = evidence_claims; *c; c++)
        resemble(name, (*c)->name, &nearest, &apart);
    unknown("there is no claim", name, nearest);
    return NULL;
}

/* Makes the folders of a path, and the path. */
static void make_folder(const char *path) {
    char part[1024];
    for (size_t n = 1; n <= strlen(path) && n < sizeof part; n++)
        if (path[n] == '/' || !path[n]) {
            snprintf(part, sizeof part, "%.*s", (int)n, path);
            if (mkdir(part, 0777) && errno != EEXIST) complain(1, "cannot make the folder ", part);
        }
}

/* Is the claim among the names (none: all), and among --quick's? */
static int is_asked(const evidence_claim *claim, char **names, int n_names) {
    int asked = !n_names;
    for (int i = 0; i < n_names; i++) asked |= find_claim(names[i]) == claim;
    return asked && (!option[QUICK].value || claim->quick);
}

static int verb_run(char **names, int n_names) {
    size_t n = 0, at = 0;
    for (const evidence_claim *const *c = evidence_claims; *c; c++)
        if (is_asked(*c, names, n_names)) n += list_jobs(*c, NULL, 1);
    if (!n) complain(2, "no run is asked for, or none is possible; see --help and list", "");
    job *jobs = (job *)take(n, sizeof *jobs);
    make_folder(option[RESULTS].value), make_folder(option[WORK].value);
    for (const evidence_claim *const *c = evidence_claims; *c; c++)
        if (is_asked(*c, names, n_names)) {
            load_table(*c), must_be_current(*c);
            at += list_jobs(*c, jobs + at, 0);
        }
    int status = run_jobs(jobs, n);
    free(jobs);
    return status;
}

/* ---- row ---- */

static const evidence_part *find_part(const evidence_claim *claim, const char *name) {
    char line[2048] = "";
    for (size_t i = 0, n = 0; i < claim->n_parts && n < sizeof line; i++) {
        if (!strcmp(claim->parts[i].name, name)) return &claim->parts[i];
        n += (size_t)snprintf(line + n, sizeof line - n, " %s", claim->parts[i].name);
    }
    complain(2, "the claim has no part of that name; it has", line);
    return NULL;
}

static const evidence_variant *find_variant(const evidence_claim *claim, const char *name) {
    char line[2048] = "";
    for (size_t i = 0, n = 0; i < claim->n_variants && n < sizeof line; i++) {
        if (!strcmp(claim->variants[i].name, name)) return &claim->variants[i];
        n += (size_t)snprintf(line + n, sizeof line - n, " %s", claim->variants[i].name);
    }
    complain(2, "the claim has no variant of that name; it has", line);
    return NULL;
}

/* Returns the largest difference, NAN where a measure is missing or no number. */
static double print_beside(const evidence_result *now, const evidence_row *row) {
    double apart = 0;
    for (size_t i = 0; i < now->n; i++) {
        double value = now->measures[i].value, before = row ? rows_measure(row, now->measures[i].name) : NAN;
        char text[2][32];
        snprintf(text[0], 32, "%.9g", value), snprintf(text[1], 32, "%.9g", before);
        double difference = strcmp(text[0], text[1]) ? value - before : 0;
        double far = fabs(difference) / (fabs(before) + 1e-300);
        printf("  %-20s %-16s", now->measures[i].name, text[0]);
        if (row) printf(" committed %-16s difference %.3g", text[1], difference);
        putchar('\n');
        if (!(fabs(difference) > 0) && !isnan(difference)) continue;
        if (far > apart || isnan(far)) apart = far;
    }
    if (!row) puts(option[TEST].value ? "of the file of --test" : "no such row is committed");
    else if (apart > 0 || isnan(apart)) printf("the largest difference is %.2g of its number\n", apart);
    else puts("the same to all digits");
    return row ? apart : 0;
}

/* Was the row made by the BLAS, instructions and compiler of here, so that its digits must come again? */
static int same_machine(const evidence_row *row) {
    char blas[64];
    return !strcmp(row->cell[COLUMN_compiler], rows_compiler()) &&
           !strcmp(row->cell[COLUMN_blas], cmha_blas_name(blas, sizeof blas)) &&
           !strcmp(row->cell[COLUMN_instructions], cmha_instructions(NULL));
}

/* Appends a word for the shell, in quotes; 0: there is no room. */
static int quote(char *to, size_t room, const char *word) {
    size_t n = strlen(to);
    if (n + 4 * strlen(word) + 3 > room) return 0;
    to[n++] = '\'';
    for (; *word; word++) {
        if (*word == '\'') n += (size_t)sprintf(to + n, "'\\'");
        to[n++] = *word;
    }
    to[n] = '\'', to[n + 1] = 0;
    return 1;
}

/* Names the files of --data whose hashes are not those of what the committed rows were made of. */
static void compare_data(void) {
    char command[4096] = "cd ", line[512], sums[4096];
    int told = 0;
    if (!realpath("bench/evidence/data.sha256", sums) ||
        !quote(command, sizeof command / 2, option[DATA].value))
        return;
    strcat(command, " 2> /dev/null && sha256sum --ignore-missing -c ");
    if (!quote(command, sizeof command - 32, sums)) return;
    FILE *said = popen(strcat(command, " 2> /dev/null"), "r");
    while (said && fgets(line, sizeof line, said)) {
        char *end = strstr(line, ": FAILED");
        if (!end) continue;
        *end = 0;
        if (!told++) complain(0, "the data differ from those of the committed rows (data.sha256):", "");
        complain(0, "  ", line);
    }
    if (said) pclose(said);
}

/* Finds what a word NAME is set to in settings; NULL: it is not there. */
static const char *word_in(const char *settings, const char *name, size_t n) {
    for (const char *at = settings; *at; at += strspn(at, " ")) {
        if (!strncmp(at, name, n) && at[n] == '=') return at + n + 1;
        at += strcspn(at, " ");
    }
    return NULL;
}

/* Finds a word in the rows of all claims. */
static const char *word_of_claims(const char *name, size_t n) {
    const char *value = NULL;
    for (const evidence_claim *const *c = evidence_claims; *c; c++) {
        for (size_t p = 0; p < (*c)->n_parts && !value; p++)
            value = word_in((*c)->parts[p].settings, name, n);
        for (size_t v = 0; v < (*c)->n_variants && !value; v++)
            value = word_in((*c)->variants[v].settings, name, n);
    }
    return value;
}

/* Is a word, up to a blank, a number? */
static int is_number(const char *word) {
    char *end;
    (void)strtod(word, &end);
    return end != word && (!*end || *end == ' ');
}

/* Ends the program where --set names a word with a dot that no claim has, or gives a word for a number.
   Fields are checked by who reads them. */
static void check_words(void) {
    for (const char *at = more; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, "= "), all = strcspn(at, " ");
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        const char *like = word_of_claims(name, n);
        int ours = evidence_reads(name) || (strchr(name, '.') && strncmp(name, "trainer.", 8) != 0);
        if (strchr(name, '.') && ours && !like) complain(2, "--set: no claim has the word ", name);
        if (ours && like && is_number(like) && (at[n] != '=' || !is_number(at + n + 1)))
            complain(2, "--set: not a number: ", name);
        at += all;
    }
}

static int verb_row(char **arguments, int n) {
    if (n < 4 || n > 5) complain(2, "row CLAIM PART VARIANT SEED [RATE]", "");
    check_words();
    const evidence_claim *claim = find_claim(arguments[0]);
    job j;
    memset(&j, 0, sizeof j);
    j.claim = claim, j.part = find_part(claim, arguments[1]), j.variant = find_variant(claim, arguments[2]);
    setting seed = {"SEED", arguments[3], ""}, rate_given = {"RATE", n == 5 ? arguments[4] : "0", ""};
    evidence_run run;
    evidence_result result;
    evidence_about about;
    j.slot = (size_t)whole_of(&seed, 0, 899 + rows_tuners(claim));
    if (j.slot > 900) j.slot -= 900;
    else if (j.slot) j.slot += rows_slots(claim) - 1;
    load_table(claim);
    const evidence_table *table = &tables[claim_index(claim)];
    double rate = number_of(&rate_given, 0, 100);
    if (!(rate > 0)) rate = rate_of(&j, table);
    if (!(rate > 0)) complain(2, "no rate has been chosen yet; give one", "");
    const evidence_row *row = rows_find(table, j.part, j.variant, seed_of(&j), rate);
    if (option[TEST].value) row = NULL; /* it is of other text */
    make_folder(option[WORK].value);
    if (row) compare_data();
    must(perform(&j, rate, &about, &run, &result, failure));
    printf("%s %s %s seed %llu rate %g: %zu parameters, %.0f s\n", claim->name, j.part->name, j.variant->name,
           (unsigned long long)seed_of(&j), rate, result.parameters, about.seconds);
    double apart = print_beside(&result, row);
    if (!row || *more || !(apart > 0 || isnan(apart))) return 0;
    if (!same_machine(row)) return puts("(by another BLAS, compiler or other instructions)"), 0;
    complain(0, "other digits than committed, by the same BLAS, compiler and instructions: other code, or "
                "other data; bench/evidence/data.sha256 tells", "");
    return 1;
}

/* ---- list ---- */

static int verb_list(char **names, int n_names) {
    for (const evidence_claim *const *c = evidence_claims; *c; c++) {
        if (!is_asked(*c, names, n_names)) continue;
        size_t n = list_jobs(*c, NULL, 1), made = 0;
        job *jobs = (job *)take(n + 1, sizeof *jobs);
        load_table(*c), list_jobs(*c, jobs, 0);
        const evidence_table *table = &tables[claim_index(*c)];
        for (size_t i = 0; i < n; i++) {
            double rate = rate_of(&jobs[i], table);
            made += rate > 0 && rows_find(table, jobs[i].part, jobs[i].variant, seed_of(&jobs[i]), rate);
        }
        n = count_asked(jobs, n);
        printf("%-18s %4zu of %4zu rows, %5.1f minutes each%s  %s\n", (*c)->name, made, n, (*c)->minutes,
               (*c)->quick ? ", quick" : "       ", (*c)->title);
        free(jobs);
    }
    return 0;
}

/* ---- report and check ---- */

static int report(int n_names, int compare) {
    static const char *const folders[] = {"figures", "results"};
    char path[1100];
    if (n_names) complain(2, "report and check take no names", "");
    for (const evidence_claim *const *c = evidence_claims; *c; c++) load_table(*c), must_be_current(*c);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", option[REPORT].value, folders[i]);
        if (!compare) make_folder(path);
    }
    must(report_write(tables, option[REPORT].value, compare, failure));
    return 0;
}

static int verb_report(char **names, int n_names) { return (void)names, report(n_names, 0); }
static int verb_check(char **names, int n_names) { return (void)names, report(n_names, 1); }

static int help(int status) {
    puts(PROGRAM " list [CLAIM..]   claims, and how many of their rows are there\n"
         PROGRAM " run [CLAIM..]    makes the rows that are missing\n"
         PROGRAM " row CLAIM PART VARIANT SEED [RATE]   repeats a row: how far is it from the one there?\n"
         PROGRAM " report           writes README.md, METHOD.md, results/*.md and the figures\n"
         PROGRAM " check            are they what the rows say?\n");
    print_options(option, N_OPTIONS, 10, 0);
    return end_help("build/evidence row generation wikitext2 pope 3"), status;
}

/* Brings the rows that are linked or that --rows names. */
static void bring_rows(const char *path) {
    cmha_context context;
    cmha_context_config config;
    memset(&config, 0, sizeof config);
    evidence_rows_path = path;
    must(own_rows_find(path, &evidence_rows, failure));
    own_rows_give(&evidence_rows, &config), config.threads = 1;
    check(cmha_context_init(&context, &config));
    must(own_rows_names(&context, failure));
    cmha_context_close(&context);
}

int main(int argc, char **argv) {
    static const struct { const char *name; int (*run)(char **, int); } verbs[] = {
        {"list", verb_list}, {"run", verb_run}, {"row", verb_row}, {"report", verb_report},
        {"check", verb_check}};
    start_program(argv);
    const char *data = getenv("CMHA_DATA");
    option[DATA].value = data && *data ? data : "../shared/data";
    int words = 1, n_set = 0;
    while (words < argc && *argv[words] != '-') words++;
    const char *rest = read_options(option, N_OPTIONS, 1u << QUICK | 1u << HELP, argc - words + 1,
                                    argv + words - 1, &n_set);
    for (int i = 0; i < n_set; i++) {
        size_t n = strlen(more);
        if ((size_t)snprintf(more + n, sizeof more - n, "%s ", argv[words + i]) >= sizeof more - n)
            complain(2, "too many --set", "");
    }
    if (rest) complain(2, "names come before options: ", rest);
    bring_rows(common_option->value);
    if (option[HELP].value || words == 1) return help(option[HELP].value ? 0 : 2);
    for (const evidence_claim *const *c = evidence_claims; *c; c++) must_be_told_apart(*c);
    int alone = *more || option[TEST].value || option[SAVE].value;
    if (alone && strcmp(argv[1], "row") != 0) complain(2, "--set, --test and --save are for row alone", "");
    if (strcmp(argv[1], "run") != 0 && strcmp(argv[1], "list") != 0)
        refuse_given(option, 1u << ONLY | 1u << QUICK | 1u << SEEDS | 1u << JOBS, " is for run and list");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(verbs[i].name, argv[1])) return end_program(verbs[i].run(argv + 2, words - 2));
    const char *names[sizeof verbs / sizeof *verbs];
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) names[i] = verbs[i].name;
    no_such("there is no verb", argv[1], names, sizeof verbs / sizeof *verbs);
    return 2;
}
