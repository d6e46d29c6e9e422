/* signals.h - the files of labelled signals that signal_data.c makes (its first lines tell what they hold),
   and a small one of the same format. Include it after sequences.h. */
#ifndef SIGNALS_H
#define SIGNALS_H

enum { MOST_CLASSES = 64, MOST_LEVELS = 32, SYNTHETIC_SAMPLES = 64, SYNTHETIC_CLASSES = 4 };
static sequences part[3]; /* training, validation, test */
static cmha_real *levels; /* signal over noise of the test frames, in dB */
static char *class_names[MOST_CLASSES], names[1024];
static size_t classes, frame_samples; /* complex samples of a frame */
static size_t n_levels;
static double level[MOST_LEVELS]; /* those of the test frames, ascending */

/* Writes a set of the same format: carriers whose phase, frequency or amplitude is keyed, and noise. */
static inline void synthesise(const char *path) {
    enum { FRAMES = 480, SAMPLES = SYNTHETIC_SAMPLES, KINDS = SYNTHETIC_CLASSES };
    static const char *const meta[] = {"classes", "bpsk,qpsk,fsk2,am", "made by", "signal --synthetic"};
    cmha_real *iq = take(FRAMES * 2 * SAMPLES, sizeof *iq), *snr = take(FRAMES, sizeof *snr);
    int64_t *label = take(3 * FRAMES, sizeof *label), *run = label + FRAMES, *set = run + FRAMES;
    cmha_rng rng = cmha_rng_make(ctx.config.seed, 0);
    double phase = 0, slope = 0, loud = 1;
    for (size_t i = 0; i < FRAMES * SAMPLES; i++) {
        size_t f = i / SAMPLES, t = i % SAMPLES, kind = f % KINDS;
        label[f] = (int64_t)kind, run[f] = (int64_t)(f / (4 * KINDS)), snr[f] = (cmha_real)(f / 8 % 2 * 10);
        set[f] = run[f] % 5 < 3 ? 0 : run[f] % 5 - 2;
        if (!t) phase = 6.283185 * cmha_rng_uniform(&rng), slope = 0, loud = 1;
        if (t % 8 == 0 && kind < 2) phase += (kind ? 1.5707963 : 3.1415927) * (double)cmha_rng_below(&rng, 4);
        if (t % 8 == 0 && kind == 2) slope = cmha_rng_below(&rng, 2) ? 0.3 : -0.3;
        if (kind == 3) loud = 1 + 0.8 * cos(0.2 * (double)t + (double)f);
        double spread = 0.7 * pow(10, -((double)snr[f] + 5) / 20);
        phase += slope;
        iq[2 * f * SAMPLES + t] = (cmha_real)(loud * cos(phase) + spread * cmha_rng_normal(&rng));
        iq[(2 * f + 1) * SAMPLES + t] = (cmha_real)(loud * sin(phase) + spread * cmha_rng_normal(&rng));
    }
    size_t shape[2] = {FRAMES, SAMPLES};
    cmha_archive_item items[] = {{"iq", iq, shape, 2, "C64"},
                                 {"label", (const cmha_real *)(const void *)label, shape, 1, "I64"},
                                 {"run", (const cmha_real *)(const void *)run, shape, 1, "I64"},
                                 {"set", (const cmha_real *)(const void *)set, shape, 1, "I64"},
                                 {"snr", snr, shape, 1, NULL}};
    check(cmha_archive_write(&ctx, path, items, 5, meta, 2));
    free(iq), free(snr), free(label);
}

/* Finds a tensor of n rows, or as many as it has if *n is 0. */
static inline const cmha_archive_tensor *find_tensor(const cmha_archive *a, const char *name, int rank,
                                                     size_t *n) {
    const cmha_archive_tensor *t = cmha_archive_find(a, name);
    if (!t || t->rank != rank || !t->count || (*n && t->shape[0] != *n))
        complain(1, "not a file of signal_data, look at its tensor ", name);
    else *n = t->shape[0];
    return t;
}

static inline void read_classes(const char *text, const char *path) {
    char line[100];
    size_t n = 1;
    for (const char *at = text ? text : ""; *at; at++) n += *at == ',' && at[1];
    snprintf(line, sizeof line, "%zu classes, more than the %d that can be told apart, are in ", n,
             MOST_CLASSES);
    if (n > MOST_CLASSES) complain(1, line, path);
    snprintf(names, sizeof names, "%s", text ? text : "");
    for (char *at = text_shown(names); *at; classes++) {
        class_names[classes] = at, at += strcspn(at, ",");
        if (*at) *at++ = 0;
    }
    if (classes < 2 || !text || strlen(text) >= sizeof names)
        complain(1, "not a file of signal_data, look at its metadata ", "classes");
    for (size_t i = 0; i < classes; i++)
        for (size_t j = 0; j < i; j++)
            if (!strcmp(class_names[i], class_names[j])) complain(1, "two classes are ", class_names[i]);
}

/* Collects the levels of the test frames in ascending order. */
static inline void find_levels(void) {
    for (size_t i = 0, j, k; i < part[2].n; i++) {
        for (j = 0; j < n_levels && level[j] < (double)levels[i];) j++;
        if (j < n_levels && !(level[j] > (double)levels[i])) continue;
        if (n_levels == MOST_LEVELS) complain(1, "more than 32 levels of snr", "");
        for (k = n_levels++; k > j; k--) level[k] = level[k - 1];
        level[j] = (double)levels[i];
    }
}

/* Reads the three sets; a run must belong to one of them. */
static inline void read_signals(const char *path, size_t frame, size_t hop) {
    cmha_archive a;
    size_t n = 0, i, p;
    check(cmha_archive_open(&a, &ctx, path));
    read_classes(cmha_archive_metadata(&a, "classes"), path);
    const cmha_archive_tensor *iq = find_tensor(&a, "iq", 2, &n);
    size_t samples = iq->shape[1];
    size_t positions = cmha_frames(NULL, samples, 2, frame, hop, NULL);
    frame_samples = samples;
    if (strcmp(iq->dtype, "C64")) complain(1, "not C64: iq in ", path);
    cmha_real *z = take(times(n, samples), 2 * sizeof *z), *snr = take(n, sizeof *snr);
    int64_t *label = take(times(n, 3), sizeof *label), *run = label + n, *set = run + n;
    check(cmha_archive_read(&a, iq, z));
    check(cmha_archive_read(&a, find_tensor(&a, "snr", 1, &n), snr));
    check(cmha_archive_read_i64(&a, find_tensor(&a, "label", 1, &n), label));
    check(cmha_archive_read_i64(&a, find_tensor(&a, "run", 1, &n), run));
    check(cmha_archive_read_i64(&a, find_tensor(&a, "set", 1, &n), set));
    for (i = 0; i < n; i++) {
        if (label[i] < 0 || label[i] >= (int64_t)classes || set[i] < 0 || set[i] > 2 || !isfinite(snr[i]))
            complain(1, "a label, set or snr is out of range in ", path);
        if (i && run[i] == run[i - 1] && set[i] != set[i - 1]) complain(1, "a run is in two sets of ", path);
        part[set[i]].n++;
    }
    levels = take(part[2].n, sizeof *levels);
    for (p = 0; p < 3; p++) {
        sequences *s = &part[p];
        if (!s->n) complain(1, "one of the three sets is empty in ", path);
        s->width = frame, s->is_complex = 1, s->longest = positions;
        s->begin = take(s->n + 1, sizeof *s->begin), s->label = take(s->n, sizeof *s->label);
        s->x = take(times(times(s->n, positions), row_of(s)), sizeof *s->x), s->n = 0;
    }
    for (i = 0; i < n; i++) {
        sequences *s = &part[set[i]];
        if (set[i] == 2) levels[s->n] = snr[i];
        cmha_frames(z + i * 2 * samples, samples, 2, frame, hop,
                    s->x + s->begin[s->n] * row_of(s));
        s->label[s->n++] = (cmha_real)label[i], s->begin[s->n] = s->n * positions;
    }
    free(z), free(snr), free(label), cmha_archive_close(&a);
    find_levels();
}

static inline void close_signals(void) {
    for (size_t p = 0; p < 3; p++) close_sequences(&part[p]);
    free(levels), levels = NULL;
}

#endif
