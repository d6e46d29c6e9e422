/* Shows what a checkpoint does in the complex plane (--help lists everything):
       cc -O3 -march=native -fopenmp -I. examples/tools/geometry.c -o build/geometry -lopenblas -lm
       build/geometry [OPTION...] CHECKPOINT
   Of a ComplexFormer: delta and b of every head. Of MöbiusAttention: how many channels of a head turn,
   stretch, or do both. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "geometry"
#include "options.h"
#include "pieces.h"
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

/* Sizes of the drawing in pixels. */
enum { WIDE = 1050, EDGE = 30, LEGEND = 18, PITCH_X = 510, PITCH_Y = 222, PANEL_X = 440, PANEL_Y = 150,
       BAR = 18 };
static const char *const fill[MOBIUS_GEOMETRIES] = {"#E69F00", "#F0E442", "#009E73", "#56B4E9", "#CC79A7"};

/* How high the parts of the drawing are: of phases the legend, in lines of twelve, and a row for every layer;
   of maps a bar for every head. */
static double phases_height(void) {
    double rows = 0;
    for (const layer *l = layers; l < layers_end; l++) rows += l->H > 0;
    return most_heads ? (double)((most_heads + 1) / 12) * LEGEND + 2 * LEGEND + rows * PITCH_Y : 0;
}

static double maps_height(void) {
    double height = most_channels ? 60 : 0;
    for (const layer *l = layers; l < layers_end; l++)
        height += l->heads ? 12 + (double)l->heads * (BAR + 3) : 0;
    return height;
}

/* The ends of an axis at whole ticks. RoPE's value is on it, unless that would take most of the room from the
   learnt ones. */
static void find_range(int part, double *bottom, double *top, double *tick) {
    double span;
    int any = low[part] <= high[part];
    *bottom = any ? low[part] : plain[part], *top = any ? high[part] : plain[part];
    span = *top > *bottom ? *top - *bottom : 1;
    if (plain[part] > *bottom - 2 * span && plain[part] < *top + 2 * span)
        *bottom = fmin(*bottom, plain[part]), *top = fmax(*top, plain[part]);
    if (!(*top > *bottom)) *bottom -= 0.5, *top += 0.5;
    *tick = tick_of(*top - *bottom, 6);
    *bottom = floor(*bottom / *tick) * *tick, *top = ceil(*top / *tick) * *tick;
}

/* The axes of a panel at (x, y), with a line where RoPE is. */
static void show_axes(const layer *l, int part, double x, double y, double bottom, double top, double tick) {
    double last = l->P > 1 ? (double)(l->P - 1) : 1, step = fmax(1, tick_of(last, 12));
    double sx = (PANEL_X - 16) / last, sy = PANEL_Y / (top - bottom), rope = y + (top - plain[part]) * sy;
    const char *beyond = plain[part] > top ? "above" : plain[part] < bottom ? "below" : "";
    OUT(TEXT("layer %td: %s%s%s"), x, y - 8, "start", l - layers,
        part ? "b, added to the phase of a query (rad)" : "delta, factor of the phase",
        !*beyond ? "" : part ? "; 0 is " : "; 1 is ", beyond);
    for (double k = ceil(bottom / tick - 1e-9), at; (at = y + (top - k * tick) * sy) > y - 1e-6; k++)
        OUT(PATH TEXT("%.6g"), x, at, (double)PANEL_X, 0.0, "#ddd", "none", x - 6, at + 4, "end",
            k * tick + 0);
    for (double j = 0, at; at = x + 8 + j * sx, j < (double)l->P; j += step)
        OUT(PATH TEXT("%g"), at, y + PANEL_Y, 0.0, 4.0, "#888", "none", at, y + PANEL_Y + 17, "middle", j);
    OUT(RECT TEXT("pair j"), x, y, (double)PANEL_X, (double)PANEL_Y, "none", "#888", x + PANEL_X / 2,
        y + PANEL_Y + 33, "middle");
    if (!*beyond) OUT(PATH, x, rope, (double)PANEL_X, 0.0, "#444", "9 3 2 3");
}

/* delta or b of a layer: a row of the table for every head, and a line over the pairs j in axes at (x, y). */
static void show_panel(const layer *l, int part, double x, double y) {
    double bottom, top, tick, sx = (PANEL_X - 16) / (l->P > 1 ? (double)(l->P - 1) : 1);
    find_range(part, &bottom, &top, &tick);
    show_axes(l, part, x, y, bottom, top, tick);
    for (size_t h = 0; h < l->H; h++) {
        double sum = 0, least = INFINITY, most = -INFINITY;
        OUT("<g fill='%s' stroke='%s'>", colour[h % 7], colour[h % 7]);
        OUT("<polyline fill='none' stroke-dasharray='%s' points='", dash[h / 7 % 3]);
        for (int dots = 0; dots < 2; OUT("%s", dots++ ? "</g>\n" : "'/>"))
            for (size_t j = 0; j < l->P; j++) {
                double v = (double)l->x[part][h * l->P + j], at = x + 8 + (double)j * sx, down;
                down = y + (top - v) * PANEL_Y / (top - bottom);
                if (isfinite(v)) OUT(dots ? "<circle r='1.7' cx='%.1f' cy='%.1f'/>" : "%.1f,%.1f ", at, down);
                sum += v / 2, least = fmin(least, v), most = fmax(most, v);
            }
        printf("%-5s %5td %4zu  %9.4f %9.4f %9.4f\n", part ? "b" : "delta", l - layers, h, sum / (double)l->P,
               least, most);
    }
}

/* A row of panels for every layer: delta on the left, b on the right, with the same axes in all rows. */
static void show_phases(double y) {
    puts("      layer head       mean       min       max");
    double x = EDGE;
    OUT(PATH TEXT("delta = 1, b = 0"), x, y - 4, 22.0, 0.0, "#444", "9 3 2 3", x + 27, y, "start");
    for (size_t h = 0, slot = 2; h < most_heads; h++, slot++) { /* twelve slots a line; the first takes two */
        x = EDGE + (double)(slot % 12) * 82;
        if (slot % 12 == 0) y += LEGEND;
        OUT(PATH TEXT("head %zu"), x, y - 4, 22.0, 0.0, colour[h % 7], dash[h / 7 % 3], x + 27, y, "start",
            h);
    }
    y += 2 * LEGEND;
    for (int part = 0; part < 2; part++) {
        double down = y;
        for (const layer *l = layers; l < layers_end; down += l++->H ? PITCH_Y : 0)
            if (l->H) show_panel(l, part, EDGE + 40 + part * PITCH_X, down);
    }
}

/* For every head a row of the table and a stacked bar: its channels per geometry. */
static void show_maps(double y) {
    double x0 = EDGE + 110, scale = (WIDE - EDGE - x0) / (double)most_channels,
           tick = fmax(1, tick_of((double)most_channels, 10));
    OUT(TEXT("Möbius maps"), (double)EDGE, y, "start");
    printf("layer head");
    for (int g = 0; g < MOBIUS_GEOMETRIES; g++) {
        const char *name = mobius_name((mobius_geometry)g);
        printf(" %10s%s", name, g == MOBIUS_LOXODROMIC ? "\n" : "");
        OUT(RECT TEXT("%s"), x0 + g * 120, y - 11, 14.0, 12.0, fill[g], "none", x0 + 20 + g * 120, y, "start",
            name);
    }
    for (const layer *l = layers; l < layers_end; l++) {
        if (l->heads) OUT(TEXT("layer %td"), (double)EDGE, (y += 12) + BAR, "start", l - layers);
        for (size_t h = 0; h < l->heads; h++, y += BAR + 3) {
            double x = x0, wide;
            OUT(TEXT("head %zu"), x0 - 8, y + BAR, "end", h);
            printf("%5td %4zu", l - layers, h);
            for (int g = 0; g < MOBIUS_GEOMETRIES; g++, x += wide) {
                printf(" %10zu%s", l->counts[h][g], g == MOBIUS_LOXODROMIC ? "\n" : "");
                wide = (double)l->counts[h][g] * scale;
                OUT(RECT, x, y + 5, wide, (double)BAR, fill[g], "#fff");
                if (wide > 24) OUT(TEXT("%zu"), x + wide / 2, y + BAR, "middle", l->counts[h][g]);
            }
        }
    }
    for (double k = 0; k <= (double)most_channels; k += tick)
        OUT(PATH TEXT("%g"), x0 + k * scale, y + 8, 0.0, 5.0, "#888", "none", x0 + k * scale, y + 27,
            "middle", k);
    OUT(TEXT("channels of the head, by what their map does (tolerance %g)"), (x0 + WIDE - EDGE) / 2, y + 46,
        "middle", tolerance);
}

/* Draws everything; says whether all of it arrived. */
static int show(const char *file, const char *checkpoint) {
    double y = EDGE, height = EDGE + 34 + phases_height() + maps_height();
    if (!open_drawing(file, WIDE, height, checkpoint)) return 0;
    OUT("<text x='%d' y='%.0f' font-size='16px' font-weight='bold'>", EDGE, y);
    show_name(checkpoint);
    OUT("%s</text>\n", most_heads ? ": delta and b of every head" : ": maps of every head");
    y += 30;
    if (most_heads) show_phases(y);
    if (most_channels) show_maps(y + phases_height());
    return close_drawing();
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
        return end_program(0);
    }
    if (sscanf(option[TOL].value, "%lf%c", &tolerance, &rest) != 1 || !(tolerance >= 0))
        complain(2, "not a tolerance: ", option[TOL].value);
    if (!path) complain(2, "name a checkpoint, such as tiny.safetensors (build/train_tiny makes one)", "");
    check(cmha_context_init(&ctx, NULL)), check(cmha_archive_open(&archive, &ctx, path));
    read_layers();
    if (!show(option[SVG].value, path)) complain(1, "cannot write ", option[SVG].value);
    cmha_archive_close(&archive), cmha_context_close(&ctx);
    return end_program(0);
}
