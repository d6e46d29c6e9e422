/* epochs.h - trainings that go on where they stopped: what signal.c and spoken.c keep beside --save after
   each epoch, and read for --resume. PATH.last is the trainer's state; PATH.run says after which epoch, what
   the run learns from and by which options, and has the best epoch's weights. Include it after predict.h. */
#ifndef EPOCHS_H
#define EPOCHS_H

/* What is so after an epoch: its number, the trainer's steps, how many numbers `rng` has drawn */
typedef struct epoch_mark { uint64_t epoch, step, drawn; } epoch_mark;

typedef struct epochs {
    const char *path;       /* of --save; NULL: nothing is kept */
    const setting *options; /* the program's, of which the bits of `own` say which make a run what it is */
    uint64_t own, data;     /* data: what it learns from, by fingerprint() */
    epoch_mark now, before; /* after the last epoch that is done, and after the one before it */
    best_epoch best;
    cmha_rng rng; /* draws what changes from epoch to epoch */
} epochs;

/* Metadata of an archive, and room for numbers among them */
typedef struct epoch_notes {
    size_t n;
    const char *said[128];
    char text[64][48];
} epoch_notes;

static const char *const mark_keys[6] = {"now.epoch", "now.step", "now.drawn", "before.epoch", "before.step",
                                         "before.drawn"};

/* Where a run's files lie: PATH.last, or PATH.run. */
static inline char *beside_save(const epochs *r, const char *end) {
    size_t size = strlen(r->path) + 8;
    char *path = (char *)take(size, 1);
    snprintf(path, size, "%s.%s", r->path, end);
    return path;
}

/* The option that asks for more than one training, or NULL */
static inline const char *several_of(const setting *attention, const setting *compare, const setting *seeds) {
    if (compare->value) return compare->name;
    if (strchr(attention->value, ',')) return attention->name;
    return whole_of(seeds, 1, 1000) > 1 ? seeds->name : NULL;
}

/* Ends the program where --resume cannot be: `several` is the option that asks for more than one training,
   or NULL. */
static inline void check_resume(const setting *resume, const setting *save, size_t files,
                                const char *several) {
    if (!resume->value) return;
    if (files) complain(2, "--resume is for a training, not for ", "--predict");
    if (several) complain(2, "--resume goes on with one training, not with those of ", several);
    if (!save->value) complain(2, "--resume goes on with what lies beside a model; name that by ", "--save");
}

/* ---- Keeping ---- */

static inline void note(epoch_notes *notes, const char *key, const char *value) {
    notes->said[notes->n++] = key;
    notes->said[notes->n++] = value;
}

static inline void note_whole(epoch_notes *notes, const char *key, uint64_t value) {
    char *text = notes->text[notes->n / 2];
    snprintf(text, sizeof *notes->text, "%llu", (unsigned long long)value);
    note(notes, key, text);
}

/* Writes PATH.run. Beside this epoch it names the one before, whose state PATH.last still is: a run that is
   killed between the two files goes on from there. */
static inline void keep_run(const epochs *r, size_t weights) {
    epoch_notes notes;
    const uint64_t marks[6] = {r->now.epoch,    r->now.step,    r->now.drawn,
                               r->before.epoch, r->before.step, r->before.drawn};
    const cmha_archive_item item = {"best", r->best.weights, &weights, 1, NULL};
    char *path = beside_save(r, "run");
    notes.n = 0;
    note(&notes, "program", PROGRAM);
    note_whole(&notes, "data", r->data);
    for (int i = 0; i < 6; i++) note_whole(&notes, mark_keys[i], marks[i]);
    note_whole(&notes, "best.epoch", r->best.epoch);
    char *loss = notes.text[notes.n / 2];
    snprintf(loss, sizeof *notes.text, "%.17g", r->best.loss);
    note(&notes, "best.loss", loss);
    for (int i = 0; i < 64; i++)
        if (r->own >> i & 1) note(&notes, r->options[i].name, r->options[i].value ? r->options[i].value : "");
    check(cmha_archive_write(&ctx, path, &item, r->best.epoch != 0, notes.said, notes.n / 2));
    free(path);
}

/* Ends an epoch: judges it by the sequences that are held out, if there are any, and keeps what has to be. */
static inline void end_epoch(epochs *r, cmha_trainer *trainer, const sequences *held_out) {
    char *path;
    r->before = r->now;
    r->now.epoch++;
    r->now.step = trainer->step;
    r->now.drawn = r->rng.counter;
    if (held_out->n) keep_best(&r->best, trainer->model, held_out, r->now.epoch);
    if (!r->path) return;
    keep_run(r, trainer->model->parameters.size);
    path = beside_save(r, "last");
    check(cmha_trainer_save(trainer, path));
    free(path);
}

/* Is the training over, after so many epochs or, unless it is 0, so many without a better one? The best may
   be the next epoch, which a run that was killed has judged but not ended. */
static inline int epochs_over(const epochs *r, uint64_t most, uint64_t patience) {
    return r->now.epoch >= most || (patience && r->now.epoch >= r->best.epoch + patience);
}

/* Removes what was kept, so that nothing goes on with it: the trainer's state first, without which the other
   file is none. */
static inline void drop_epochs(const epochs *r) {
    static const char *const ends[2] = {"last", "run"};
    for (int i = 0; r->path && i < 2; i++) {
        char *path = beside_save(r, ends[i]);
        (void)remove(path);
        free(path);
    }
}

/* ---- Going on ---- */

/* The options and the data must be those of the run. */
static inline void check_run(const epochs *r, const cmha_archive *a, const char *path) {
    char line[TEXT_ERROR], data[24];
    const char *program = cmha_archive_metadata(a, "program"), *theirs;
    if (!program || strcmp(program, PROGRAM))
        complain(1, "not the state of a training by " PROGRAM ": ", path);
    for (int i = 0; i < 64; i++) {
        if (!(r->own >> i & 1)) continue;
        const char *ours = r->options[i].value ? r->options[i].value : "";
        theirs = cmha_archive_metadata(a, r->options[i].name);
        if (theirs && !strcmp(theirs, ours)) continue;
        snprintf(line, sizeof line, "%s was %.60s where this training began, and is %.60s: ",
                 r->options[i].name, theirs && *theirs ? theirs : "not given", *ours ? ours : "not given");
        complain(1, line, path);
    }
    snprintf(data, sizeof data, "%llu", (unsigned long long)r->data);
    theirs = cmha_archive_metadata(a, "data");
    if (!theirs || strcmp(theirs, data)) complain(1, "this training began with other data: ", path);
}

/* Reads the marks and the best epoch from PATH.run; `step` says which of the two marks PATH.last belongs
   to. */
static inline void read_run(epochs *r, cmha_archive *a, size_t weights, uint64_t step,
                            const char *path) {
    const cmha_archive_tensor *best = cmha_archive_find(a, "best");
    const char *epoch = cmha_archive_metadata(a, "best.epoch"), *loss = cmha_archive_metadata(a, "best.loss");
    uint64_t marks[6] = {0};
    int whole = epoch && loss && text_whole(epoch, &r->best.epoch);
    for (int i = 0; i < 6; i++) {
        const char *text = cmha_archive_metadata(a, mark_keys[i]);
        whole = whole && text && text_whole(text, &marks[i]);
    }
    if (!whole || (r->best.epoch && (!best || best->count != weights)))
        complain(1, "not the state of a training by " PROGRAM ": ", path);
    const uint64_t *mark = marks[1] == step ? marks : marks + 3;
    if (mark[1] != step) complain(1, "the state beside it is that of another training: ", path);
    r->now = (epoch_mark){mark[0], mark[1], mark[2]};
    r->rng.counter = mark[2];
    if (!r->best.epoch) return;
    r->best.loss = strtod(loss, NULL);
    r->best.weights = (cmha_real *)take(weights, sizeof *r->best.weights);
    check(cmha_archive_read(a, best, r->best.weights));
}

/* Begins a training that keeps its state, if it has a path, or goes on with one. A training that begins
   forgets the state of another one, whose files it would else take for its own. */
static inline void begin_epochs(epochs *r, cmha_trainer *trainer, int resume, const setting *quiet) {
    cmha_archive a;
    if (!r->path) return;
    char *last = beside_save(r, "last"), *run = beside_save(r, "run");
    must(text_may_save(last, failure) && text_may_save(run, failure));
    if (!resume) drop_epochs(r);
    if (resume) {
        if (access(last, F_OK) || access(run, F_OK))
            complain(1, "no training that stopped is kept beside ", r->path);
        check(cmha_archive_open(&a, &ctx, run));
        check_run(r, &a, run);
        check(cmha_trainer_read(trainer, last));
        check_training(&trainer->config, last);
        read_run(r, &a, trainer->model->parameters.size, trainer->step, run);
        cmha_archive_close(&a);
        if (!quiet->value) printf("goes on behind epoch %llu\n", (unsigned long long)r->now.epoch);
    }
    free(last), free(run);
}

#endif
