/* evidence.h - what a claim says of itself, so that the program can make its rows: runs, their settings, what
   they leave. language.c, tasks.c and papers.c hold the claims, questions.c what is asked of their rows;
   evidence.c lists and runs them. OWN.md says how to add one of your own. */
#ifndef EVIDENCE_H
#define EVIDENCE_H

#include "cmha.h"

#include "../../examples/tools/own_rows.h"

enum { EVIDENCE_MEASURES = 48, EVIDENCE_POINTS = 256, EVIDENCE_ERROR = 512, EVIDENCE_LONG = 5 };

/* What a run leaves; zeroed before it. */
typedef struct evidence_result {
    size_t n; /* measures */
    struct { char name[32]; double value; } measures[EVIDENCE_MEASURES]; /* letters, digits, . _ - */
    size_t points;                                                       /* of the loss by step */
    struct { size_t step; double loss; } curve[EVIDENCE_POINTS];
    size_t parameters; /* numbers that learn */
    double tokens;     /* that it learned from */
    double seconds;    /* of processors, before the run was stopped and taken up again */
} evidence_result;

/* A text, a task, a data set: one table each. */
typedef struct evidence_part { const char *name, *label, *settings; } evidence_part;

/* A kind that is compared. Settings are words NAME=VALUE, those of the part first, of equal names the last
   one counts:
       preset=NAME      instead of `tiny`, kind=NAME as --attention has it, then fields of the model
       trainer.NAME     fields of the trainer
       like=VARIANT     begins with that variant's settings and takes its learning rate: for the noise floor
       reseed=N         the seeds are N higher than the row's
       threads=N        instead of 1; instructions=NAME as cmha_instructions has it
       choose=MEASURE   the rate is chosen by it, not by the claim's own measure; -MEASURE: less of it is
                        better, though more is of the claim's own
       rate.times=X     trains at X times the rate that the row names: where a grid lies elsewhere
       program=NAME     the run is of that program beside this one: its own defaults count, no preset
   Other words with a dot in their name (task.length=64) are the claim's own: evidence_word finds them. */
typedef struct evidence_variant { const char *name, *label, *settings; } evidence_variant;

#define LENGTH(table) (sizeof(table) / sizeof *(table))
/* Rows of the baseline against itself: the noise floor. */
#define FLOOR(name, label) \
    {name "-again", label ", other seeds", "like=" name " reseed=1000"}, \
    {name "-threads", label ", two threads", "like=" name " threads=2"}

typedef struct evidence_claim evidence_claim;
typedef struct evidence_run {
    const evidence_claim *claim;
    const evidence_part *part;
    const evidence_variant *variant;
    uint64_t seed;    /* reseed is in it */
    double rate;      /* learning rate */
    int threads;      /* 1, but where the noise floor asks for 2 */
    const char *data; /* folder with the public data: books/, glue/, wikitext-2/, ... */
    const char *work; /* folder for what runs share and any of them can make again: tokenizers, judges */
    char *error;      /* [EVIDENCE_ERROR] one line when 0 is returned */
    const char *more; /* words of `row --set`, which count after all others; NULL: none */
    int trial;        /* 1: it is there to choose a rate */
    const char *test, *save; /* of `row`, for text.set of bytes: a file to measure on, whole, in the place of
                                the held-out text; where the model goes. NULL: none */
    const char *keep; /* of `run`: where a long run keeps its state while it trains, a path without ending;
                         NULL: nowhere */
} evidence_run;

/* A claim of a paper; static tables. Its rows are parts x variants x (trials of rates, seeds 1 to N). The
   trials are of 3 rates with seed 0, if the claim says no more. */
struct evidence_claim {
    const char *name;           /* of the command and the CSV: results/NAME.csv */
    const char *title, *claimed; /* a heading; one sentence, what was claimed and where (paper, table) */
    const evidence_part *parts;
    size_t n_parts;
    const evidence_variant *variants; /* the first is the baseline that all others are compared with */
    size_t n_variants;
    const char *measure; /* the one that decides; others stand beside it */
    const char *unit;
    int higher;      /* 1: more is better */
    size_t seeds;    /* 1 .. seeds; the rate is chosen with seed 0, which is not used afterwards */
    double rates[3]; /* rising; 0: none; where there is one alone, nothing is chosen */
    int (*run)(const evidence_run *run, evidence_result *result); /* trains, measures; 1, or 0 and a line */
    double minutes;  /* one run on one core takes about so long, measured. From EVIDENCE_LONG on a run goes on
                        where it was stopped in its first training */
    int quick;       /* part of `make evidence`, which must end in 20 minutes */
    const char *also; /* a second measure, compared in a sentence of its own; NULL: none */
    int also_higher;
    double solved; /* tables say how many seeds have a measure of that at least; 0: they do not */
    int inside; /* 1: a kind whose best rate is the lowest or the highest tried gets a further one, by the
                   factor of the first two, until the best one has a worse one on both sides; where none
                   learned anything, three lower ones at most */
    size_t tuners; /* so many seeds try each rate, on the first eval_tokens of the held-out text, and the
                      seeds that count are measured on the next; 0: seed 0 alone, and all on the same */
};

/* How the program is called, of a row's command. */
extern const char *const evidence_command;

/* The names of all claims, in the report's order: each is a constant evidence_claim evidence_claim_NAME of
   one of the files. */
#ifndef EVIDENCE_CLAIMS /* tests and `make evidence CLAIM=` have their own */
#define EVIDENCE_CLAIMS(X) \
    X(primary_early) X(primary_late) X(primary_far) X(primary_crat) \
    X(text_quick) X(generation) X(steps) X(optimisers) X(ablation) X(answers) X(longer) \
    X(copy) X(recall) X(indexing) X(parity) X(sorting) X(phase_memory) \
    X(cope_sst2) X(cope_glue) X(cope_text) X(mobius_text) X(mobius_glue) X(crat) X(angle) X(retrieval) \
    X(modulation) X(spoken) X(finetune) X(music)
#endif

#define EVIDENCE_DECLARE(name) extern const evidence_claim evidence_claim_##name;
EVIDENCE_CLAIMS(EVIDENCE_DECLARE)
#undef EVIDENCE_DECLARE
extern const evidence_claim *const evidence_claims[]; /* NULL ends it */

/* ---- questions.c: what README.md asks of the rows ---- */

typedef struct evidence_question {
    const char *ask;             /* "" ends the table */
    const char *claim, *part;    /* the table that answers; of an untested question the claim alone */
    const char *variants;        /* names with commas between; the best of them answers. "": untested */
    int second;                  /* by the claim's second measure */
    int worse;                   /* asked is whether it is worse than the baseline, not better */
    double claimed;              /* the paper's difference, in percent of the baseline; 0: no number */
} evidence_question;
extern const evidence_question evidence_questions[];

/* What a model reaches that has learned nothing. A run within a hundredth of that learned nothing. */
typedef struct evidence_chance {
    const char *claim, *part; /* "": all parts. A NULL claim ends the table */
    int second;               /* it judges the second measure */
    const char *measure;      /* mostly the one that decides; of tasks the loss */
    int higher;
    double value;
    const char *what;         /* reaches it */
} evidence_chance;
extern const evidence_chance evidence_chances[];

/* The primary family: hypotheses that stood here before any row of theirs. Holm corrects them together, also
   those that are not measured yet; comparisons of their tables count nowhere else. A claim of one's own has
   none. */
typedef struct evidence_primary {
    const char *hypothesis; /* "" ends the table */
    const char *claim, *part, *variant;
    double margin;          /* so much it may be behind the baseline; 0: it is ahead */
} evidence_primary;
extern const evidence_primary evidence_primaries[];

/* For a claim of one's own that asks nothing in README.md and knows no chance. */
#define EVIDENCE_NO_QUESTIONS \
    const evidence_question evidence_questions[] = {{"", "", "", "", 0, 0, 0}}; \
    const evidence_chance evidence_chances[] = {{NULL, "", 0, "", 0, 0, ""}};

/* ---- runs.c: what most runs do ---- */

/* Writes a line into an error; returns 0. */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
int evidence_fail(char *error, const char *format, ...);
/* Appends a measure, or a point of the curve (of too many every second one goes); 0 where the name is no
   name, comes twice or there is no room. Values may be NaN: of a run that diverged. */
int evidence_add(evidence_result *r, const char *name, double value);
int evidence_point(evidence_result *r, size_t step, double loss);
/* The step at which the curve, with lines between its points, first falls to a loss; NaN: it never does.
   Until the first point nothing is known: there it counts as reached. */
double evidence_step_at(const evidence_result *r, double loss);
/* Finds the last word NAME=VALUE of the settings; 1 if there is one, whose value is then in `value`. */
int evidence_word(const evidence_run *run, const char *name, char value[64]);
double evidence_number(const evidence_run *run, const char *name, double otherwise);
/* Fills both configurations: the preset, the rate (min_lr is a thirtieth of it), part's settings, variant's.
   Either may be NULL. An unknown word is an error, named in run->error. */
int evidence_configure(const evidence_run *run, cmha_context *ctx, cmha_model_config *model,
                       cmha_trainer_config *trainer);
/* Scores, layers and optimisers of the user's own, for settings such as score=NAME; --rows, or NULL. */
extern own_rows evidence_rows;
extern const char *evidence_rows_path;
/* Opens the context of a run: its seed, threads and those rows. */
int evidence_open(const evidence_run *run, cmha_context *ctx);
/* Opens a model and pairs its start with the baseline's: the library draws a parameter from (seed, place in
   the list), and delta, b or a position table shift the places. So every parameter that the baseline of
   this claim, part and seed has too, of equal name, shape and kind of start, gets the baseline's numbers.
   *paired (or NULL) gets the share of the model's numbers that is paired. */
int evidence_start(const evidence_run *run, cmha_context *ctx, const cmha_model_config *config,
                   cmha_model *model, double *paired);
/* Trains to config.steps on random pieces of `train` with the loss on `held_out` (or NULL: the training loss)
   as the curve, about 16 points, of an eighth of eval_tokens, which takes less of the time. *loss gets the
   one at the end, of all of them. NaN: it diverged (ten steps in a row not finite). */
int evidence_train(const evidence_run *run, cmha_trainer *trainer, const cmha_tokens *train,
                   const cmha_tokens *held_out, evidence_result *result, double *loss);
/* A run that trains a language model on a text, text.file=PATH or text.set=shakespeare | wikitext2 | ..
   (language.c lists them), nine tenths of it, and measures `loss` and `bits_a_byte` on the rest, and
   `paired`. */
int evidence_text_run(const evidence_run *run, evidence_result *result);
/* The path FOLDER/NAME of a file of the data, which must be there. */
int evidence_data(const evidence_run *run, const char *name, char path[1024]);

#endif
