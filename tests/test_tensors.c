/* The table of tensors in tests/README.md against models of every kind, both ways: each tensor of a model has
   one row, with its shape, its decay and the options that bring it, and each row has a model. Then what
   examples/PAPERS.md says of the wiring. */
#include "models.h"

enum { SIZES = 64, MOST_ROWS = 256, NAMES = 8, LONGEST = 128 };

/* ---- tests/README.md: sizes by name, and the rows ---- */

static struct size {
    char name[16], means[LONGEST];
} sizes[SIZES];

typedef struct row {
    char names[NAMES][LONGEST], shape[LONGEST], decay[LONGEST], in[LONGEST], when[LONGEST];
    size_t n_names, models[2]; /* in how many parts of models `when` did not hold, and did */
} row;

static row rows[MOST_ROWS];
static size_t n_sizes, n_rows;

/* What a row can be `in`, a bit each */
static const char *const parts[] = {"model", "plain", "cope", "mobius", "crat", "window",
                                    "first", "later"};
enum { MODEL, PLAIN, COPE, MOBIUS, CRAT, WINDOW, FIRST, LATER, PARTS };

/* Copies the text between blanks and backquotes, up to `end`; returns 0 if it is too long. */
static int copy_cell(char *to, const char *from, const char *end) {
    while (from < end && (*from == ' ' || *from == '`')) from++;
    while (from < end && (end[-1] == ' ' || end[-1] == '`')) end--;
    if (end - from >= LONGEST) return 0;
    memcpy(to, from, (size_t)(end - from)), to[end - from] = 0;
    return 1;
}

/* "w{k,v}.weight" is two names. */
static void expand(row *r, const char *name) {
    const char *open = strchr(name, '{'), *close = open ? strchr(open, '}') : NULL, *at, *end;
    char one[2 * LONGEST];
    if (!close) {
        if (CHECK_THAT(r->n_names < NAMES && strlen(name) < LONGEST, "%s: too many names", name))
            strcpy(r->names[r->n_names++], name);
        return;
    }
    for (at = open + 1; at <= close; at = end + 1) {
        for (end = at; *end != ',' && *end != '}'; end++) continue;
        snprintf(one, sizeof one, "%.*s%.*s%s", (int)(open - name), name, (int)(end - at), at, close + 1);
        expand(r, one);
    }
}

/* "| `name` | `[shape]` | decay | in | when |"; the parts of `when` keep their backquotes. */
static void read_row(const char *line, const char *end) {
    row *r = &rows[n_rows];
    char name[LONGEST] = "", *const cells[] = {name, r->shape, r->decay, r->in, r->when};
    const char *at = line + 1, *bar;
    size_t i;
    if (!CHECK(n_rows < MOST_ROWS)) return;
    for (i = 0; i < 5; i++, at = bar + 1) {
        bar = (const char *)memchr(at, '|', (size_t)(end - at));
        if (!CHECK_THAT(bar && copy_cell(cells[i], at, bar), "no row: %.*s", (int)(end - line), line))
            return;
        if (i == 4 && bar - at < LONGEST) memcpy(r->when, at, (size_t)(bar - at)), r->when[bar - at] = 0;
    }
    CHECK_THAT(!strcmp(r->decay, "yes") || !strcmp(r->decay, "no"), "%s: decay is \"%s\"", name, r->decay);
    expand(r, name), n_rows++;
}

/* "`d = d_model`" within the text before the table. */
static void read_sizes(const char *at, const char *end) {
    const char *close, *equal;
    while (at < end && (at = (const char *)memchr(at, '`', (size_t)(end - at))) != NULL) {
        close = (const char *)memchr(at + 1, '`', (size_t)(end - at - 1));
        if (!close) return;
        equal = (const char *)memchr(at, '=', (size_t)(close - at));
        if (equal && equal[-1] == ' ' && equal - at < 16 && CHECK(n_sizes < SIZES)) {
            copy_cell(sizes[n_sizes].name, at, equal), copy_cell(sizes[n_sizes].means, equal + 1, close);
            n_sizes++;
        }
        at = close + 1;
    }
}

/* Returns 0 where there is no such file: the header may have been copied alone. */
static int read_table(void) {
    static char text[1 << 20];
    FILE *file = fopen("tests/README.md", "rb");
    const char *begin, *at, *end;
    if (!file) return 0;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    begin = strstr(text, "\n## Tensors\n");
    at = begin ? strstr(begin, "\n| tensor | shape | decay | in | when |\n") : NULL;
    if (!CHECK_THAT(at != NULL, "tests/README.md has no table of tensors")) return 1;
    read_sizes(begin, at);
    at = strchr(strchr(at + 1, '\n') + 1, '\n') + 1; /* below the head and its line */
    for (; *at == '|' && (end = strchr(at, '\n')) != NULL; at = end + 1) read_row(at, end);
    CHECK_THAT(n_sizes > 10 && n_rows > 20, "%zu sizes and %zu rows were read", n_sizes, n_rows);
    return 1;
}

/* ---- Formulas: sums of products, "2 D + 2 R", "D/H"; "a or b" is b where a is 0 ---- */

static size_t field_of(const char *name, size_t n) {
    cmha_table table = cmha_model_table();
    size_t i;
    for (i = 0; i < table.count; i++)
        if (strlen(table.fields[i].name) == n && !strncmp(table.fields[i].name, name, n)) break;
    return i;
}

static size_t word_of(const char *at) {
    return strspn(at, "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

static const char *skip(const char *at) { return at + strspn(at, " "); }
static double choice(const char **at, const cmha_model_config *c);

static double named(const char *name, size_t n, const cmha_model_config *c) {
    cmha_table table = cmha_model_table();
    char text[32];
    size_t i;
    for (i = 0; i < n_sizes; i++)
        if (strlen(sizes[i].name) == n && !strncmp(sizes[i].name, name, n)) {
            const char *means = sizes[i].means;
            return choice(&means, c);
        }
    i = field_of(name, n);
    if (!CHECK_THAT(i < table.count, "no size and no field: %.*s", (int)n, name)) return 0;
    cmha_config_get(table, c, table.fields[i].name, text, sizeof text);
    return strtod(text, NULL);
}

static double factor(const char **at, const cmha_model_config *c) {
    const char *from = *at = skip(*at);
    double x;
    if (*from == '(') {
        ++*at, x = choice(at, c), *at = skip(*at);
        CHECK_THAT(**at == ')', "a parenthesis is missing before \"%s\"", *at);
        *at += **at == ')';
        return x;
    }
    if (word_of(from)) return *at += word_of(from), named(from, word_of(from), c);
    x = strtod(from, (char **)at);
    CHECK_THAT(*at != from, "no formula: \"%s\"", from);
    return x;
}

static double product(const char **at, const cmha_model_config *c) {
    double x = factor(at, c);
    for (;; *at = skip(*at)) {
        const char *from = skip(*at);
        if (*from == '/')
            *at = from + 1, x /= factor(at, c);
        else if (*from && strncmp(from, "or ", 3) && (word_of(from) || strchr("0123456789(", *from)))
            x *= factor(at, c);
        else
            return *at = from, x;
    }
}

static double sum(const char **at, const cmha_model_config *c) {
    double x = product(at, c);
    while (**at == '+' || **at == '-') {
        double sign = *(*at)++ == '+' ? 1 : -1;
        x += sign * product(at, c);
    }
    return x;
}

static double choice(const char **at, const cmha_model_config *c) {
    double x = sum(at, c), other;
    while (!strncmp(*at, "or ", 3)) *at += 3, other = sum(at, c), x = x > 0 ? x : other;
    return x;
}

static double formula(const char *text, const cmha_model_config *c) {
    double x = choice(&text, c);
    CHECK_THAT(!*text, "no formula: \"%s\"", text);
    return x;
}

/* "mobius_mode=t/full", "m<H", "experts>0" */
static int true_of(char *text, const cmha_model_config *c) {
    cmha_table table = cmha_model_table();
    char *op = strpbrk(text, "=<>"), kind, value[32], *one;
    size_t i;
    if (!CHECK_THAT(op != NULL, "no condition: %s", text)) return 0;
    kind = *op, *op++ = 0;
    i = field_of(text, strlen(text));
    if (i == table.count || table.fields[i].type != CMHA_FIELD_ENUM) {
        double a = formula(text, c), b = formula(op, c);
        return kind == '<' ? a < b : kind == '>' ? a > b : !(a < b) && !(a > b);
    }
    cmha_config_get(table, c, table.fields[i].name, value, sizeof value);
    for (one = strtok(op, "/"); one && strcmp(one, value); one = strtok(NULL, "/")) continue;
    return one != NULL;
}

/* "`a=1` or `b=1`, `c=0`": each group of alternatives has a true one. */
static int holds(const char *when, const cmha_model_config *c) {
    int all = 1, any = 0, first = 1;
    for (; (when = strchr(when, '`')) != NULL; first = 0) {
        const char *close = strchr(when + 1, '`');
        char text[LONGEST];
        if (!CHECK_THAT(close && copy_cell(text, when, close), "no condition: %s", when)) return 0;
        any |= true_of(text, c), when = close + 1;
        if (strncmp(when, " or ", 4)) all &= any, any = 0;
    }
    return first || all;
}

/* ---- Models against rows ---- */

/* The kind of a layer, by the documentation of cmha_family, cmha_wiring and irw_from */
static unsigned parts_of(const cmha_model_config *c, size_t layer) {
    size_t last = c->n_layers - 1, from = c->irw_from ? c->irw_from - 1 : c->n_layers / 2;
    int here = c->mobius_wiring == CMHA_WIRING_FRAMED    ? layer == 0 || layer == last
               : c->mobius_wiring == CMHA_WIRING_TOP     ? layer == 0
               : c->mobius_wiring == CMHA_WIRING_STACKED ? layer < 2
                                                         : layer % 3 == 0;
    if (c->family == CMHA_FAMILY_CRAT && layer >= from && layer < from + c->irw_layers)
        return 1u << CRAT | 1u << WINDOW;
    if (c->family == CMHA_FAMILY_CRAT) return 1u << CRAT;
    if (c->family == CMHA_FAMILY_MOBIUS && here) return 1u << MOBIUS;
    if (c->family == CMHA_FAMILY_COPE && !layer) return 1u << COPE;
    return 1u << PLAIN | 1u << (layer ? LATER : FIRST);
}

static unsigned bits_of(const char *in) {
    unsigned bits = 0;
    size_t n, i;
    for (; *in; in += n, in += strspn(in, ", ")) {
        n = strcspn(in, ", ");
        for (i = 0; i < PARTS; i++)
            if (strlen(parts[i]) == n && !strncmp(parts[i], in, n)) break;
        if (CHECK_THAT(i < PARTS, "no part of a model: %.*s", (int)n, in)) bits |= 1u << i;
    }
    return bits;
}

/* What begins with an axis of 2 is complex. */
static void compare_tensor(const cmha_parameter *p, const row *r, const cmha_model_config *c,
                           const char *label) {
    char shape[LONGEST], *at = shape + 1, *end;
    int rank = 0;
    double n;
    strcpy(shape, r->shape);
    CHECK_THAT(shape[0] == '[' && shape[strlen(shape) - 1] == ']', "%s: no shape: %s", p->name, shape);
    for (; *at; at = end + 1, rank++) {
        end = at + strcspn(at, ",]");
        if (!*end) break;
        *end = 0, n = formula(at, c);
        if (rank < p->tensor.rank)
            CHECK_THAT(fabs(n - (double)p->tensor.shape[rank]) < 0.25,
                       "%s: %s: axis %d has %zu, its row says %s = %g", label, p->name, rank,
                       p->tensor.shape[rank], at, n);
    }
    CHECK_THAT(rank == p->tensor.rank && p->is_complex == !strncmp(r->shape, "[2,", 3),
               "%s: %s has %d axes and is_complex = %d, its row says %s", label, p->name, p->tensor.rank,
               p->is_complex, r->shape);
    CHECK_THAT(p->decay == !strcmp(r->decay, "yes"), "%s: %s: decay is %d, its row says %s", label, p->name,
               p->decay, r->decay);
}

/* Adapters have no rows: NAME.lora_a [r, in] and NAME.lora_b [out, r] stand for those of NAME.weight [out,
   in], complex where that is. */
static int adapts(const cmha_model *model, const cmha_parameter *p, const char *label) {
    const char *end = strstr(p->name, ".lora_");
    char name[64];
    const cmha_parameter *base;
    size_t r = model->config.lora_rank;
    int at = p->tensor.rank - 2, a = end && end[6] == 'a';
    if (!end) return 0;
    snprintf(name, sizeof name, "%.*s.weight", (int)(end - p->name), p->name);
    base = cmha_parameters_find(&model->parameters, name);
    CHECK_THAT(base && base->tensor.rank == p->tensor.rank && base->is_complex == p->is_complex &&
                   p->tensor.shape[at] == (a ? r : base->tensor.shape[at]) &&
                   p->tensor.shape[at + 1] == (a ? base->tensor.shape[at + 1] : r) && p->decay == 1,
               "%s: %s does not fit %s", label, p->name, name);
    return 1;
}

/* The rows of part 0, the model, or of layer part - 1; counts in `seen` how many rows each tensor has. */
static void compare_part(cmha_model *model, size_t part, int *seen, const char *label) {
    const cmha_model_config *c = &model->config;
    unsigned kind = part ? parts_of(c, part - 1) : 1u << MODEL;
    char before[32] = "", name[LONGEST + sizeof before];
    size_t i, j;
    if (part) snprintf(before, sizeof before, "blocks.%zu.", part - 1);
    for (i = 0; i < n_rows; i++) {
        row *r = &rows[i];
        int wanted;
        if (!(bits_of(r->in) & kind)) continue;
        wanted = holds(r->when, c), r->models[wanted]++;
        for (j = 0; wanted && j < r->n_names; j++) {
            cmha_parameter *p;
            snprintf(name, sizeof name, "%s%.*s", before, LONGEST - 1, r->names[j]);
            p = cmha_parameters_find(&model->parameters, name);
            if (!CHECK_THAT(p != NULL, "%s: there is no %s, but a row", label, name)) continue;
            seen[p - model->parameters.list]++;
            compare_tensor(p, r, c, label);
        }
    }
}

static void compare(cmha_model *model, const char *label) {
    int *seen = (int *)check_alloc(model->parameters.count, sizeof *seen);
    size_t part, i;
    for (part = 0; part <= model->config.n_layers; part++) compare_part(model, part, seen, label);
    for (i = 0; i < model->parameters.count; i++)
        CHECK_THAT(seen[i] + adapts(model, &model->parameters.list[i], label) == 1, "%s: %s has %d rows",
                   label, model->parameters.list[i].name, seen[i]);
    free(seen);
}

/* A step whose gradient is 0 shrinks what decays, and leaves every bit of the rest. */
static void shrinks(cmha_model *model, const char *label) {
    cmha_trainer_config t;
    cmha_trainer trainer;
    cmha_real *before = check_array(model->parameters.size, 1);
    size_t i, j;
    cmha_config_defaults(cmha_trainer_table(), &t);
    t.batch = t.length = 1, t.schedule = CMHA_SCHEDULE_CONSTANT, t.warmup = 0, t.lr = 1, t.weight_decay = 0.5;
    memcpy(model->parameters.data, before, model->parameters.size * sizeof *before);
    CHECK_OK(cmha_parameters_tune(&model->parameters, "*", CMHA_TUNE_FROZEN, 0, NULL)); /* beside adapters */
    if (CHECK_THAT(!cmha_trainer_init(&trainer, model, &t), "%s: %s", label, cmha_error(model->context))) {
        CHECK_OK(cmha_trainer_apply(&trainer, NULL));
        for (i = 0; i < model->parameters.count; i++) {
            const cmha_parameter *p = &model->parameters.list[i];
            const cmha_real *old = before + (p->tensor.data - model->parameters.data);
            double off = 0, left = p->decay > 0 ? 0.5 : 1;
            for (j = 0; j < p->tensor.size; j++)
                off = fmax(off, fabs((double)p->tensor.data[j] - left * (double)old[j]));
            CHECK_THAT(off < (p->decay > 0 ? 1e-6 : 1e-30), "%s: %s is off by %g after a decay", label,
                       p->name, off);
        }
        cmha_trainer_close(&trainer);
    }
    free(before);
}

/* A setting at random, and what the family asks for */
static cmha_model_config drawn_config(cmha_context *context) {
    static const char *const needs[] = {
        "", "position=none", "placement=post position=learned mobius_hermitian=0",
        ("placement=pre position=none activation=gelu_erf attention_bias=0 output_bias=0 "
         "qkv_bias=0 qk_norm=none")};
    cmha_table table = cmha_model_table();
    cmha_model_config c;
    char name[LONGEST];
    size_t i, n;
    cmha_config_defaults(table, &c);
    for (i = 0; i < table.count; i++) {
        const cmha_field *f = &table.fields[i];
        if (f->type == CMHA_FIELD_FLAG) *(int *)((char *)&c + f->offset) = (int)check_below(2);
        if (f->type != CMHA_FIELD_ENUM) continue;
        snprintf(name, sizeof name, "%s", f->choices);
        for (n = 1; strchr(name, '|'); n++) *strchr(name, '|') = ' ';
        *(int *)((char *)&c + f->offset) = (int)f->minimum + (int)check_below(n);
    }
    c.causal = 0, c.attention_dropout = c.dropout = 0;
    c.n_heads = 1 + check_below(5), c.d_model = c.n_heads * 2 * (1 + check_below(5));
    c.n_layers = 1 + check_below(5);
    c.n_kv_heads = check_below(2) ? 0 : check_below(2) ? 1 : c.n_heads;
    c.d_ff = 2 * (1 + check_below(20)), c.vocabulary = 2 + check_below(50);
    c.max_positions = 3 + check_below(50);
    c.token_types = check_below(4), c.classes = check_below(4), c.pcl_weight = check_below(2) ? 0.1 : 0;
    c.mobius_heads = check_below(c.n_heads + 1), c.real_heads = check_below(c.n_heads + 1);
    c.imag_heads = check_below(c.n_heads - c.real_heads + 1), c.low_rank = check_below(4);
    c.pe_terms = 1 + check_below(4);
    c.experts = check_below(4), c.experts_top = c.experts ? 1 + check_below(c.experts) : 1;
    c.irw_from = 1 + check_below(c.n_layers), c.irw_layers = check_below(c.n_layers - c.irw_from + 2);
    if (check_below(2)) c.irw_from = 0, c.irw_layers = check_below(2);
    c.irw_queries = 1 + check_below(4), c.irw_width = check_below(7);
    c.rope_length = 4096, c.rope_factor = 2;
    c.lora_rank = check_below(3), strcpy(c.lora_on, "*");
    if (c.family == CMHA_FAMILY_CRAT && c.low_rank && c.experts) c.lora_rank = 0; /* nothing can have any */
    c.d_head = check_below(2) ? 0 : 2 * (1 + check_below(6));
    if (c.family != CMHA_FAMILY_REAL) c.pcl_weight = 0, c.n_kv_heads = c.d_head = 0, c.embedding_norm = 0;
    c.rotary_dims = 2 * check_below((c.d_head ? c.d_head : c.d_model / c.n_heads) / 2 + 1);
    if (c.attention > CMHA_ATTENTION_DOT) c.pcl_weight = 0;
    if (c.pcl_weight > 0) c.rotary_dims = 0;
    if (c.activation == CMHA_ACTIVATION_SWIGLU) c.head_transform = 0;
    c.features = check_below(4) + !c.tokens, c.values = check_below(3);
    if (!c.features) c.complex_features = c.feature_norm = 0;
    if (!c.values) c.gaussian = 0;
    if (!c.tokens && check_below(2)) c.vocabulary = 0;
    if (!c.tokens && c.complex_features) c.state_rotation = 1;
    if (c.crat_attention) c.angle = 0;
    if (c.family == CMHA_FAMILY_CRAT && c.crat_attention % 3) c.head_temperature = 0; /* linear and lag */
    if (c.family != CMHA_FAMILY_REAL || c.recompute) c.value_residual = 0;
    CHECK_OK(cmha_config_set_all(context, table, &c, needs[c.family]));
    if (c.placement % 2) c.parallel = CMHA_PARALLEL_NONE; /* post, after */
    if (c.placement || c.family != CMHA_FAMILY_REAL) c.first_norm = 1;
    if (c.family == CMHA_FAMILY_COPE && c.qk_norm > CMHA_QK_NORM_RMS_GAIN) c.qk_norm = CMHA_QK_NORM_RMS_GAIN;
    if (c.family == CMHA_FAMILY_MOBIUS && check_below(2)) c.position = CMHA_POSITION_SINUSOIDAL;
    if (c.family == CMHA_FAMILY_CRAT && check_below(2)) c.position = CMHA_POSITION_MULTIFREQ;
    return c;
}

static void table_of_tensors(cmha_context *context) {
    static const char *const families[] = {"real", "cope", "mobius", "crat"};
    size_t count = check_quick() ? 400 : 2000, kinds, i;
    const char *kind;
    if (!read_table()) {
        printf("there is no tests/README.md: its table of tensors is not checked\n");
        return;
    }
    for (kinds = 0; cmha_kind_name(kinds, NULL); kinds++) continue;
    for (i = 0; i < kinds + count; i++) {
        cmha_model_config c = i < kinds ? check_model_config() : drawn_config(context);
        cmha_model model;
        char label[64];
        kind = cmha_kind_name(i, NULL);
        if (kind)
            CHECK_OK(cmha_kind(context, kind, &c)), snprintf(label, sizeof label, "%s", kind);
        else
            snprintf(label, sizeof label, "drawn model %zu, %s", i - kinds, families[c.family]);
        if (!CHECK_THAT(!cmha_model_init(&model, context, &c), "%s: %s", label, cmha_error(context)))
            continue;
        compare(&model, label);
        if (i < kinds + 100) shrinks(&model, label);
        cmha_model_close(&model);
    }
    for (i = 0; i < n_rows; i++) {
        CHECK_THAT(rows[i].models[1], "no model has %s%s (%s)", rows[i].names[0], rows[i].shape,
                   rows[i].when);
        CHECK_THAT(!strchr(rows[i].when, '`') || rows[i].models[0], "%s: \"%s\" always holds",
                   rows[i].names[0], rows[i].when);
    }
}

/* ---- The wiring ---- */

enum { TOKENS = 6, V = 19, D = 16 };
static const int32_t ids[TOKENS] = {3, 1, 4, 1, 5, 9}, others[TOKENS] = {2, 7, 18, 2, 8, 1};

static void open_wired(cmha_model *model, cmha_context *context, const char *options) {
    cmha_model_config c = check_model_config();
    CHECK_OK(cmha_config_set_all(context, cmha_model_table(), &c, options));
    CHECK_THAT(!cmha_model_init(model, context, &c), "%s", cmha_error(context));
}

static cmha_real *data_of(cmha_model *model, const char *name) {
    static cmha_real nothing[4096];
    cmha_parameter *p = cmha_parameters_find(&model->parameters, name);
    return CHECK_THAT(p != NULL, "there is no %s", name) ? p->tensor.data : nothing;
}

static void times(cmha_model *model, const char *name, double by) {
    cmha_parameter *p = cmha_parameters_find(&model->parameters, name);
    size_t i;
    for (i = 0; CHECK(p != NULL) && i < p->tensor.size; i++) p->tensor.data[i] *= (cmha_real)by;
}

static void see(cmha_model *model, const int32_t *tokens, cmha_real *logits) {
    cmha_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.ids = tokens, batch.batch = 1, batch.length = TOKENS;
    CHECK_OK(cmha_model_logits(model, &batch, logits));
}

/* CoPE: three times the positions are gamma times three. After a norm they would be what they were. */
static void cope_positions(cmha_context *context, const char *placement) {
    cmha_real once[TOKENS * V], thrice[TOKENS * V];
    cmha_model model;
    char options[256];
    snprintf(options, sizeof options, "family=cope attention=dot cope_imag=learned norm_eps=0 placement=%s",
             placement);
    open_wired(&model, context, options);
    see(&model, ids, once);
    times(&model, "pos_emb.weight", 3), see(&model, ids, thrice);
    CHECK_THAT(check_distance(once, thrice, TOKENS * V) > 1e-2,
               "placement=%s norms CoPE's imaginary channel", placement);
    model.config.cope_gamma = 1 / 3.0, see(&model, ids, thrice);
    CHECK_NEAR(check_distance(once, thrice, TOKENS * V), 0, check_tolerance(1e-12, 1e-4));
    cmha_model_close(&model);
}

/* The last Möbius layer sees the tokens before the first one's norm, and norms them itself. */
static void mobius_tokens(cmha_context *context) {
    cmha_real first[TOKENS * V], second[TOKENS * V];
    cmha_model model;
    open_wired(&model, context,
               "family=mobius attention=dot position=learned placement=post norm_eps=0 tied=0 n_layers=3");
    times(&model, "blocks.1.ln2.weight", 0); /* from below only a constant arrives */
    check_fill(data_of(&model, "blocks.1.ln2.bias"), D, 1);
    see(&model, ids, first), see(&model, others, second);
    CHECK_THAT(check_distance(first, second, TOKENS * V) > 1e-3,
               "the last Möbius layer does not see the tokens");
    check_fill(data_of(&model, "blocks.0.ln1.weight"), D, 1);
    check_fill(data_of(&model, "blocks.0.ln1.bias"), D, 1);
    see(&model, ids, second);
    CHECK_THAT(check_distance(first, second, TOKENS * V) == 0, "the last Möbius layer sees normed tokens");
    times(&model, "tok_emb.weight", 5), see(&model, ids, second); /* its own ln1 takes that away */
    CHECK_NEAR(check_distance(first, second, TOKENS * V), 0, check_tolerance(1e-12, 1e-4));
    cmha_model_close(&model);
}

/* A Möbius head as printed reads the first channels, so two of the others may change places. They do so in
   the positions, which nothing but heads reads; the plain heads, the first columns of wo, are cut off. */
static void literal_channels(cmha_context *context) {
    cmha_real before[TOKENS * V], after[TOKENS * V], *wo, *positions, *at, kept;
    cmha_model model;
    size_t i, swap, from;
    open_wired(&model, context, "family=mobius attention=dot position=learned placement=post n_layers=1 "
                                "mobius_heads=2 mobius_mode=literal");
    wo = data_of(&model, "blocks.0.attn.wo.weight"), positions = data_of(&model, "pos_emb.weight");
    for (i = 0; i < D * D; i++) wo[i] *= (cmha_real)(i % D >= D / 2);
    see(&model, ids, before);
    for (swap = 0; swap < 2; swap++, memcpy(before, after, sizeof before)) {
        from = swap ? 7 : 8;
        for (i = 0; i < TOKENS; i++)
            at = positions + i * D, kept = at[from], at[from] = at[13], at[13] = kept;
        see(&model, ids, after);
        CHECK_THAT((check_distance(before, after, TOKENS * V) > check_tolerance(1e-11, 1e-4)) == (from < 8),
                   "literal: channel %zu: off by %g", from, check_distance(before, after, TOKENS * V));
    }
    cmha_model_close(&model);
}

/* wo takes the real heads first, then the imaginary, then the mixed: the columns kept say which group
   counts. */
static void groups_in_order(cmha_context *context) {
    static const char *const name[3] = {"blocks.0.attn.real.wqkv.weight", "blocks.0.attn.imag.wqkv.weight",
                                        "blocks.0.attn.mixed.wqkv.weight"};
    enum { HALF = D / 2, HEAD = HALF / 4 };
    static const size_t end[4] = {0, HEAD, 2 * HEAD, HALF};
    cmha_real before[TOKENS * V], after[TOKENS * V], *wo;
    for (size_t kept = 0; kept < 3; kept++) {
        cmha_model model;
        open_wired(&model, context, "family=crat n_layers=1 n_heads=4 real_heads=1 imag_heads=1");
        wo = data_of(&model, "blocks.0.attn.wo.weight");
        for (size_t i = 0; i < 2 * HALF * HALF; i++)
            if (i % HALF < end[kept] || i % HALF >= end[kept + 1]) wo[i] = 0;
        see(&model, ids, before);
        for (size_t g = 0; g < 3; g++, memcpy(before, after, sizeof before)) {
            times(&model, name[g], 2);
            see(&model, ids, after);
            CHECK_THAT((check_distance(before, after, TOKENS * V) > 0) == (g == kept),
                       "crat: columns of group %zu, weights of group %zu", kept, g);
        }
        cmha_model_close(&model);
    }
}

/* CRAT's regularisers do not know of the final norm. */
static void regularised_state(cmha_context *context, const char *which) {
    cmha_model model;
    cmha_tape tape;
    cmha_batch batch;
    cmha_tensor *extra[2] = {NULL, NULL};
    cmha_real first = 0;
    char options[64];
    int i;
    memset(&batch, 0, sizeof batch);
    batch.ids = ids, batch.batch = 1, batch.length = TOKENS;
    snprintf(options, sizeof options, "family=crat %s=1", which);
    open_wired(&model, context, options);
    CHECK_OK(cmha_tape_init(&tape, context, 1));
    for (i = 0; i < 2; i++) {
        if (CHECK(cmha_model_states(&model, &tape, &batch, &extra[i]) && extra[i])) {
            if (!i) first = extra[i]->data[0];
            CHECK_THAT(first > 0 && check_distance(&first, extra[i]->data, 1) == 0,
                       "%s changes with the final norm", which);
        }
        cmha_tape_reset(&tape);
        check_fill(data_of(&model, "ln_f.weight"), D, 3), check_fill(data_of(&model, "ln_f.bias"), D, 3);
    }
    cmha_tape_close(&tape), cmha_model_close(&model);
}

/* cGELU after the rotation: a half turn is a change of the state's sign before it. */
static void gelu_after_rotation(cmha_context *context) {
    cmha_real turned[TOKENS * V], negated[TOKENS * V];
    cmha_model model;
    size_t i;
    open_wired(&model, context, "family=crat state_gelu=1");
    times(&model, "blocks.0.ln1.bias", 0), times(&model, "state.theta.weight", 0);
    see(&model, ids, negated);
    for (i = 0; i < D / 2; i++) data_of(&model, "state.theta.bias")[i] = (cmha_real)3.14159265358979323846;
    see(&model, ids, turned);
    CHECK_THAT(check_distance(turned, negated, TOKENS * V) > 1e-2, "a half turn changes nothing");
    times(&model, "state.weight", -1), times(&model, "state.bias", -1);
    see(&model, ids, turned);
    CHECK_NEAR(check_distance(turned, negated, TOKENS * V), 0, check_tolerance(1e-11, 1e-4));
    cmha_model_close(&model);
}

int main(int argc, char **argv) {
    cmha_context context;
    (void)argc;
    cmha_blas_restart(argv);
    check_context(&context, 1, 3);
    table_of_tensors(&context);
    cope_positions(&context, "pre"), cope_positions(&context, "post");
    mobius_tokens(&context), literal_channels(&context), groups_in_order(&context);
    regularised_state(&context, "mag_reg"), regularised_state(&context, "phase_reg"),
        gelu_after_rotation(&context);
    cmha_context_close(&context);
    return check_end();
}
