/* Shows what a checkpoint does in the complex plane (--help lists everything):
       cc -O3 -march=native -fopenmp -I. examples/tools/geometry.c -o build/geometry -lopenblas -lm
       build/geometry [OPTION...] CHECKPOINT
   Of a ComplexFormer: delta and b of every head. Of MöbiusAttention: how many channels of a head turn,
   stretch, or do both. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "geometry"
#define NO_ROWS
#include "options.h"
#include "drawing.h"
#include "mobius_geometry.h"

/* A block's attention: delta and b [H, P] (H = 1: all heads share them), and the channels of each
   geometry in the heads of its Möbius maps, counts [heads], which add up to `width`. H or heads is 0
   where there is nothing of the kind. */
typedef struct layer {
    cmha_real *x[2];
    size_t H, P, heads, width, (*counts)[MOBIUS_GEOMETRIES];
} layer;
static cmha_archive archive;
static layer *layers, *layers_end;       /* by the number of the block */
static size_t most_heads, most_channels; /* the largest H and width */
/* finite range of delta, b */
static double tolerance, low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
static const double plain[2] = {1, 0}; /* delta and b of RoPE */

/* The block's tensor of that name and rank with its first and last size, or NULL if there is none. */
static cmha_real *read_tensor(const layer *l, const char *what, int rank, size_t *first, size_t *last) {
    char name[64];
    snprintf(name, sizeof name, "blocks.%zu.attn.%s", (size_t)(l - layers), what);
    const cmha_archive_tensor *t = cmha_archive_find(&archive, name);
    if (!t) return NULL;
    if (t->rank != rank || !t->count || (rank == 3 && (t->shape[0] != 4 || t->shape[1] != 2)))
        complain(1, "unexpected shape of ", name);
    cmha_real *x = take(t->count, sizeof *x);
    check(cmha_archive_read(&archive, t, x));
    *first = t->shape[0], *last = t->shape[rank - 1];
    return x;
}

static void read_maps(layer *l) {
    size_t four = 0, D = 0;
    cmha_real *abcd = read_tensor(l, "mobius", 3, &four, &D);
    const char *heads = cmha_archive_metadata(&archive, "cfg.mobius_heads");
    if (!abcd) return;
    uint64_t n = 0;
    if (!heads || !text_whole(heads, &n) || !n) heads = cmha_archive_metadata(&archive, "cfg.n_heads");
    if (!heads || !text_whole(heads, &n) || !n || n > D || D % (size_t)n)
        complain(1, "its maps do not fit cfg.mobius_heads or cfg.n_heads: ", archive.path);
    l->heads = (size_t)n;
    mobius_class *classes = take(D, sizeof *classes);
    mobius_classify(abcd, D, tolerance, classes);
    l->width = D / l->heads, l->counts = take(l->heads, sizeof *l->counts);
    for (size_t h = 0; h < l->heads; h++) mobius_count(classes + h * l->width, l->width, l->counts[h]);
    free(classes), free(abcd);
}

static void read_layers(void) {
    size_t n = 0, block, H = 0, P = 0;
    for (size_t t = 0; t < archive.n_tensors; t++)
        if (sscanf(archive.tensors[t].name, "blocks.%5zu.", &block) == 1 && block >= n) n = block + 1;
    layers = take(n + 1, sizeof *layers), layers_end = layers + n;
    for (layer *l = layers; l < layers_end; l++) {
        l->x[0] = read_tensor(l, "delta", 2, &l->H, &l->P), l->x[1] = read_tensor(l, "b", 2, &H, &P);
        if (!l->x[0] != !l->x[1] || (l->H && (H != l->H || P != l->P)))
            complain(1, "delta and b differ in shape: ", archive.path);
        for (int p = 0; p < 2; p++)
            for (size_t i = 0; i < l->H * l->P; i++)
                if (isfinite(l->x[p][i]))
                    low[p] = fmin(low[p], (double)l->x[p][i]), high[p] = fmax(high[p], (double)l->x[p][i]);
        read_maps(l);
        most_heads = l->H > most_heads ? l->H : most_heads,
        most_channels = l->width > most_channels ? l->width : most_channels;
    }
    if (!most_heads && !most_channels) complain(1, "no delta and b and no Möbius maps: ", archive.path);
}

/* ---- The table ---- */

static void print_phases(int part) {
    for (const layer *l = layers; l < layers_end; l++)
        for (size_t h = 0; h < l->H; h++) {
            double sum = 0, least = INFINITY, most = -INFINITY;
            for (size_t j = 0; j < l->P; j++) {
                double v = (double)l->x[part][h * l->P + j];
                sum += v, least = fmin(least, v), most = fmax(most, v);
            }
            printf("%-5s %5td %4zu  %9.4f %9.4f %9.4f\n", part ? "b" : "delta", l - layers, h,
                   sum / (double)l->P, least, most);
        }
}

static void print_maps(void) {
    printf("layer head");
    for (int g = 0; g < MOBIUS_GEOMETRIES; g++) printf(" %10s", mobius_name((mobius_geometry)g));
    for (const layer *l = layers; l < layers_end; l++)
        for (size_t h = 0; h < l->heads; h++) {
            printf("\n%5td %4zu", l - layers, h);
            for (int g = 0; g < MOBIUS_GEOMETRIES; g++) printf(" %10zu", l->counts[h][g]);
        }
    puts("");
}

/* ---- The drawing: delta and b of a layer side by side, then the maps of all heads ---- */

/* The ends of an axis at whole ticks. RoPE's value is on it, unless that would take most of the room from the
   learnt ones. */
static void find_range(int part, double *bottom, double *top) {
    double span, tick;
    int any = low[part] <= high[part];
    *bottom = any ? low[part] : plain[part], *top = any ? high[part] : plain[part];
    span = *top > *bottom ? *top - *bottom : 1;
    if (plain[part] > *bottom - 2 * span && plain[part] < *top + 2 * span)
        *bottom = fmin(*bottom, plain[part]), *top = fmax(*top, plain[part]);
    if (!(*top > *bottom)) *bottom -= 0.5, *top += 0.5;
    tick = tick_of(*top - *bottom, 6);
    *bottom = floor(*bottom / tick) * tick, *top = ceil(*top / tick) * tick;
}

/* A text of its own, as printf writes it. */
#ifdef __GNUC__
__attribute__((format(printf, 1, 2)))
#endif
static char *text_made(const char *format, ...) {
    char *text = take(96, 1);
    va_list list;
    va_start(list, format);
    vsnprintf(text, 96, format, list);
    va_end(list);
    return text;
}

/* delta or b of a layer: a line over the pairs j for every head, and one where RoPE is. */
static void fill_phases(chart *c, const layer *l, int part) {
    static const chart_rule rope[2] = {{1, 0, "RoPE"}, {0, 0, "RoPE"}};
    chart_series *heads = take(l->H, sizeof *heads);
    double *values = take(l->H * l->P, sizeof *values);
    const char *beyond;
    for (size_t i = 0; i < l->H * l->P; i++) values[i] = (double)l->x[part][i];
    for (size_t h = 0; h < l->H; h++)
        heads[h].name = text_made("head %zu", h), heads[h].n = l->P, heads[h].values = values + h * l->P;
    find_range(part, &c->y.least, &c->y.most);
    beyond = plain[part] > c->y.most ? "above" : plain[part] < c->y.least ? "below" : "";
    c->title = text_made("layer %td: %s%s%s", l - layers, part ? "b" : "delta",
                         *beyond ? part ? "; RoPE's 0 is " : "; RoPE's 1 is " : "", beyond);
    c->x.label = "pair j", c->y.label = part ? "b, phase of a query (rad)" : "delta, factor of the phase";
    c->series = heads, c->n = l->H, c->rules = &rope[part], c->n_rules = !*beyond, c->high = 170;
}

/* A stacked bar for every head: its channels per geometry. */
static void fill_maps(chart *c) {
    chart_series *series = take(MOBIUS_GEOMETRIES, sizeof *series);
    size_t n = 0, at = 0;
    for (const layer *l = layers; l < layers_end; l++) n += l->heads;
    double *values = take(n * MOBIUS_GEOMETRIES, sizeof *values);
    char **names = take(n, sizeof *names);
    for (const layer *l = layers; l < layers_end; l++)
        for (size_t h = 0; h < l->heads; h++, at++) {
            names[at] = text_made("layer %td, head %zu", l - layers, h);
            for (size_t g = 0; g < MOBIUS_GEOMETRIES; g++) values[g * n + at] = (double)l->counts[h][g];
        }
    for (size_t g = 0; g < MOBIUS_GEOMETRIES; g++) {
        series[g].name = mobius_name((mobius_geometry)g), series[g].mark = CHART_STACK;
        series[g].n = n, series[g].values = values + g * n;
    }
    c->title = text_made("Möbius maps by what they do (tolerance %g)", tolerance);
    c->x.names = (const char *const *)names, c->x.n_names = n;
    c->y.label = "channels of the head", c->y.most = (double)most_channels;
    c->series = series, c->n = MOBIUS_GEOMETRIES, c->flat = c->whole = 1;
}

/* Draws everything into a file. */
static void show(const char *file, const char *checkpoint) {
    chart *charts = take((size_t)(layers_end - layers) * 2 + 1, sizeof *charts);
    char title[512];
    figure f = {title, NULL, NULL, charts, 0, 2, 0, 0, 0, 0};
    snprintf(title, sizeof title, "%.400s: %s of every head", draw_base(checkpoint),
             !most_heads ? "maps" : most_channels ? "delta, b and maps" : "delta and b");
    for (const layer *l = layers; l < layers_end; l++)
        for (int part = 0; l->H && part < 2; part++) fill_phases(&charts[f.n++], l, part);
    if (most_channels) fill_maps(&charts[f.n++]);
    must(figure_save(file, &f, failure));
}

int main(int argc, char **argv) {
    enum { SVG, TOL, HELP, N_OPTIONS };
    setting option[N_OPTIONS] = {
        {"--svg", "geometry.svg", "the drawing; geometry.svg"},
        {"--tol", "0.01", "how far a Möbius map may be from a geometry and still count; 0.01"},
        {"--help", NULL, "this page"}};
    text_open_streams();
    int n_set = 0;
    char rest;
    const char *path = read_options(option, N_OPTIONS, 1u << HELP, argc, argv, &n_set);
    if (option[HELP].value) {
        puts("geometry [OPTION...] CHECKPOINT: what a model does in the complex plane: table and drawing\n");
        print_options(option, N_OPTIONS, 8, 0);
        return end_help("build/geometry --svg heads.svg tiny.safetensors");
    }
    if (sscanf(option[TOL].value, "%lf%c", &tolerance, &rest) != 1 || !(tolerance >= 0))
        complain(2, "not a tolerance: ", option[TOL].value);
    if (!path) complain(2, "name a checkpoint, such as tiny.safetensors (build/train_tiny makes one)", "");
    refuse_replacing(option[SVG].name, option[SVG].value, &path, 1);
    check(cmha_context_init(&ctx, NULL)), check(cmha_archive_open(&archive, &ctx, path));
    read_layers();
    if (most_heads) puts("      layer head       mean       min       max"), print_phases(0), print_phases(1);
    if (most_channels) print_maps();
    show(option[SVG].value, path);
    cmha_archive_close(&archive), cmha_context_close(&ctx);
    return end_program(0);
}
