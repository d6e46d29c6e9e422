/* options.h - what these programs share: options with their numbers checked, fields of configurations by
   name, one line for an error, memory whose size is checked. A program defines PROGRAM, its name, and
   includes this after cmha.h; with NO_ROWS it has no --rows (rows.h). */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "text.h"
#include "rows.h"

#include <signal.h>
#include <sys/time.h>

typedef struct setting { const char *name, *value, *what; } setting; /* an option; first of all its default */
typedef struct settable { cmha_table table; void *config; } settable; /* a configuration that --set reaches */

#ifdef NO_ROWS
enum { COMMON = 0 };
#else
enum { COMMON = 1 };
#endif
static cmha_context ctx;
static int line_open;    /* the cursor of the terminal stands behind something */
static int kernel_given; /* the user chose OpenBLAS's kernel */
static char failure[TEXT_ERROR]; /* what text_.. functions say of a failure */
static uint64_t options_given;   /* the bits of the program's options that the command line names */
/* f, r, t and o: --freeze, --rate (with =X), --train and --optimiser (with =NAME) */
static struct { char *pattern, option; } tuned[64];
static int n_tuned;

/* Of processes that work together (ranks.h): agrees with them on the status, if it is an end; is this the one
   to print the line? NULL: there are no others. */
static int (*speaks)(int *status, char line[TEXT_ERROR]);

/* Prints one line on stderr; then ends the program unless status is 0. 1: something failed, 2: it was called
   the wrong way. */
static inline void complain(int status, const char *what, const char *which) {
    char line[TEXT_ERROR];
    text_fail(line, "%s%s", what, which);
    if (!speaks || speaks(&status, line))
        fprintf(stderr, "%s" PROGRAM ": %s\n", line_open ? "\n" : "", line);
    line_open = 0;
    if (status) exit(status);
}

/* Ends the program with the library's line, which of rows that are not there says who brings them. */
static inline void complain_of(const char *line) {
    int own = ctx.config.n_scores || ctx.config.n_optimisers;
    complain(1, line, COMMON ? own_rows_hint(line, own) : "");
}

static inline void check(cmha_status status) {
    if (status) complain_of(cmha_error(&ctx));
}

/* Ends the program with the line in `failure` after a text_.. function that has failed. */
static inline void must(int done) {
    if (!done) complain(1, failure, "");
}

/* Has the model a cache, to continue a text with? A layer of the user's own may have none; says so. */
static inline int continues(const cmha_model *model) {
    int none = model->score && model->score->whole;
    if (none) complain(0, "no sample: it needs a cache, which does not serve ", model->score->name);
    return !none;
}

/* What models of others are, and what makes a checkpoint of them; convert reads them, or their folder. */
static const struct foreign { const char *what; int folder; } foreign_models[] = {
    {" is a GGUF file", 0},
    {" is a folder", 0},
    {" holds PyTorch's own objects", 1}, /* of its folder build/convert says what makes it readable */
    {" has tensors, but is no checkpoint of this library", 1},
    {" is a .bin of llama2.c", 0}};

/* Does a file begin as one of llama2.c does: width, inner width, layers, heads, key heads, tokens (negative:
   with a head of its own) and positions, of 32 bits each? */
static inline int foreign_plain(const unsigned char head[28]) {
    static const uint32_t most[7] = {65536, 1048576, 1024, 1024, 1024, 16777216, 16777216};
    uint32_t x[7];
    for (int i = 0; i < 7; i++) {
        const unsigned char *at = head + 4 * i;
        x[i] = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        if (i == 5 && x[i] >> 31) x[i] = ~x[i] + 1;
        if (!x[i] || x[i] > most[i]) return 0;
    }
    return x[0] % x[3] == 0 && x[3] % x[4] == 0;
}

/* Which of them a file is, or NULL. */
static inline const struct foreign *foreign_model(const char *path) {
    unsigned char head[28] = {0};
    const char *format;
    cmha_archive a;
    int ours;
    FILE *file = regular_open(path);
    size_t n = file ? fread(head, 1, sizeof head, file) : 0;
    if (file) fclose(file);
    if (!strcmp(regular_fault(path), REGULAR_FOLDER)) return &foreign_models[1];
    if (!memcmp(head, "GGUF", 4)) return &foreign_models[0];
    if (!memcmp(head, "PK\3\4", 4) || !memcmp(head, "\x80\2\x8a\n", 4)) return &foreign_models[2];
    if (n == sizeof head && foreign_plain(head)) return &foreign_models[4];
    if (!n || cmha_archive_open(&a, &ctx, path)) return NULL;
    format = cmha_archive_metadata(&a, "format");
    ours = cmha_archive_metadata(&a, "cfg.d_model") || (format && !strncmp(format, "cmha", 4));
    cmha_archive_close(&a);
    return ours ? NULL : &foreign_models[3];
}

/* Ends the program where a file is a model of others, with a line that says how to convert it. */
static inline void refuse_foreign(const char *path) {
    char line[2 * TEXT_ERROR];
    const struct foreign *f = foreign_model(path);
    if (!f) return;
    snprintf(line, sizeof line, "%s; first: build/convert %.600s OUT.safetensors", f->what,
             f->folder ? "FOLDER" : path);
    complain(1, path, line);
}

/* Opens a checkpoint, or ends the program with a line, which of a model of others says how to convert it. */
static inline void open_checkpoint(cmha_model *model, const char *path) {
    char why[TEXT_ERROR];
    if (!cmha_model_open(model, &ctx, path)) return;
    snprintf(why, sizeof why, "%s", cmha_error(&ctx));
    refuse_foreign(path);
    complain_of(why);
}

/* Reads a checkpoint's weights into a model, which may have more: parameters that the file lacks stay, and a
   line says so unless they are adapters. */
static inline void read_weights(cmha_model *model, const char *path) {
    const cmha_parameters *p = &model->parameters;
    const char *first = NULL;
    size_t lacking = 0;
    char line[TEXT_ERROR];
    cmha_archive file;
    check(cmha_model_read(model, path, 2, NULL));
    check(cmha_archive_open(&file, &ctx, path));
    for (size_t i = 0; i < p->count; i++) {
        const char *name = p->list[i].name;
        if (strstr(name, ".lora_") || cmha_archive_find(&file, name)) continue;
        if (!lacking++) first = name;
    }
    cmha_archive_close(&file);
    if (!lacking) return;
    text_fail(line, " lacks %zu of the model's %zu tensors, such as %s; they begin as in a new model",
              lacking, p->count, first);
    complain(0, path, line);
}

static inline double seconds(void) {
    struct timeval t;
    gettimeofday(&t, NULL);
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* ---- Memory ---- */

static inline size_t times(size_t a, size_t b) {
    if (b && a > (size_t)-1 / b) complain(1, "no memory for so much", "");
    return a * b;
}

/* Zeroed memory, never NULL */
static inline void *take(size_t n, size_t size) {
    void *memory = calloc(times(n ? n : 1, size), 1);
    if (!memory) complain(1, "no memory for so much", "");
    return memory;
}

/* ---- The command line ---- */

/* The value of an option, which has to be a whole number from `least` to `most`. */
static inline uint64_t whole_of(const setting *o, uint64_t least, uint64_t most) {
    char line[160];
    uint64_t n = 0;
    if (text_whole(o->value, &n) && n >= least && n <= most) return n;
    snprintf(line, sizeof line, "%s is a whole number from %llu to %llu, not %.40s", o->name,
             (unsigned long long)least, (unsigned long long)most, o->value);
    complain(2, line, "");
    return 0;
}

/* The same for a number. */
static inline double number_of(const setting *o, double least, double most) {
    char line[160], *end;
    double value = strtod(o->value, &end);
    if (!*end && end != o->value && value >= least && value <= most) return value;
    snprintf(line, sizeof line, "%s is a number from %g to %g, not %.40s", o->name, least, most, o->value);
    complain(2, line, "");
    return 0;
}

/* Counts the letters to add, drop or change until a is b; more than `most` count as most + 1. */
static inline int edits(const char *a, const char *b, int most) {
    int add, drop, change;
    for (; *a && *a == *b; a++) b++;
    if (!most || (!*a && !*b)) return *a || *b;
    add = *b ? edits(a, b + 1, most - 1) : most, drop = *a ? edits(a + 1, b, most - 1) : most;
    change = *a && *b ? edits(a + 1, b + 1, most - 1) : most;
    return 1 + (add < drop ? add < change ? add : change : drop < change ? drop : change);
}

/* Keeps a name in *nearest if it resembles the wrong one more than what is there; half of the letters may
   differ, but no more than three. */
static inline void resemble(const char *wrong, const char *name, const char **nearest, int *apart) {
    int most = strlen(wrong) < 6 ? (int)strlen(wrong) / 2 : 3, n;
    if (*nearest) most = *apart - 1;
    if (most >= 0 && (n = edits(wrong, name, most)) <= most) *nearest = name, *apart = n;
}

static inline void unknown(const char *what, const char *name, const char *nearest) {
    char line[200];
    const char *tell = nearest ? ", the nearest is " : "";
    snprintf(line, sizeof line, "%s %.60s%s%s; see --help", what, name, tell, nearest ? nearest : "");
    complain(2, line, "");
}

/* The one of some words, which stand between blanks, bars and commas, that resembles the wrong one most; NULL
   if none does. It lies in `nearest`. */
static inline const char *nearest_word(const char *wrong, const char *words, char nearest[64]) {
    const char *found = NULL;
    for (int apart = 0; *words; words += strspn(words, " |,")) {
        char word[64];
        size_t length = strcspn(words, " |,");
        const char *before = found;
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        resemble(wrong, word, &found, &apart);
        if (found != before) found = strcpy(nearest, word);
        words += length;
    }
    return found;
}

/* Ends the program, as a name is none of those that there are. */
static inline void no_such(const char *what, const char *wrong, const char *const *names, size_t n) {
    const char *nearest = NULL;
    int apart = 0;
    for (size_t i = 0; i < n; i++) resemble(wrong, names[i], &nearest, &apart);
    unknown(what, wrong, nearest);
}

/* Sets the fields of a preset, or those of a kind of attention. */
static inline void set_preset(const char *name, cmha_model_config *model, cmha_trainer_config *trainer) {
    const char *nearest = NULL, *one;
    int apart = 0;
    if (!cmha_preset(NULL, name, model, trainer)) return;
    for (size_t i = 0; (one = cmha_preset_name(i)) != NULL; i++) resemble(name, one, &nearest, &apart);
    unknown("there is no preset", name, nearest);
}

static inline void set_kind(const char *name, cmha_model_config *model) {
    const char *nearest = NULL, *one;
    int apart = 0;
    if (own_rows_kind(&ctx, name, model) || !cmha_kind(&ctx, name, model)) return;
    for (size_t i = 0; (one = cmha_kind_name(i, NULL)) != NULL; i++) resemble(name, one, &nearest, &apart);
    for (size_t i = 0; i < ctx.config.n_scores; i++)
        resemble(name, ctx.config.scores[i].name, &nearest, &apart);
    unknown("there is no kind of attention", name, nearest);
}

/* Cuts NAME=VALUE after the name; returns the value. */
static inline char *cut_value(char *field) {
    char *sign = strchr(field, '=');
    return sign ? *sign = 0, sign + 1 : field + strlen(field);
}

/* The option that an argument NAME or NAME=VALUE means, or NULL; -h is --help. */
static inline setting *find_option(setting *options, int n, const char *argument) {
    if (!strcmp(argument, "-h")) argument = "--help";
    size_t length = strcspn(argument, "=");
    for (setting *o = options; o < options + n; o++)
        if (!strncmp(o->name, argument, length) && !o->name[length]) return o;
    return NULL;
}

/* Last thing in main: what was printed has to have arrived. Returns the status of the program. */
static inline int end_program(int status) {
    if (!text_close_output()) complain(1, "cannot write to the standard output", "");
    return status;
}

/* The same behind the page that --help prints, whose last line is an example. */
static inline int end_help(const char *example) {
#ifdef NO_ROWS
    putchar('\n');
#else
    puts("\n" ROWS_HELP);
    for (size_t i = 0; i < ctx.config.n_scores; i++) printf("  score=%s\n", ctx.config.scores[i].name);
    for (size_t i = 0; i < ctx.config.n_optimisers; i++)
        printf("  optimiser=%s\n", ctx.config.optimisers[i].name);
#endif
    printf("-h is --help, --version tells the library's. Example:\n  %s\n", example);
    return end_program(0);
}

static setting common_option[1] = {{"--rows", NULL, ROWS_HELP}}; /* [COMMON], of every program */

/* Does an argument look like an option? - is the standard input, a file like any other. */
static inline int is_option(const char *argument) { return argument[0] == '-' && argument[1]; }

/* The option among a program's own and those of every program, or NULL. */
static inline setting *any_option(setting *options, int n, const char *argument) {
    setting *o = find_option(options, n, argument);
    return o || !is_option(argument) ? o : find_option(common_option, COMMON, argument);
}

/* Is it among those of these bits, which stand without a value? */
static inline int stands_alone(const setting *o, const setting *options, uint64_t flags) {
    return o != common_option && flags >> (o - options) & 1;
}

/* May an option that stands alone have a value behind =? Then its help shows it, as in --follow=SECONDS. */
static inline int shows_value(const setting *o) {
    const char *shown = strstr(o->what, o->name);
    return shown && shown[strlen(o->name)] == '=';
}

static inline void end_with_version(void) {
    printf(PROGRAM ", cmha %d.%d.%d\n", CMHA_VERSION_MAJOR, CMHA_VERSION_MINOR, CMHA_VERSION_PATCH);
    exit(end_program(0));
}

/* Ends the program where an option comes again: which of two values holds is not for it to guess. */
static inline void refuse_again(const char *name, const char *value) {
    char line[80];
    snprintf(line, sizeof line, "one %.40s is enough%s", name, *value ? ", what is " : "");
    complain(2, line, value);
}

/* Prints a line where --set names a field again: the last value holds. */
static inline void tell_again(char *const *settings, int n_set, const char *asked) {
    char line[200];
    const size_t name = strcspn(asked, "=");
    for (int i = n_set; i-- > 0;) {
        if (strncmp(settings[i], asked, name + 1)) continue;
        snprintf(line, sizeof line, "--set %.60s does not hold, as the field comes again: ", settings[i]);
        complain(0, line, asked);
        return;
    }
}

/* Reads the command line into the options. The bits of `flags` are set for those that stand without a value,
   which is then "", unless their help shows one. --set may come more than once: its arguments are kept in
   argv[1 ..], *n_set of them; so may --freeze, --rate, --train and, with a pattern, --optimiser. Returns the
   one argument that is no option, or NULL. */
static inline const char *read_options(setting *options, int n, uint64_t flags, int argc, char **argv,
                                       int *n_set) {
    const char *rest = NULL, *nearest = NULL;
    uint64_t once = 0; /* the bits of options that have come, and may not again */
    for (int i = 1, apart = 0; i < argc; i++) {
        setting *o = any_option(options, n, argv[i]);
        char *sign = strchr(argv[i], '='), *value = sign ? sign + 1 : NULL;
        if (!strcmp(argv[i], "--version")) end_with_version();
        if (!o && (rest || is_option(argv[i]))) {
            cut_value(argv[i]);
            for (o = options; o < options + n; o++) resemble(argv[i], o->name, &nearest, &apart);
            if (COMMON) resemble(argv[i], common_option->name, &nearest, &apart);
            unknown(is_option(argv[i]) ? "there is no option" : "one file is enough, what is", argv[i],
                    nearest);
        } else if (!o) {
            rest = argv[i];
            continue;
        }
        int alone = stands_alone(o, options, flags);
        if (alone && value && !shows_value(o)) complain(2, "takes no value: ", o->name);
        if (!value) value = alone ? argv[i] + strlen(argv[i]) : argv[++i];
        if (!value) complain(2, "a value is missing after ", o->name);
        const uint64_t bit = o == common_option ? UINT64_C(1) << 63 : UINT64_C(1) << (o - options);
        if (o != common_option) options_given |= bit;
        int assigns = strchr(value, '=') != NULL, chooses = assigns && !strcmp(o->name, "--optimiser");
        int tunes = !strncmp(o->what, "PATTERN", 7) || chooses; /* classify's --train names a file */
        if (tunes && (n_tuned == 64 || assigns != (chooses || !strcmp(o->name, "--rate"))))
            complain(2, "see --help; what is ", value);
        if (!strcmp(o->name, "--set")) tell_again(argv + 1, *n_set, value), argv[1 + (*n_set)++] = value;
        else if (tunes) tuned[n_tuned].pattern = value, tuned[n_tuned++].option = o->name[2];
        else if (once & bit) refuse_again(o->name, value);
        else o->value = value, once |= bit;
    }
    return rest;
}

/* Takes the second argument that is no option out of the command line, for read_options knows one alone; NULL
   if there is none. `flags`: as there. */
static inline const char *take_second(setting *options, int n, uint64_t flags, int *argc, char **argv) {
    const char *first = NULL, *second;
    for (int i = 1; i < *argc; i++) {
        const setting *o = any_option(options, n, argv[i]);
        if (o) i += !stands_alone(o, options, flags) && !strchr(argv[i], '=');
        else if (is_option(argv[i])) return NULL;
        else if (!first) first = argv[i];
        else {
            second = argv[i];
            memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof *argv);
            --*argc;
            return second;
        }
    }
    return NULL;
}

/* Ends the program where the command line names one of the options of these bits; `why` says who does not
   read them. */
static inline void refuse_given(const setting *options, uint64_t bits, const char *why) {
    for (int i = 0; i < 64; i++)
        if (options_given & bits & UINT64_C(1) << i) complain(2, options[i].name, why);
}

/* Ends the program, before it has worked for hours, where the file `to` that an option writes would replace
   one of n files that it reads. NULL is no file. */
static inline void refuse_replacing(const char *name, const char *to, const char *const *in, size_t n) {
    char line[80];
    if (!to) return;
    snprintf(line, sizeof line, "%s would replace what is read: ", name);
    for (size_t i = 0; i < n; i++)
        if (in[i] && text_same_place(to, in[i])) complain(2, line, to);
}

/* Prints name, value (unless its column has width 0) and meaning of every option. */
static inline void print_options(const setting *options, int n, int width, int value_width) {
    for (const setting *o = options; o < options + n; o++) {
        printf("  %-*s ", width, o->name);
        if (value_width) printf("%-*s ", value_width, o->value && *o->value ? o->value : "-");
        puts(o->what);
    }
}

/* Prints the fields of a configuration, with their values. */
static inline void print_fields(const char *title, cmha_table table, const void *config) {
    printf("\n%s: field, value, range, meaning\n", title);
    for (const cmha_field *f = table.fields; f < table.fields + table.count; f++) {
        char value[32], range[64];
        cmha_config_get(table, config, f->name, value, sizeof value);
        snprintf(range, sizeof range, "%.10g..%.10g", f->minimum, f->maximum);
        printf("  %-18s %-11s %-29s %s\n", f->name, value, f->choices ? f->choices : range, f->help);
    }
}

/* Ends the program with the library's line, and the nearest of the field's words. */
static inline void wrong_value(const settable *place, const char *name, const char *value) {
    char nearest[64], line[96] = "";
    for (size_t f = 0; f < place->table.count; f++) {
        const cmha_field *field = &place->table.fields[f];
        const char *word = field->choices && !strcmp(field->name, name)
                               ? nearest_word(value, field->choices, nearest) : NULL;
        if (word) snprintf(line, sizeof line, "; the nearest is %s", word);
    }
    complain(2, cmha_error(&ctx), line);
}

/* Sets a field of the first of n configurations that has it; where none has, the line names them and what is
   nearest. */
static inline void set_field(const settable *places, int n, const char *name, const char *value) {
    const char *nearest = NULL;
    int i, apart = 0;
    for (i = 0; i < n; i++) {
        cmha_status status = cmha_config_set(&ctx, places[i].table, places[i].config, name, value);
        if (status && status != CMHA_ERR_NOT_FOUND) wrong_value(&places[i], name, value);
        if (!status) return;
    }
    for (i = 0; i < n; i++)
        for (size_t f = 0; f < places[i].table.count; f++)
            resemble(name, places[i].table.fields[f].name, &nearest, &apart);
    unknown(n > 1 ? "neither model nor training has a field" : "the sampler has no field", name, nearest);
}

/* Sets fields by NAME=VALUE, the arguments of --set, which stay as they are. */
static inline void set_fields(const settable *places, int n, char *const *settings, int n_set) {
    for (int i = 0; i < n_set; i++) {
        char name[128];
        size_t length = strcspn(settings[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)length, settings[i]);
        set_field(places, n, name, settings[i] + length + (settings[i][length] != 0));
    }
}

typedef struct own_field { const char *name, *by; } own_field; /* and a clause that says what decides it */

/* Ends the program where an argument of --set names one of n fields that the program decides itself. */
static inline void refuse_own(const own_field *fields, int n, char *const *settings, int n_set) {
    char line[200];
    for (int i = 0; i < n * n_set; i++) {
        const own_field *f = &fields[i / n_set];
        const char *asked = settings[i % n_set];
        size_t length = strlen(f->name);
        if (strncmp(asked, f->name, length) || (asked[length] && asked[length] != '=')) continue;
        snprintf(line, sizeof line, "%s is the program's own field, as %s", f->name, f->by);
        complain(2, line, "");
    }
}

/* Sets what --lora asks for: RANK[,ALPHA[,MATRICES]]. */
static inline void set_adapters(void (*set)(const char *name, const char *value), const char *at) {
    static const char *const fields[3] = {"lora_rank", "lora_alpha", "lora_on"};
    for (int i = 0; i < 3 && at; i++) {
        const char *comma = i < 2 ? strchr(at, ',') : NULL;
        char value[64];
        snprintf(value, sizeof value, "%.*s", comma ? (int)(comma - at) : 63, at);
        set(fields[i], value);
        at = comma ? comma + 1 : NULL;
    }
}

/* A text of the command line, in which \n, \t, \\ and \xNN stand for the bytes they name. Works in place,
   returns the length. */
static inline size_t unescape(char *s) {
    size_t n = 0;
    for (const char *p = s; *p; p++) {
        unsigned byte;
        if (*p != '\\' || !p[1]) s[n++] = *p;
        else if (*++p == 'n') s[n++] = '\n';
        else if (*p == 't') s[n++] = '\t';
        else if (*p == 'x' && strspn(p + 1, "0123456789abcdefABCDEF") >= 2) {
            sscanf(p + 1, "%2x", &byte);
            s[n++] = (char)byte, p += 2;
        }
        else s[n++] = *p;
    }
    return n;
}

/* Does what --freeze, --rate and --optimiser ask for, and then --train. `optimiser` is the trainer's. */
static inline void tune(cmha_model *model, const char *optimiser) {
    for (int i = 0; i < 2 * n_tuned; i++) {
        char *pattern = tuned[i % n_tuned].pattern, option = tuned[i % n_tuned].option;
        if ((option == 't') != (i >= n_tuned)) continue;
        char *value = option == 'r' || option == 'o' ? cut_value(pattern) : pattern, *rest = value;
        cmha_tuning what = option == 'r'   ? CMHA_TUNE_RATE
                           : option == 'o' ? CMHA_TUNE_OPTIMISER
                                           : CMHA_TUNE_FROZEN;
        double x = option == 'r' ? strtod(value, &rest) : option == 'f';
        if (option == 'r' && (rest == value || *rest))
            complain(2, "see --help; --rate needs a number, not ", value);
        if (option == 'o') x = strcmp(value, "adamw") ? 2 : 1;
        if (option == 'o' && x > 1 && strcmp(value, optimiser))
            complain(2, "some parameters may have adamw or the optimiser of all, not ", value);
        check(cmha_parameters_tune(&model->parameters, pattern, what, x, NULL));
    }
}

/* ---- Lines of the standard input ---- */

/* Memory that grows; its owner frees it */
typedef struct input_line { char *at; size_t n, room; } input_line;

static inline void line_put(input_line *line, char byte) {
    if (line->n == line->room) {
        line->room = 2 * line->room + 256;
        line->at = (char *)text_memory(line->at, line->room, 1, 1);
        if (!line->at) complain(1, "no memory for a line", "");
    }
    line->at[line->n++] = byte;
}

/* Reads the next line, of any length, without its end; 0 where there is none. */
static inline int next_line(input_line *line) {
    int c = getchar(), any = c != EOF;
    line->n = 0;
    while (c != EOF && c != '\n') {
        line_put(line, (char)c);
        c = getchar();
    }
    if (ferror(stdin)) complain(1, "cannot read the standard input", "");
    if (c == '\n' && line->n && line->at[line->n - 1] == '\r') line->n--;
    return any;
}

/* ---- Going on with a training ---- */

/* Ends the program where the trainer's state at `path` began with another configuration of training; that of
   the model is compared by who reads it. */
static inline void check_training(const cmha_trainer_config *now, const char *path) {
    const cmha_table table = cmha_trainer_table();
    cmha_trainer_config config;
    char line[TEXT_ERROR], ours[40], theirs[40];
    check(cmha_config_read(&ctx, path, NULL, &config));
    for (size_t i = 0; i < table.count; i++) {
        const char *name = table.fields[i].name;
        cmha_config_get(table, &config, name, theirs, sizeof theirs);
        cmha_config_get(table, now, name, ours, sizeof ours);
        if (!strcmp(ours, theirs)) continue;
        snprintf(line, sizeof line, "%s was %s where this training began, and is %s: ", name,
                 *theirs ? theirs : "the usual one", *ours ? ours : "the usual one");
        complain(1, line, path);
    }
}

/* ---- From start to end ---- */

/* Passes on what the library warns of, except of a slow kernel to a user who chose it. */
static inline void on_log(void *user, cmha_log_level level, const char *line) {
    (void)user;
    if (kernel_given && strncmp(line, "OpenBLAS uses its ", 18) == 0) return;
    if (level == CMHA_LOG_WARNING) complain(0, "warning: ", line);
}

/* First thing in main. With an OpenBLAS older than this CPU the program starts anew on the right kernel. */
static inline void start_program(char **argv) {
    const char *kernel = getenv("OPENBLAS_CORETYPE");
    text_open_streams();
    kernel_given = kernel && *kernel;
    cmha_blas_restart(argv);
}

/* Opens ctx, with the user's own rows. The library warns, but not where nothing is computed (`quiet`). */
static inline void open_context(const setting *seed, const setting *threads, int quiet) {
    cmha_context_config config;
    own_rows own;
    memset(&config, 0, sizeof config);
    config.seed = whole_of(seed, 0, UINT64_MAX), config.threads = (int)whole_of(threads, 0, 1024);
    must(own_rows_find(common_option->value, &own, failure));
    own_rows_give(&own, &config);
    if (!quiet) config.log = on_log;
    check(cmha_context_init(&ctx, &config));
    must(own_rows_names(&ctx, failure));
}

/* Have two checkpoints the same configuration? */
static inline int configured_alike(const char *a, const char *b) {
    const cmha_table table = cmha_model_table();
    cmha_model_config x, y;
    char ours[64], theirs[64];
    if (cmha_config_read(&ctx, a, &x, NULL) || cmha_config_read(&ctx, b, &y, NULL)) return 0;
    for (size_t i = 0; i < table.count; i++) {
        cmha_config_get(table, &x, table.fields[i].name, ours, sizeof ours);
        cmha_config_get(table, &y, table.fields[i].name, theirs, sizeof theirs);
        if (strcmp(ours, theirs)) return 0;
    }
    return 1;
}

/* Is PATH.last the state of the training that saved PATH, weights alone? That is so of classify, which keeps
   PATH.last.run as well, and of train_tiny with `ema`, once it has measured a best. */
static inline int is_state_of(const char *path, const char *state) {
    char run[4200];
    cmha_archive a;
    if (cmha_archive_open(&a, &ctx, state)) return 0;
    const char *ema = cmha_archive_metadata(&a, "trainer.ema");
    const char *best = cmha_archive_metadata(&a, "state.best");
    int mean = ema && strtod(ema, NULL) > 0 && best && isfinite(strtod(best, NULL));
    cmha_archive_close(&a);
    snprintf(run, sizeof run, "%s.run", state);
    return (mean || !access(run, F_OK)) && configured_alike(path, state);
}

/* Tokens a sequence had in training, as a checkpoint says; 0: it does not. */
static inline size_t told_length(const char *path) {
    cmha_archive a;
    uint64_t n = 0;
    check(cmha_archive_open(&a, &ctx, path));
    const char *length = cmha_archive_metadata(&a, "trainer.length");
    if (!length || !text_whole(length, &n) || n > SIZE_MAX) n = 0;
    cmha_archive_close(&a);
    return (size_t)n;
}

/* The same of a model, where weights alone were saved by the state beside it; distances beyond are distances
   the model never saw. */
static inline size_t trained_length(const char *path) {
    char state[4096];
    size_t n = told_length(path), size = (size_t)snprintf(state, sizeof state, "%s.last", path);
    if (n || size >= sizeof state || access(state, R_OK)) return n ? n : 1024;
    if (is_state_of(path, state)) n = told_length(state);
    else complain(0, "of another training, so its length of sequences does not count: ", state);
    return n ? n : 1024;
}

#endif
