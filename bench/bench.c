/* Measures this machine and the library on it; --help lists the sections. Every number is a median of five
   timings, and whatever is held against something else has taken turns with it, because clocks and neighbours
   differ from one second to the next. */
#include "examples/tools/text.h" /* before bench.h, whose types have short names */

#include "bench/bench.h"
#include "examples/tools/rows.h"

#include <math.h>

cmha_context ctx;
int quick;
char blas_before[64];
double load_before;
elsewhere work_before;

static const struct {
    const char *name, *help;
    void (*run)(void);
    int by_default, chart;
} sections[] = {
    {"hardware", "matrix products of the model's shapes, memory bandwidth", bench_hardware, 1, 0},
    {"maps", "the feature map of each kind, forward and backward", bench_maps, 1, 1},
    {"attention", "each kind's attention alone, n = 512 to 4,096", bench_attention, 1, 1},
    {"train", "training steps of the presets tiny and paper, CMHA and RoPE", bench_train, 1, 0},
    {"decode", "reading 512 and 2,048 tokens, and the tokens after them", bench_decode, 1, 0},
    {"memory", "bytes of parameters, training and caches", bench_memory, 1, 0},
    {"kinds", "a whole layer of each kind, its memory and its cache", bench_kinds, 0, 0},
    {"retrieval", "search of a knowledge base against the product it contains", bench_retrieval, 1, 0},
    {"experts", "a mixture of experts against a dense feed-forward layer", bench_experts, 1, 0},
    {"floors", "the ratios that the library is held to, see bench/README.md", bench_floors, 0, 0}};
enum { SECTIONS = sizeof sections / sizeof *sections };

typedef struct options {
    const char *json, *svg, *threads, *serve, *model, *save, *rows;
    int chosen[SECTIONS], any;
} options;

static void finish_output(void) {
    if (!text_close_output()) die(1, "cannot write to the standard output", "");
}

static void usage(void) {
    puts("bench [SECTION...] [--json FILE] [--svg FILE] [--threads N] [--quick]: measures this machine and "
         "cmha.h on it\n");
    for (size_t i = 0; i < SECTIONS; i++)
        printf("  %-10s %s%s\n", sections[i].name, sections[i].help,
               sections[i].by_default ? "" : " (only when asked for)");
    puts("\n  --json FILE    every number measured, and what the machine is\n"
         "  --svg FILE     a chart of the time of attention (or, without it, of the maps) over n\n"
         "  --threads N    as many threads; without it, one for each core\n"
         "  --quick        smaller sizes, under a minute\n"
         "  --serve WORK   do WORK once for every line on standard input and print its seconds: for programs "
         "that take turns\n"
         "                 with this one. train/PRESET/KIND, attention/N/KIND, prefill/N/KIND, decode/N/KIND "
         "(seconds a token);\n"
         "                 a KIND of models may have fields, as in train/paper/cmha,batch=1,dropout=0;\n"
         "                 attention/N/KIND,aligned: on arrays that begin with a cache line;\n"
         "                 prefill and decode take weights and cache: decode/512/cmha/int8/bf16; int8r, "
         "int4r and\n"
         "                 q4_kr multiply rows rounded to 16 bits\n"
         "  --model FILE   with prefill and decode: the model of this file, packed or not\n"
         "  --save FILE    with them: writes the model there\n"
         "  --rows FILE.so scores, layers and optimisers of your own (examples/README.md): scores and layers "
         "join the section\n"
         "                 kinds, and stand for a KIND of models\n\n"
         "\"of GEMM\" is the share of the rate of a large matrix product, \"/ RoPE\" a quotient of times, "
         "both of the same rounds\n"
         "of the same run. Numbers are medians of five.\n\n"
         "-h is --help, --version tells the library's. Example:\n"
         "  build/bench attention --threads 1 --svg attention.svg");
}

static void choose(options *o, const char *name) {
    for (size_t i = 0; i < SECTIONS; i++)
        if (!strcmp(sections[i].name, name)) {
            o->chosen[i] = o->any = 1;
            return;
        }
    die(2, "no such section or option, see --help: ", name);
}

static void parse(options *o, int argc, char **argv) {
    static const char *const names[] = {"--json", "--svg", "--threads", "--serve", "--model", "--save",
                                        "--rows"};
    const char **const values[] = {&o->json, &o->svg, &o->threads, &o->serve, &o->model, &o->save, &o->rows};
    enum { VALUES = sizeof names / sizeof *names };
    char again[48];
    for (int i = 1; i < argc; i++) {
        size_t n = strcspn(argv[i], "="), k = 0;
        while (k < VALUES && (strlen(names[k]) != n || strncmp(names[k], argv[i], n) != 0)) k++;
        if (k < VALUES) {
            snprintf(again, sizeof again, "one %s is enough, what is ", names[k]);
            if (*values[k]) die(2, again, argv[i]); /* which of two holds is not for it to guess */
            *values[k] = argv[i][n] ? argv[i] + n + 1 : argv[++i];
            if (!*values[k] || !**values[k]) die(2, "a value is missing after ", names[k]);
        } else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) usage(), finish_output(), exit(0);
        else if (!strcmp(argv[i], "--version")) {
            printf("bench, cmha %d.%d.%d\n", CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR, CMHA_VERSION_PATCH);
            finish_output(), exit(0);
        } else if (!strcmp(argv[i], "--quick")) quick = 1;
        else choose(o, argv[i]);
    }
    if (o->json && o->svg && !strcmp(o->json, o->svg)) die(2, "both --json and --svg are ", o->json);
    if (o->serve && (o->json || o->svg || o->any || quick))
        die(2, "--serve goes without sections, --json, --svg and --quick", "");
    int decodes = o->serve && (*o->serve == 'p' || *o->serve == 'd');
    if (!decodes && (o->model || o->save))
        die(2, "--model and --save are for --serve prefill and decode", "");
    for (size_t i = 0; i < SECTIONS && !o->any; i++) o->chosen[i] = sections[i].by_default;
}

/* What is no file, as /dev/stdout, is opened to see whether it may be. */
static void check_file(const char *path) {
    char error[TEXT_ERROR];
    struct stat about;
    FILE *f = NULL;
    if (text_may_save(path, error)) return;
    if (!stat(path, &about) && !S_ISREG(about.st_mode)) f = fopen(path, "a");
    if (!f) die(1, error, "");
    fclose(f);
}

/* A file that cannot be written, or would be empty, is noticed before the minutes of measuring; until they
   are over, one that is there stays as it is. */
static void check_files(const options *o) {
    int chart = 0;
    for (size_t i = 0; i < SECTIONS; i++) chart |= o->chosen[i] && sections[i].chart;
    if (o->svg && !chart) die(2, "--svg needs the section attention or maps", "");
    if (o->json) check_file(o->json);
    if (o->svg) check_file(o->svg);
}

/* The kernel that the BLAS takes by itself is known only before the restart that corrects it:
   the environment carries its name. */
static void restart(char **argv) {
    const char *before = getenv("CMHA_BENCH_BLAS");
#ifdef __linux__
    if (cmha_blas_remedy() && !before)
        setenv("CMHA_BENCH_BLAS", cmha_blas_name(blas_before, sizeof blas_before), 1);
#endif
    cmha_blas_restart(argv);
    snprintf(blas_before, sizeof blas_before, "%s", before && !cmha_blas_remedy() ? before : "");
}

int tell_weak_kernel(int on_stderr) {
    FILE *f = on_stderr ? stderr : stdout;
    static const char line[] = "****************************************************************************";
    const char *chosen = getenv("OPENBLAS_CORETYPE"), *remedy = cmha_blas_remedy();
    if (!remedy || !chosen || !*chosen) return 0;
    fprintf(f, "%s\n*** OPENBLAS_CORETYPE=%s IS SET, A KERNEL BELOW WHAT THIS CPU CAN DO\n", line, chosen);
    fprintf(f, "*** it can halve every number; unset it, or set %s\n%s\n", remedy, line);
    return 1;
}

static void show_machine(void) {
    char name[64];
    const char *chosen = getenv("OPENBLAS_CORETYPE"), *remedy = cmha_blas_remedy();
    int told = tell_weak_kernel(0);
    printf("cmha.h %s; %s, %d threads\n", cmha_version(), cmha_blas_name(name, sizeof name), ctx.threads);
    if (*blas_before)
        printf("kernel corrected by the program itself, by default it would be %s\n", blas_before);
    else if (chosen && *chosen && !told) printf("kernel chosen by OPENBLAS_CORETYPE=%s\n", chosen);
    else if (remedy && !told) printf("this BLAS runs below what the CPU can do: set %s\n", remedy);
    if (isnan(work_before.others) && load_before > 0.5)
        printf("the machine has other work (load %.1f): trust the ratios, not the numbers\n", load_before);
}

/* Says after a section what others did meanwhile, in CPUs, where it was enough to be seen in the numbers. */
static void show_others(elsewhere begin, int repeated) {
    elsewhere busy = work_since(begin);
    if (!(busy.others + busy.stolen > DISTURBED) || busy.at * (busy.others + busy.stolen) < 0.1) return;
    printf("  other work kept %.1f CPUs busy meanwhile", busy.others + busy.stolen);
    if (busy.stolen > 0.05) printf(" (%.1f of them on the host)", busy.stolen);
    if (repeated) printf(", %d rounds repeated", repeated);
    puts(": trust the ratios, not the numbers");
}

int main(int argc, char **argv) {
    cmha_context_config config = {0};
    options o = {0};
    own_rows own;
    char error[TEXT_ERROR];
    uint64_t threads = 0;
    text_open_streams();
    parse(&o, argc, argv);
    restart(argv);
    if (o.threads && (!text_whole(o.threads, &threads) || threads < 1 || threads > 1024))
        die(2, "not a number of threads from 1 to 1024: ", o.threads);
    config.threads = (int)threads;
    if (!own_rows_find(o.rows, &own, error)) die(1, error, "");
    own_rows_give(&own, &config);
    check(cmha_context_init(&ctx, &config));
    if (!own_rows_names(&ctx, error)) die(1, error, "");
    load_before = machine_load(), work_before = work_elsewhere();
    if (o.serve) bench_serve(o.serve, o.model, o.save);
    else {
        check_files(&o);
        show_machine();
        for (size_t i = 0; i < SECTIONS; i++) {
            elsewhere begin = work_elsewhere();
            int repeated = rounds_repeated;
            if (!o.chosen[i]) continue;
            sections[i].run();
            show_others(begin, rounds_repeated - repeated);
        }
        if (o.json) report_json(o.json);
        if (o.svg) report_svg(o.svg);
    }
    cmha_context_close(&ctx);
    finish_output();
    return 0;
}
