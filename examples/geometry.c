/* Shows what a checkpoint does in the complex plane:   build/geometry [OPTION...] CHECKPOINT     (--help lists everything)
   Of a ComplexFormer: delta and b of every head. Of MöbiusAttention: how many channels of a head turn, stretch, or do both. */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block's attention: delta and b [H, P] (H = 1: all heads share them), and the channels of each geometry in the heads of its
   Möbius maps, counts [heads], which add up to `width`. H or heads is 0 where there is nothing of the kind. */
typedef struct layer {
    cmha_real *x[2];
    size_t H, P, heads, width, (*counts)[CMHA_GEOMETRY_COUNT];
} layer;
static cmha_context ctx;
static cmha_archive archive;
static layer *layers, *layers_end;       /* by the number of the block */
static size_t most_heads, most_channels; /* the largest H and width */
static double tolerance, low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY}; /* finite range of delta, b */

/* Ends the program with one line. Status 1: something failed; 2: it was called the wrong way. */
static void die(int status, const char *what, const char *which) {
    fprintf(stderr, "geometry: %s%s\n", what, which);
    exit(status);
}

static void *take(size_t n, size_t size) {
    void *memory = calloc(n, size);
    if (!memory) die(1, "no memory", "");
    return memory;
}

/* The block's tensor of that name and rank with its first and last size, or NULL if there is none. */
static cmha_real *read_tensor(const layer *l, const char *what, int rank, size_t *first, size_t *last) {
    char name[64];
    snprintf(name, sizeof name, "blocks.%zu.attn.%s", (size_t)(l - layers), what);
    const cmha_archive_tensor *t = cmha_archive_find(&archive, name);
    if (!t) return NULL;
    if (t->rank != rank || !t->count) die(1, "unexpected shape of ", name);
    cmha_real *x = take(t->count, sizeof *x);
    if (cmha_archive_read(&archive, t, x)) die(1, cmha_error(&ctx), "");
    *first = t->shape[0], *last = t->shape[rank - 1];
    return x;
}

static void read_maps(layer *l) {
    size_t four = 0, D = 0;
    cmha_real *abcd = read_tensor(l, "mobius", 3, &four, &D);
    const char *heads = cmha_archive_metadata(&archive, "cfg.mobius_heads");
    if (!abcd) return;
    if (!heads || !strtoull(heads, NULL, 10)) heads = cmha_archive_metadata(&archive, "cfg.n_heads");
    l->heads = heads ? (size_t)strtoull(heads, NULL, 10) : 0;
    if (four != 4 || !l->heads || D % l->heads) die(1, "its maps do not fit cfg.mobius_heads or cfg.n_heads: ", archive.path);
    cmha_mobius_class *classes = take(D, sizeof *classes);
    cmha_mobius_classify(abcd, D, tolerance, classes);
    l->width = D / l->heads, l->counts = take(l->heads, sizeof *l->counts);
    for (size_t h = 0; h < l->heads; h++) cmha_mobius_count(classes + h * l->width, l->width, l->counts[h]);
    free(classes), free(abcd);
}

static void read_layers(void) {
    size_t n = 0, block, H = 0, P = 0;
    for (size_t t = 0; t < archive.n_tensors; t++)
        if (sscanf(archive.tensors[t].name, "blocks.%5zu.", &block) == 1 && block >= n) n = block + 1;
    layers = take(n + 1, sizeof *layers), layers_end = layers + n;
    for (layer *l = layers; l < layers_end; l++) {
        l->x[0] = read_tensor(l, "delta", 2, &l->H, &l->P), l->x[1] = read_tensor(l, "b", 2, &H, &P);
        if (!l->x[0] != !l->x[1] || (l->H && (H != l->H || P != l->P))) die(1, "delta and b differ in shape: ", archive.path);
        for (int p = 0; p < 2; p++)
            for (size_t i = 0; i < l->H * l->P; i++)
                if (isfinite(l->x[p][i])) low[p] = fmin(low[p], (double)l->x[p][i]), high[p] = fmax(high[p], (double)l->x[p][i]);
        read_maps(l);
        most_heads = l->H > most_heads ? l->H : most_heads, most_channels = l->width > most_channels ? l->width : most_channels;
    }
    if (!most_heads && !most_channels) die(1, "no delta and b and no Möbius maps: ", archive.path);
}

/* Sizes of the drawing in pixels, and the pieces of SVG it is made of. */
enum { WIDE = 1050, EDGE = 30, PITCH_X = 340, PITCH_Y = 222, PANEL_X = 270, PANEL_Y = 150, COLUMNS = 3, BAR = 18 };
#define OUT(...) fprintf(svg, __VA_ARGS__)
#define HEAD "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%06.0f' font-family='sans-serif' font-size='12px'>\n" \
             "<rect width='100%%' height='100%%' fill='#fff'/>\n"
#define TEXT(words) "<text x='%.1f' y='%.1f' text-anchor='%s'>" words "</text>\n"
#define PATH "<path d='M%.1f %.1fh%.1fv%.1f' stroke='%s' stroke-dasharray='%s'/>\n"
#define RECT "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s' stroke='%s'/>\n"
/* Okabe and Ito's palette, for every kind of colour vision; after seven heads the next are dashed, then dotted. */
static const char *const colour[7] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"};
static const char *const dash[3] = {"none", "5 3", "1.5 3"};
static const char *const fill[CMHA_GEOMETRY_COUNT] = {"#E69F00", "#F0E442", "#009E73", "#56B4E9", "#CC79A7"};
static FILE *svg;

/* 1, 2 or 5 times a power of ten: the distance of at most so many ticks over a span. */
static double tick_of(double span, double ticks) {
    double power = pow(10, floor(log10(span / ticks))), f = span / ticks / power;
    return power * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10);
}

/* delta or b of a layer: a row of the table for every head, and a line over the pairs j in axes at (x, y). */
static void show_panel(const layer *l, int part, double x, double y, double bottom, double top) {
    double last = l->P > 1 ? (double)(l->P - 1) : 1, sx = (PANEL_X - 16) / last, step = fmax(1, tick_of(last, 8));
    double tick = tick_of(top - bottom, 6), sy = PANEL_Y / (top - bottom);
    OUT(TEXT("layer %td: %s"), x, y - 8, "start", l - layers, part ? "b, added to the phase (rad)" : "delta, factor of the phase");
    for (double k = ceil(bottom / tick - 1e-9), at; (at = y + (top - k * tick) * sy) > y - 1e-6; k++)
        OUT(PATH TEXT("%.6g"), x, at, (double)PANEL_X, 0.0, "#ddd", "none", x - 6, at + 4, "end", k * tick + 0);
    for (double j = 0; j < (double)l->P; j += step)
        OUT(PATH TEXT("%g"), x + 8 + j * sx, y + PANEL_Y, 0.0, 4.0, "#888", "none", x + 8 + j * sx, y + PANEL_Y + 17, "middle", j);
    OUT(RECT TEXT("pair j"), x, y, (double)PANEL_X, (double)PANEL_Y, "none", "#888", x + PANEL_X / 2, y + PANEL_Y + 33, "middle");
    for (size_t h = 0; h < l->H; h++) {
        double sum = 0, least = INFINITY, most = -INFINITY;
        OUT("<g fill='%s' stroke='%s'>", colour[h % 7], colour[h % 7]);
        OUT("<polyline fill='none' stroke-dasharray='%s' points='", dash[h / 7 % 3]);
        for (int dots = 0; dots < 2; OUT("%s", dots++ ? "</g>\n" : "'/>"))
            for (size_t j = 0; j < l->P; j++) {
                double v = (double)l->x[part][h * l->P + j], at = x + 8 + (double)j * sx;
                if (isfinite(v)) OUT(dots ? "<circle r='1.7' cx='%.1f' cy='%.1f'/>" : "%.1f,%.1f ", at, y + (top - v) * sy);
                sum += v / 2, least = fmin(least, v), most = fmax(most, v);
            }
        printf("%-5s %5td %4zu  %9.4f %9.4f %9.4f\n", part ? "b" : "delta", l - layers, h, sum / (double)l->P, least, most);
    }
}

/* Panels for delta and b of every layer, three layers abreast, with the same axes. Returns where the drawing has come to. */
static double show_phases(double y) {
    size_t n = 0;
    puts("      layer head       mean       min       max");
    for (size_t h = 0; h < most_heads; h++) {
        double x = EDGE + (double)(h % 12) * 82;
        OUT(PATH TEXT("head %zu"), x, y - 4, 22.0, 0.0, colour[h % 7], dash[h / 7 % 3], x + 27, y, "start", h);
        y += h % 12 == 11 || h + 1 == most_heads ? 18 : 0;
    }
    for (int part = 0; part < 2; part++) {
        double bottom = isfinite(low[part]) ? low[part] : 0, top = high[part] > bottom ? high[part] : bottom + 1;
        double tick = tick_of(top - bottom, 6);
        bottom = floor(bottom / tick) * tick, top = ceil(top / tick) * tick, n = 0;
        for (const layer *l = layers; l < layers_end; n += l++->H > 0)
            if (l->H) show_panel(l, part, EDGE + 40 + (double)(n % COLUMNS) * PITCH_X,
                                 y + 18 + (double)(n / COLUMNS * 2 + (size_t)part) * PITCH_Y, bottom, top);
    }
    return y + 18 + (double)((n + COLUMNS - 1) / COLUMNS * 2) * PITCH_Y;
}

/* For every head a row of the table and a stacked bar: its channels per geometry. */
static double show_maps(double y) {
    double x0 = EDGE + 110, scale = (WIDE - EDGE - x0) / (double)most_channels, tick = fmax(1, tick_of((double)most_channels, 10));
    OUT(TEXT("Möbius maps"), (double)EDGE, y, "start");
    printf("layer head");
    for (int g = 0; g < CMHA_GEOMETRY_COUNT; g++) {
        const char *name = cmha_geometry_name((cmha_geometry)g);
        printf(" %10s%s", name, g == CMHA_LOXODROMIC ? "\n" : "");
        OUT(RECT TEXT("%s"), x0 + g * 120, y - 11, 14.0, 12.0, fill[g], "none", x0 + 20 + g * 120, y, "start", name);
    }
    for (const layer *l = layers; l < layers_end; l++) {
        if (l->heads) OUT(TEXT("layer %td"), (double)EDGE, (y += 12) + BAR, "start", l - layers);
        for (size_t h = 0; h < l->heads; h++, y += BAR + 3) {
            double x = x0, wide;
            OUT(TEXT("head %zu"), x0 - 8, y + BAR, "end", h);
            printf("%5td %4zu", l - layers, h);
            for (int g = 0; g < CMHA_GEOMETRY_COUNT; g++, x += wide) {
                printf(" %10zu%s", l->counts[h][g], g == CMHA_LOXODROMIC ? "\n" : "");
                wide = (double)l->counts[h][g] * scale;
                OUT(RECT, x, y + 5, wide, (double)BAR, fill[g], "#fff");
                if (wide > 24) OUT(TEXT("%zu"), x + wide / 2, y + BAR, "middle", l->counts[h][g]);
            }
        }
    }
    for (double k = 0; k <= (double)most_channels; k += tick)
        OUT(PATH TEXT("%g"), x0 + k * scale, y + 8, 0.0, 5.0, "#888", "none", x0 + k * scale, y + 27, "middle", k);
    OUT(TEXT("channels of the head, by what their map does (tolerance %g)"), (x0 + WIDE - EDGE) / 2, y + 46, "middle", tolerance);
    return y + 60;
}

int main(int argc, char **argv) {
    const char *const names[2] = {"--svg", "--tol"}, *value[2] = {"geometry.svg", "0.01"}, *path = NULL;
    char rest;
    for (int i = 1, o; i < argc; i++) {
        size_t n = strcspn(argv[i], "=");
        for (o = 0; o < 2 && (strncmp(names[o], argv[i], n) || names[o][n]); o++) continue;
        if (o < 2 && !(value[o] = argv[i][n] ? argv[i] + n + 1 : argv[++i])) die(2, "a value is missing after ", names[o]);
        else if (o == 2 && !strcmp(argv[i], "--help"))
            return puts("geometry [OPTION...] CHECKPOINT: what a model does in the complex plane, as a table and as a drawing\n\n"
                        "  --svg FILE    the drawing; geometry.svg\n"
                        "  --tol X       how far a Möbius map may be from a geometry and still count; 0.01") < 0;
        else if (o == 2 && (*argv[i] == '-' || path)) die(2, "see --help; what is ", argv[i]);
        else if (o == 2) path = argv[i];
    }
    if (sscanf(value[1], "%lf%c", &tolerance, &rest) != 1 || !(tolerance >= 0)) die(2, "not a tolerance: ", value[1]);
    if (!path) die(2, "name a checkpoint, such as tiny.safetensors (build/train_tiny makes one)", "");
    if (cmha_context_init(&ctx, NULL) || cmha_archive_open(&archive, &ctx, path)) die(1, cmha_error(&ctx), "");
    read_layers();
    if (!(svg = fopen(value[0], "w"))) die(1, "cannot write ", value[0]);
    OUT(HEAD, WIDE, 0.0); /* the height is known at the end */
    double y = most_heads ? show_phases(EDGE + 10) : EDGE + 10;
    if (most_channels) y = show_maps(y);
    OUT("</svg>\n");
    if (fseek(svg, 0, SEEK_SET) || OUT(HEAD, WIDE, y) < 0 || ferror(svg) || fclose(svg)) die(1, "cannot write ", value[0]);
    cmha_archive_close(&archive), cmha_context_close(&ctx);
    return fflush(stdout) || ferror(stdout);
}
