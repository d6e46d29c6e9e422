/* drawing.h - charts as SVG, and the pieces they consist of: the one drawing code of these programs.

   A chart has an axis of positions, an axis of values, and series: lines, points or bars, with intervals if
   there are any. A figure is one or more charts under a title. One call writes it:

       double loss[] = {5.5, 3.1, 2.4};
       chart_series line = {.name = "training", .n = 3, .values = loss};
       chart c = {.title = "Loss", .x = {.label = "step"}, .y = {.label = "loss (nats a token)"},
                  .series = &line, .n = 1};
       if (!chart_save("loss.svg", &c, error)) puts(error);

   Zeroed members mean "as usual". Nothing is kept between calls, and there are no globals: several files of
   a program may include this. A picture of one's own begins with draw_open, uses draw_text, draw_line,
   draw_rect, draw_mark and chart_draw at will, and ends with draw_close; with `html` set it may stand in a
   page, whose colours are then CSS variables (draw_css). Names may be any bytes.

   NaN, infinities, what lies beyond 1e290 and, on a logarithmic axis, what is not above 0 are gaps. */
#ifndef DRAWING_H
#define DRAWING_H

#include "text.h"

#include <math.h>

/* ---- What is drawn ---- */

typedef enum chart_mark {
    CHART_LINES,  /* a line through the points, with a mark at some of them */
    CHART_POINTS, /* a mark for each point */
    CHART_BARS,   /* a bar from 0 (logarithmic: from the axis) to the value, beside those of other series */
    CHART_STACK   /* the same, where the series before ends; negative values are gaps */
} chart_mark;

typedef struct chart_series {
    const char *name;         /* in the legend; NULL or "": not there */
    size_t n;                 /* points */
    const double *at;         /* [n] positions; NULL: 0, 1, 2, .. */
    const double *values;     /* [n] */
    const double *low, *high; /* [n] ends of their intervals; both NULL: there are none */
    chart_mark mark;
    int look;                 /* 1 to DRAW_LOOKS: that one, for the same thing in many charts; 0: the next */
    int bold;                 /* a thick line */
} chart_series;

typedef struct chart_axis {
    const char *label;        /* what it is, with the unit: "loss (nats a token)" */
    int log;                  /* 0, or the base whose powers are marked: 2 or 10 */
    double least, most;       /* its ends; equal (both 0): as the data want it */
    const char *const *names; /* [n_names] of the positions 0, 1, ..; NULL: numbers */
    size_t n_names;
    const char *also;         /* label of a second unit at the right of upright values, or NULL, */
    double factor;            /* of which the first unit is so many */
} chart_axis;

/* A straight line across the chart. */
typedef struct chart_rule {
    double at;                /* a value; with `upright` a position */
    int upright;
    const char *name;         /* in the legend; NULL: not there */
} chart_rule;

typedef struct chart {
    const char *title, *subtitle;
    chart_axis x, y;          /* of positions, of values */
    int flat;                 /* 1: positions run down, values to the right */
    const chart_series *series;
    size_t n;
    const chart_rule *rules;
    size_t n_rules;
    double high;              /* of the plot in pixels; 0: 300, or what its names take */
    int whole;                /* 1: takes a row of the figure alone, with a legend at its right */
} chart;

typedef struct figure {
    const char *title, *subtitle; /* title NULL: those of its one chart */
    const char *description;  /* for who cannot see it; NULL: what the series say */
    const chart *charts;      /* row by row; those in columns have one legend above them, so equal looks */
    size_t n, columns;        /* columns 0: 1 */
    double wide;              /* of the sheet in pixels; 0: 760, or 1060 for more columns */
    int html;                 /* 1: to stand in an HTML page */
    unsigned id;              /* tells the drawings of a page apart */
    int apart;                /* 1: without legends beside its charts, which the page writes (legend_page) */
} figure;

/* An SVG that is being written. */
typedef struct drawing {
    FILE *file;
    int html;                 /* as in a figure */
    unsigned id, clips;       /* the same; 0 */
} drawing;

/* Writes a figure; returns whether all of it arrived. */
static inline int figure_write(FILE *file, const figure *f);
/* Writes it beside `path` and then there, so that nobody sees half of it. 0: `error` (TEXT_ERROR bytes) says
   why not. */
static inline int figure_save(const char *path, const figure *f, char *error);
static inline int chart_save(const char *path, const chart *c, char *error); /* a figure of one chart */

/* ---- Colours ---- */

/* What has a colour; eight for series follow DRAW_SERIES. */
enum { DRAW_INK, DRAW_SOFT, DRAW_AXIS, DRAW_GRID, DRAW_SHEET, DRAW_SERIES, DRAW_COLOURS = DRAW_SERIES + 8 };

/* A colour on a white sheet (0), in a page (1), what declares it in a light (2) and a dark page (3). Those of
   series have a contrast of 3:1 and more, and are 20 apart in CIELAB for every kind of colour vision. */
static inline const char *draw_palette(int colour, int which) {
#define DRAW_ROW(name, light, dark) \
    {light, "var(--draw-" name "," light ")", "--draw-" name ":" light ";", "--draw-" name ":" dark ";"}
    static const char *const rows[DRAW_COLOURS][4] = {
        DRAW_ROW("ink", "#222222", "#e8e8e8"), DRAW_ROW("soft", "#595959", "#b0b4ba"),
        DRAW_ROW("axis", "#888888", "#8a8f98"), DRAW_ROW("grid", "#e2e2e2", "#33373d"),
        DRAW_ROW("sheet", "#ffffff", "#16181c"), DRAW_ROW("1", "#1f3fc0", "#6460f2"),
        DRAW_ROW("2", "#a63603", "#e0501e"), DRAW_ROW("3", "#0b7a5f", "#2ad477"),
        DRAW_ROW("4", "#b47fc0", "#ad569c"), DRAW_ROW("5", "#8a9a00", "#f2d430"),
        DRAW_ROW("6", "#2e8ffe", "#aecbff"), DRAW_ROW("7", "#1a1a1a", "#f4f4ea"),
        DRAW_ROW("8", "#7a1c7d", "#7d7666")};
#undef DRAW_ROW
    return rows[colour][which];
}

static inline const char *draw_colour(const drawing *d, int colour) {
    return draw_palette(colour, d->html != 0);
}

/* Declares the colours of a page: to stand between the braces of a CSS rule. */
static inline void draw_css(FILE *file, int dark) {
    for (int c = 0; c < DRAW_COLOURS; c++) fputs(draw_palette(c, dark ? 3 : 2), file);
}

/* ---- Text ---- */

/* The last part of a path, which is enough of a name for a title. */
static inline const char *draw_base(const char *path) {
    const char *last = strrchr(path, '/');
    return last && last[1] ? last + 1 : path;
}

/* Writes a text of which at most so many characters show: what XML reserves as entities; what it forbids, and
   what is no UTF-8, as a question mark. */
static inline void draw_escaped(FILE *file, const char *text, size_t most) {
    static const char reserved[] = "&<>'\"";
    static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&apos;", "&quot;"};
    const char *end = text ? text + strlen(text) : text, *mark;
    uint32_t c;
    for (size_t n; text < end; text += n, most--) {
        if (!most) {
            fputs(" ..", file);
            return;
        }
        n = text_decode(text, (size_t)(end - text), &c);
        mark = c < 128 && c ? strchr(reserved, (int)c) : NULL;
        if (text_steers(c) || c == 0xFFFE || c == 0xFFFF) fputc('?', file);
        else if (mark) fputs(entity[mark - reserved], file);
        else fwrite(text, 1, n, file);
    }
}

/* About how wide so many characters of a text are, in pixels; rather too much than too little. */
static inline double draw_width(const char *text, double size, size_t most) {
    static const char narrow[] = "ijl.,:;|'!()[]ft /-", broad[] = "mwMW@%";
    const char *end = text ? text + strlen(text) : text;
    double wide = 0;
    uint32_t c;
    for (size_t n; text < end && most--; text += n) {
        n = text_decode(text, (size_t)(end - text), &c);
        wide += c >= 0x1100                                ? 1.05
                : c && c < 128 && strchr(narrow, (int)c)   ? 0.39
                : c && c < 128 && strchr(broad, (int)c)    ? 0.97
                : c >= 'A' && c <= 'Z'                     ? 0.72
                                                           : 0.63;
    }
    return (text < end ? wide + 1 : wide) * size;
}

/* Writes a text at (x, y), of a long one so many characters, and all of it where one points. anchor: start,
   middle or end; more: further attributes, each behind a blank. */
static inline void draw_name(const drawing *d, double x, double y, const char *anchor, const char *more,
                             const char *text, size_t most) {
    fprintf(d->file, "<text x='%.1f' y='%.1f' text-anchor='%s'%s>", x, y, anchor, more);
    draw_escaped(d->file, text, most);
    if (text && strlen(text) > most) {
        fputs("<title>", d->file);
        draw_escaped(d->file, text, 1000);
        fputs("</title>", d->file);
    }
    fputs("</text>\n", d->file);
}

/* The same as printf. */
#ifdef __GNUC__
__attribute__((format(printf, 6, 7)))
#endif
static inline void draw_text(const drawing *d, double x, double y, const char *anchor, const char *more,
                             const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    draw_name(d, x, y, anchor, more, text, 200);
}

/* Writes a text in lines no wider than that, broken at blanks; returns their height. d NULL: only that. */
static inline double draw_lines(const drawing *d, double x, double y, double wide, double size,
                                const char *more, const char *text) {
    char line[512];
    double high = 0;
    while (text && *text) {
        size_t n = strcspn(text, " "), next;
        for (; text[n]; n = next) { /* one word more, while it fits */
            next = n + 1 + strcspn(text + n + 1, " ");
            snprintf(line, sizeof line, "%.*s", (int)(next < sizeof line ? next : sizeof line - 1), text);
            if (next >= sizeof line || draw_width(line, size, next) > wide) break;
        }
        snprintf(line, sizeof line, "%.*s", (int)(n < sizeof line ? n : sizeof line - 1), text);
        high += size * 1.4;
        if (d) draw_name(d, x, y + high - size * 0.4, "start", more, line, 160);
        text += n + (text[n] == ' ');
    }
    return high;
}

/* ---- Shapes ---- */

/* Begins a drawing of that size in pixels on a white sheet; in a page on what is there. */
static inline void draw_open(const drawing *d, double wide, double high, const char *title,
                             const char *description) {
    fprintf(d->file,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' viewBox='0 0 %.0f %.0f' "
            "role='img' aria-labelledby='draw%u-title draw%u-desc' font-family='sans-serif' "
            "font-size='12px' fill='%s'>\n<title id='draw%u-title'>",
            wide, high, wide, high, d->id, d->id, draw_colour(d, DRAW_INK), d->id);
    draw_escaped(d->file, title, 200);
    fprintf(d->file, "</title>\n<desc id='draw%u-desc'>", d->id);
    draw_escaped(d->file, description, 4000);
    fputs("</desc>\n", d->file);
    if (!d->html)
        fprintf(d->file, "<rect width='100%%' height='100%%' fill='%s'/>\n", draw_colour(d, DRAW_SHEET));
}

/* Ends it; says whether all of it arrived. */
static inline int draw_close(const drawing *d) {
    fputs("</svg>\n", d->file);
    return !fflush(d->file) && !ferror(d->file);
}

/* A straight line; dash as SVG has it, or "". */
static inline void draw_line(const drawing *d, double x0, double y0, double x1, double y1, const char *colour,
                             double wide, const char *dash) {
    fprintf(d->file, "<path d='M%.1f %.1fL%.1f %.1f' fill='none' stroke='%s' stroke-width='%g'", x0, y0, x1,
            y1, colour, wide);
    if (*dash) fprintf(d->file, " stroke-dasharray='%s'", dash);
    fputs("/>\n", d->file);
}

/* A rectangle; fill and stroke are colours or "none". */
static inline void draw_rect(const drawing *d, double x, double y, double wide, double high, const char *fill,
                             const char *stroke) {
    fprintf(d->file, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s' stroke='%s'/>\n", x, y,
            wide, high, fill, stroke);
}

/* ---- Looks: a colour, a dash and a mark each ---- */

enum { DRAW_LOOKS = 32 }; /* numbered from 1; after eight the dash is another, and the mark of a colour */
#define DRAW_RULE "9 3 2 3" /* the dash of rules */

static inline int draw_look_colour(int look) { return DRAW_SERIES + (look - 1) % 8; }

static inline const char *draw_look_dash(int look) {
    static const char *const dashes[4] = {"", "6 3", "2 3", "8 3 2 3 2 3"};
    return dashes[(look - 1) / 8 % 4];
}

/* The mark of a look, about r pixels around (x, y). */
static inline void draw_mark(const drawing *d, int look, double x, double y, double r) {
    static const char *const shapes[8] = {
        "m-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z", "m-.9-.9h1.8v1.8h-1.8z", "m0-1.2l1.1 2h-2.2z",
        "m0-1.3l1.1 1.3-1.1 1.3-1.1-1.3z", "m0 1.2l1.1-2h-2.2z", "m-.9-.9l1.8 1.8m0-1.8l-1.8 1.8",
        "m-1.2 0h2.4m-1.2-1.2v2.4", "m-1.3-.5h2.6v1h-2.6z"};
    int turn = (look - 1) / 8 % 4, shape = (look - 1 + 3 * turn) % 8;
    const char *colour = draw_colour(d, draw_look_colour(look));
    fprintf(d->file, "<path transform='translate(%.1f %.1f) scale(%g)' d='M0 0%s' fill='%s' stroke='%s' "
            "stroke-width='%.2g'/>\n", x, y, r, shapes[shape], turn % 2 ? draw_colour(d, DRAW_SHEET) : colour,
            colour, 1.6 / r);
}

/* ---- Axes ---- */

enum { CHART_TICKS = 24 };

/* 1, 2 or 5 times a power of ten: the distance of at most so many ticks over a span. */
static inline double tick_of(double span, double ticks) {
    double power = pow(10, floor(log10(span / ticks))), f = span / ticks / power;
    return power * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10);
}

/* An axis on the sheet. */
typedef struct chart_scale {
    double low, high;     /* its ends, logarithms where it is logarithmic */
    double start, length; /* pixels: where `low` is, and from there to `high` */
    int log, whole;       /* whole: there are whole numbers alone */
    size_t n;
    struct { double at; char label[32]; } ticks[CHART_TICKS];
} chart_scale;

/* Is this number shown on such an axis? */
static inline int chart_shows(int log, double v) { return fabs(v) <= 1e290 && !(log && !(v > 0)); }

/* Where a number is, in pixels. */
static inline double chart_place(const chart_scale *s, double v) {
    return s->start + s->length * (((s->log ? log(v) : v) - s->low) / (s->high - s->low));
}

static inline double series_at(const chart_series *s, size_t i) { return s->at ? s->at[i] : (double)i; }

/* Where the stacked bar of series k at its point i begins. */
static inline double chart_below(const chart *c, size_t k, size_t i) {
    double sum = 0;
    for (const chart_series *s = c->series; s < c->series + k; s++)
        if (s->mark == CHART_STACK && i < s->n && s->values[i] > 0) sum += s->values[i];
    return sum;
}

/* Where the bar or point number i of series k ends. */
static inline double chart_value(const chart *c, size_t k, size_t i) {
    const chart_series *s = &c->series[k];
    if (s->mark != CHART_STACK) return s->values[i];
    return s->values[i] >= 0 ? chart_below(c, k, i) + s->values[i] : NAN;
}

static inline void chart_reach(int log, double v, double *low, double *high) {
    if (chart_shows(log, v)) *low = fmin(*low, v), *high = fmax(*high, v);
}

/* The least and the largest number on an axis (0: positions, 1: values). */
static inline void chart_range(const chart *c, int values, double *low, double *high) {
    int log = values ? c->y.log : c->x.log;
    *low = INFINITY, *high = -INFINITY;
    for (size_t k = 0; k < c->n; k++) {
        const chart_series *s = &c->series[k];
        for (size_t i = 0; i < s->n; i++) {
            chart_reach(log, values ? chart_value(c, k, i) : series_at(s, i), low, high);
            if (values && s->low && s->high)
                chart_reach(log, s->low[i], low, high), chart_reach(log, s->high[i], low, high);
        }
        if (values && s->mark >= CHART_BARS) chart_reach(log, 0, low, high);
    }
    for (const chart_rule *r = c->rules; r < c->rules + c->n_rules; r++)
        if ((r->upright != 0) != values) chart_reach(log, r->at, low, high);
}

/* A number of an axis whose largest is `most` and whose ticks are `tick` apart. */
static inline void chart_number(char label[32], double v, double most, double tick) {
    int decimals = (int)fmax(0, -floor(log10(tick) + 1e-9)), digits;
    char *e;
    if (fabs(v) < tick * 1e-6) snprintf(label, 32, "0");
    else if (most < 1e7 && tick > 9e-7) snprintf(label, 32, "%.*f", decimals, v);
    else {
        digits = (int)floor(log10(fabs(v)) + 1e-9) - (int)floor(log10(tick) + 1e-9);
        snprintf(label, 32, "%.*e", digits < 0 ? 0 : digits > 16 ? 16 : digits, v);
        if ((e = strchr(label, 'e')) != NULL) snprintf(e, 8, "e%d", atoi(e + 1));
    }
}

/* Ticks at whole steps, at most `most` of them. */
static inline void chart_ticks(chart_scale *s, double low, double high, double most) {
    double tick = fmax(s->whole, tick_of(high - low, most)), k = ceil(low / tick - 1e-6);
    for (s->n = 0; k * tick <= high + tick * 1e-6 && s->n < CHART_TICKS; k++, s->n++) {
        s->ticks[s->n].at = k * tick;
        chart_number(s->ticks[s->n].label, k * tick, fmax(fabs(low), fabs(high)), tick);
    }
}

/* Ticks at every `step`th power of the base; with 2 and 5 times them (`parts` 3) or without (1). */
static inline void chart_power_ticks(chart_scale *s, double base, double step, int parts) {
    static const double times[3] = {1, 2, 5};
    s->n = 0;
    for (double e = floor(s->low / log(base) / step) * step; e <= s->high / log(base) + 1e-9; e += step)
        for (int p = 0; p < parts && s->n < CHART_TICKS; p++) {
            double v = times[p] * pow(base, e);
            if (log(v) < s->low - 1e-9 || log(v) > s->high + 1e-9) continue;
            s->ticks[s->n].at = v;
            if (v >= 1e-4 && v < 1e7) snprintf(s->ticks[s->n++].label, 32, "%.10g", v);
            else chart_number(s->ticks[s->n++].label, v, INFINITY, base == 2 ? v / 1000 : v);
        }
}

/* Ticks of a logarithmic axis, about `most` of them: at powers; of ten, if there are few, also between them;
   if there are no two, at whole steps. */
static inline void chart_log_ticks(chart_scale *s, double base, double most) {
    double powers = (s->high - s->low) / log(base), step = fmax(1, ceil(powers / most));
    int parts = base == 10 && powers * 3 <= most ? 3 : 1;
    for (s->n = 0; s->n < 2 && step >= 1; step--) chart_power_ticks(s, base, step, parts);
    for (; s->n < 2 && most < CHART_TICKS; most++) chart_ticks(s, exp(s->low), exp(s->high), most);
}

enum { CHART_NAME = 40, LEGEND_NAME = 48 }; /* so many characters of a name show */

/* How wide the widest name or number of an axis is. */
static inline double chart_widest(const chart_axis *a, const chart_scale *s) {
    double widest = 0;
    for (size_t i = 0; i < (a->names ? a->n_names : s->n); i++)
        widest = fmax(widest, draw_width(a->names ? a->names[i] : s->ticks[i].label, 12, CHART_NAME));
    return widest;
}

/* As many ticks as their labels, side by side (`across`) or one above another, leave room for. */
static inline void chart_choose_ticks(chart_scale *s, const chart_axis *a, int across) {
    double room = fabs(s->length);
    for (int most = across ? 10 : (int)fmin(8, fmax(2, room / 24)); most > 1; most--) {
        if (a->log) chart_log_ticks(s, a->log, most);
        else chart_ticks(s, s->low, s->high, most);
        if (!across || (double)s->n * (chart_widest(a, s) + 14) <= room) return;
    }
}

/* Makes room around what an axis holds: a single number gets some on both sides, lines and bars end at whole
   ticks, everything else a little beyond. */
static inline void chart_widen(chart_scale *s, const chart *c, int values) {
    double span = s->high - s->low, large = fmax(fabs(s->low), fabs(s->high)), pad, tick;
    int bars = 0;
    for (size_t k = 0; k < c->n; k++) bars |= c->series[k].mark >= CHART_BARS;
    if (span <= fmax(large * 1e-12, 1e-290)) {
        pad = s->log ? log(2) : large > 1e-290 ? large / 2 : 0.5;
        if (bars && !values) pad = 0.6;
        s->low -= pad, s->high += pad;
    } else if (!values || s->log || (c->flat && !bars)) {
        pad = span * (values ? 0.06 : bars ? 0.06 + 0.5 / fmax(1, (double)c->series->n) : 0.02);
        s->low -= pad, s->high += pad;
    } else {
        tick = tick_of(span, 6);
        s->low = floor(s->low / tick + 1e-6) * tick, s->high = ceil(s->high / tick - 1e-6) * tick;
    }
}

/* Are all positions whole numbers, as layers and steps are? */
static inline int chart_counts(const chart *c) {
    for (const chart_series *s = c->series; s < c->series + c->n; s++)
        for (size_t i = 0; s->at && i < s->n; i++)
            if (isfinite(s->at[i]) && floor(s->at[i]) < s->at[i]) return 0;
    return 1;
}

/* The axis over what is drawn, from pixel `start` on. */
static inline void chart_scale_make(chart_scale *s, const chart *c, int values, double start, double length) {
    const chart_axis *a = values ? &c->y : &c->x;
    memset(s, 0, sizeof *s);
    s->start = start, s->length = length, s->log = a->log, s->whole = !values && chart_counts(c);
    chart_range(c, values, &s->low, &s->high);
    if (a->most > a->least) s->low = a->least, s->high = a->most;
    if (!(s->low <= s->high)) s->low = a->log ? 1 : 0, s->high = a->log ? 10 : 1;
    if (a->log) s->low = log(s->low), s->high = log(s->high);
    if (a->names) s->low = -0.5, s->high = (double)(a->n_names ? a->n_names : 1) - 0.5;
    else if (!(a->most > a->least)) chart_widen(s, c, values);
    if (!a->names) chart_choose_ticks(s, a, values == (c->flat != 0));
}

/* ---- A chart ---- */

/* A chart while it is drawn: its axes, its plot on the sheet. */
typedef struct chart_plot {
    const drawing *d;
    const chart *c;
    chart_scale at, values, also; /* also: the values in their second unit */
    double x, y, wide, high;
} chart_plot;

/* Room that a chart needs around its plot, in pixels. */
typedef struct chart_room { double left, top, right, bottom; } chart_room;

static inline chart_plot chart_plot_make(const drawing *d, const chart *c, double x, double y, double wide,
                                         double high) {
    chart_plot p;
    p.d = d, p.c = c, p.x = x, p.y = y, p.wide = wide, p.high = high;
    chart_scale_make(&p.at, c, 0, c->flat ? y : x, c->flat ? high : wide);
    chart_scale_make(&p.values, c, 1, c->flat ? x : y + high, c->flat ? wide : -high);
    p.also = p.values, p.also.n = 0;
    if (!c->y.also || !(c->y.factor > 0) || c->y.log || c->y.names || c->flat) return p;
    p.also.low *= c->y.factor, p.also.high *= c->y.factor;
    chart_choose_ticks(&p.also, &c->y, 0);
    return p;
}

static inline double chart_high(const chart *c) {
    double names = c->flat ? fmax(44, (double)c->x.n_names * 22) : 0;
    return c->high > 0 ? c->high : c->flat && c->x.names ? names : 300;
}

/* Are the names below the plot turned, because side by side they would not fit? */
static inline int chart_turned(const chart *c, double wide) {
    return !c->flat && c->x.names && c->x.n_names &&
           chart_widest(&c->x, NULL) + 8 > wide / (double)c->x.n_names;
}

/* A label upright beside a low plot gets a second line for its unit. */
static inline const char *chart_unit(const chart_axis *a, double high) {
    return a->label && draw_width(a->label, 12, 200) > high + 40 ? strstr(a->label, " (") : NULL;
}

static inline chart_room chart_margins(const chart *c, double wide, double high) {
    chart_plot p = chart_plot_make(NULL, c, 0, 0, wide, high);
    const chart_axis *side = c->flat ? &c->x : &c->y, *below = c->flat ? &c->y : &c->x;
    double names = chart_widest(side, c->flat ? &p.at : &p.values), turned;
    chart_room room = {names + 10, 8, 14, 22};
    room.left += !side->label ? 0 : chart_unit(side, high) ? 35 : 20;
    room.top += (c->title ? 20 : 0) + (c->subtitle ? 17 : 0);
    if (chart_turned(c, wide)) {
        turned = chart_widest(below, NULL);
        room.bottom += turned * 0.6;
        room.left = fmax(room.left, turned * 0.8 - wide / (double)below->n_names / 2 + 4);
    }
    room.bottom += below->label ? 20 : 0;
    if (p.also.n) room.right += chart_widest(&c->y, &p.also) + 20;
    return room;
}

/* The lines and labels of an axis' ticks, or its names. */
static inline void chart_axis_ticks(const chart_plot *p, const chart_axis *a, const chart_scale *s,
                                    int across) {
    const char *grid = draw_colour(p->d, DRAW_GRID), *soft = draw_colour(p->d, DRAW_SOFT);
    int turned = across && chart_turned(p->c, p->wide);
    double bottom = p->y + p->high;
    char more[128];
    for (size_t i = 0; i < (a->names ? a->n_names : s->n); i++) {
        const char *label = a->names ? a->names[i] : s->ticks[i].label;
        double at = chart_place(s, a->names ? (double)i : s->ticks[i].at);
        int n = snprintf(more, sizeof more, " fill='%s'", soft);
        if (turned)
            snprintf(more + n, sizeof more - (size_t)n, " transform='rotate(-37 %.1f %.1f)'", at,
                     bottom + 14);
        if (!a->names && across) draw_line(p->d, at, p->y, at, bottom, grid, 1, "");
        if (!a->names && !across) draw_line(p->d, p->x, at, p->x + p->wide, at, grid, 1, "");
        if (!across) draw_name(p->d, p->x - 7, at + 4, "end", more, label, CHART_NAME);
        else if (turned) draw_name(p->d, at, bottom + 14, "end", more, label, CHART_NAME);
        else draw_name(p->d, at, bottom + 17, "middle", more, label, CHART_NAME);
    }
}

/* An axis: its ticks, and its label below the plot or upright at its left. */
static inline void chart_axis_draw(const chart_plot *p, int values) {
    const chart_axis *a = values ? &p->c->y : &p->c->x;
    const chart_scale *s = values ? &p->values : &p->at;
    const char *unit = chart_unit(a, p->high);
    double widest = chart_widest(a, s), x = p->x - widest - 16, y = p->y + p->high / 2;
    int across = values == (p->c->flat != 0);
    char more[96], first[200];
    chart_axis_ticks(p, a, s, across);
    if (!a->label) return;
    if (across) {
        y = p->y + p->high + (chart_turned(p->c, p->wide) ? 32 + widest * 0.55 : 38);
        draw_name(p->d, p->x + p->wide / 2, y, "middle", "", a->label, 120);
        return;
    }
    snprintf(more, sizeof more, " transform='rotate(-90 %.1f %.1f)'", x, y);
    if (unit) draw_name(p->d, x, y, "middle", more, unit + 1, 60);
    snprintf(first, sizeof first, "%.*s", (int)(unit ? unit - a->label : 199), a->label);
    draw_name(p->d, x, y - (unit ? 15 : 0), "middle", more, first, 120);
}

/* The second unit of the values. */
static inline void chart_also_draw(const chart_plot *p) {
    double x = p->x + p->wide + 7, y = p->y + p->high / 2;
    char more[96];
    for (size_t i = 0; i < p->also.n; i++) {
        snprintf(more, sizeof more, " fill='%s'", draw_colour(p->d, DRAW_SOFT));
        double at = chart_place(&p->also, p->also.ticks[i].at);
        draw_line(p->d, x - 7, at, x - 3, at, draw_colour(p->d, DRAW_AXIS), 1, "");
        draw_name(p->d, x, at + 4, "start", more, p->also.ticks[i].label, CHART_NAME);
    }
    x += chart_widest(&p->c->y, &p->also) + 14;
    snprintf(more, sizeof more, " transform='rotate(-90 %.1f %.1f)'", x, y);
    if (p->also.n) draw_name(p->d, x, y, "middle", more, p->c->y.also, 120);
}

static inline int series_look(const chart *c, const chart_series *s) {
    return s->look > 0 ? (s->look - 1) % DRAW_LOOKS + 1 : (int)((size_t)(s - c->series) % DRAW_LOOKS) + 1;
}

static inline const char *look_colour(const drawing *d, int look) {
    return draw_colour(d, draw_look_colour(look));
}

/* Where a position and a value meet; 0 where nothing does. */
static inline int chart_point(const chart_plot *p, double at, double value, double *x, double *y) {
    double u, v;
    if (!chart_shows(p->at.log, at) || !chart_shows(p->values.log, value)) return 0;
    u = chart_place(&p->at, at), v = chart_place(&p->values, value);
    *x = p->c->flat ? v : u, *y = p->c->flat ? u : v;
    return fabs(u) < 1e6 && fabs(v) < 1e6;
}

/* The ends of the interval of a point, cut at the bottom of a logarithmic axis; 0 where there is none. */
static inline int chart_ends(const chart_plot *p, const chart_series *s, size_t i, double ends[2]) {
    if (!s->low || !s->high || isnan(s->values[i])) return 0;
    ends[0] = s->low[i], ends[1] = s->high[i];
    if (p->values.log && ends[1] > 0 && ends[0] <= 0) ends[0] = exp(p->values.low);
    return chart_shows(p->values.log, ends[0]) && chart_shows(p->values.log, ends[1]);
}

/* The interval of a point as a line with two ends. */
static inline void chart_interval(const chart_plot *p, const chart_series *s, size_t i, double at,
                                  const char *colour) {
    double x[2], y[2], ends[2], dx = p->c->flat ? 0 : 4, dy = p->c->flat ? 4 : 0;
    if (!chart_ends(p, s, i, ends) || !chart_point(p, at, ends[0], &x[0], &y[0]) ||
        !chart_point(p, at, ends[1], &x[1], &y[1])) return;
    fprintf(p->d->file, "<path class='interval' d='M%.1f %.1fL%.1f %.1f", x[0], y[0], x[1], y[1]);
    for (int e = 0; e < 2; e++)
        fprintf(p->d->file, "M%.1f %.1fL%.1f %.1f", x[e] - dx, y[e] - dy, x[e] + dx, y[e] + dy);
    fprintf(p->d->file, "' fill='none' stroke='%s' stroke-width='1.5'/>\n", colour);
}

/* The intervals of many points as a band, broken where one is missing. */
static inline void chart_band(const chart_plot *p, const chart_series *s, const char *colour) {
    double x, y, ends[2];
    fprintf(p->d->file, "<path class='interval' fill='%s' fill-opacity='.18' d='M0 0", colour);
    for (size_t from = 0, to, i; from < s->n; from = to + 1) {
        for (to = from; to < s->n && chart_ends(p, s, to, ends); to++)
            if (chart_point(p, series_at(s, to), ends[1], &x, &y))
                fprintf(p->d->file, "%c%.1f %.1f", to > from ? 'L' : 'M', x, y);
        for (i = to; i-- > from;)
            if (chart_ends(p, s, i, ends) && chart_point(p, series_at(s, i), ends[0], &x, &y))
                fprintf(p->d->file, "L%.1f %.1f", x, y);
        if (to > from) fputc('z', p->d->file);
    }
    fputs("'/>\n", p->d->file);
}

/* The line of a series, broken where a point is missing; a point between two gaps is a dot. */
static inline void chart_line(const chart_plot *p, const chart_series *s, int look) {
    double x, y;
    int open = 0;
    fprintf(p->d->file, "<path fill='none' stroke-linejoin='round' stroke-linecap='round' stroke='%s' "
            "stroke-width='%g'", look_colour(p->d, look), s->bold ? 3.2 : s->n > 300 ? 1.1 : 1.6);
    if (*draw_look_dash(look)) fprintf(p->d->file, " stroke-dasharray='%s'", draw_look_dash(look));
    fputs(" d='M0 0", p->d->file);
    for (size_t i = 0; i < s->n; i++) {
        int there = chart_point(p, series_at(s, i), s->values[i], &x, &y);
        if (there) fprintf(p->d->file, open ? "L%.1f %.1f" : "M%.1f %.1fh0", x, y);
        open = there;
    }
    fputs("'/>\n", p->d->file);
}

enum { CHART_TOLD = 200 }; /* series of no more points say their numbers where one points */

/* The numbers of a point. */
static inline void chart_tell(const chart_plot *p, const chart_series *s, size_t i) {
    double at = series_at(s, i);
    int named = p->c->x.names && at >= 0 && at < (double)p->c->x.n_names;
    fputs("<title>", p->d->file);
    if (named) draw_escaped(p->d->file, p->c->x.names[(size_t)at], 80), fputs(": ", p->d->file);
    else fprintf(p->d->file, "%.6g: ", at);
    fprintf(p->d->file, "%.6g", s->values[i]);
    if (s->low && s->high) fprintf(p->d->file, ", %.6g to %.6g", s->low[i], s->high[i]);
    fputs("</title>\n", p->d->file);
}

/* Points with their intervals; along a line of many, marks at a few, which differ from line to line. */
static inline void chart_marks(const chart_plot *p, const chart_series *s, int look) {
    size_t every = s->mark == CHART_LINES && s->n > 40 ? s->n / 8 : 1, i;
    double x, y;
    if (every > 1 && s->low && s->high) chart_band(p, s, look_colour(p->d, look));
    for (i = every > 1 ? every * (size_t)(look * 3 % 8) / 8 : 0; i < s->n; i += every) {
        if (!chart_point(p, series_at(s, i), s->values[i], &x, &y)) continue;
        fputs("<g>", p->d->file);
        if (s->mark == CHART_POINTS && s->n <= CHART_TOLD) chart_tell(p, s, i);
        if (every == 1) chart_interval(p, s, i, series_at(s, i), look_colour(p->d, look));
        draw_mark(p->d, look, x, y, s->mark == CHART_POINTS ? 4.2 : 3);
        fputs("</g>\n", p->d->file);
    }
}

/* The bars of series k: beside one another (number `slot` of `slots`), or stacked, with their numbers. */
static inline void chart_bars(const chart_plot *p, size_t k, size_t slot, size_t slots) {
    const chart_series *s = &p->c->series[k];
    const char *fill = look_colour(p->d, series_look(p->c, s)), *sheet = draw_colour(p->d, DRAW_SHEET);
    double slice = fabs(p->at.length) / (p->at.high - p->at.low), x[2], y[2], from, at;
    double size = fmin(fmax(1, slice * 0.84 / (double)slots), 60);
    char more[64];
    snprintf(more, sizeof more, " fill='%s' font-weight='bold'", sheet);
    for (size_t i = 0; i < s->n; i++) {
        at = series_at(s, i) + ((double)slot + 0.5 - (double)slots / 2) * size / slice;
        from = s->mark == CHART_STACK ? chart_below(p->c, k, i) : 0;
        if (p->values.log && !(from > 0)) from = exp(p->values.low);
        if (!chart_point(p, at, from, &x[0], &y[0]) ||
            !chart_point(p, at, chart_value(p->c, k, i), &x[1], &y[1])) continue;
        fputs("<g>", p->d->file);
        if (s->n <= CHART_TOLD) chart_tell(p, s, i);
        draw_rect(p->d, p->c->flat ? fmin(x[0], x[1]) : x[0] - size / 2,
                  p->c->flat ? y[0] - size / 2 : fmin(y[0], y[1]), p->c->flat ? fabs(x[1] - x[0]) : size,
                  p->c->flat ? size : fabs(y[1] - y[0]), fill, sheet);
        fputs("</g>\n", p->d->file);
        chart_interval(p, s, i, at, draw_colour(p->d, DRAW_INK));
        if (s->mark == CHART_STACK && p->c->flat && fabs(x[1] - x[0]) > 26 && size > 11)
            draw_text(p->d, (x[0] + x[1]) / 2, y[0] + 4, "middle", more, "%.4g", s->values[i]);
    }
}

static inline void chart_rules(const chart_plot *p) {
    const char *ink = draw_colour(p->d, DRAW_INK);
    for (const chart_rule *r = p->c->rules; r < p->c->rules + p->c->n_rules; r++) {
        const chart_scale *s = r->upright ? &p->at : &p->values;
        double at = chart_shows(s->log, r->at) ? chart_place(s, r->at) : NAN;
        if ((r->upright != 0) != p->c->flat) {
            if (at >= p->x - 1 && at <= p->x + p->wide + 1)
                draw_line(p->d, at, p->y, at, p->y + p->high, ink, 1.2, DRAW_RULE);
        } else if (at >= p->y - 1 && at <= p->y + p->high + 1)
            draw_line(p->d, p->x, at, p->x + p->wide, at, ink, 1.2, DRAW_RULE);
    }
}

/* Everything inside of the plot: bars, rules, lines, points. */
static inline void chart_series_draw(const chart_plot *p) {
    const chart *c = p->c;
    size_t slots = 0, slot = 0, stacks = 0;
    double least, most;
    chart_range(c, 1, &least, &most);
    if (!(least <= most))
        draw_name(p->d, p->x + p->wide / 2, p->y + p->high / 2, "middle", "", "nothing to show", 20);
    for (size_t k = 0; k < c->n; k++)
        slots += c->series[k].mark == CHART_BARS, stacks |= c->series[k].mark == CHART_STACK;
    for (size_t k = 0; k < c->n; k++) {
        if (c->series[k].mark == CHART_BARS) chart_bars(p, k, slot++, slots + stacks);
        if (c->series[k].mark == CHART_STACK) chart_bars(p, k, slots, slots + 1);
    }
    chart_rules(p);
    for (const chart_series *s = c->series; s < c->series + c->n; s++) {
        if (s->mark == CHART_LINES) chart_line(p, s, series_look(c, s));
        if (s->mark <= CHART_POINTS) chart_marks(p, s, series_look(c, s));
    }
}

/* Draws a chart whose plot begins at (x, y); around it goes what chart_margins says. */
static inline void chart_draw(drawing *d, const chart *c, double x, double y, double wide, double high) {
    chart_plot p = chart_plot_make(d, c, x, y, wide, high);
    if (c->title)
        draw_name(d, x, y - 10 - (c->subtitle ? 17 : 0), "start", " font-weight='bold'", c->title, 100);
    if (c->subtitle) draw_name(d, x, y - 10, "start", "", c->subtitle, 160);
    chart_axis_draw(&p, 0), chart_axis_draw(&p, 1), chart_also_draw(&p);
    draw_rect(d, x, y, wide, high, "none", draw_colour(d, DRAW_AXIS));
    fprintf(d->file, "<clipPath id='draw%u-clip%u'><rect x='%.1f' y='%.1f' width='%.1f' height='%.1f'/>"
            "</clipPath><g clip-path='url(#draw%u-clip%u)'>\n", d->id, d->clips, x - 5, y - 5, wide + 10,
            high + 10, d->id, d->clips);
    chart_series_draw(&p);
    fputs("</g>\n", d->file);
    d->clips++;
}

/* ---- Legends ---- */

static inline int series_named(const chart_series *s) { return s->name && *s->name; }

static inline double series_last(const chart_series *s) {
    for (size_t i = s->n; i-- > 0;)
        if (isfinite(s->values[i])) return s->values[i];
    return -INFINITY;
}

/* Does series a go before b in a legend? Lines as they end, from above; everything else as it comes. */
static inline int series_before(const chart_series *a, const chart_series *b) {
    double x = series_last(a), y = series_last(b);
    if (a->mark != CHART_LINES || b->mark != CHART_LINES || !(x < y || x > y)) return a < b;
    return x > y;
}

/* The k-th series of a legend, of one that stands for many charts as they come; NULL behind the last one. */
static inline const chart_series *chart_ranked(const chart *c, size_t k, int many) {
    const chart_series *a, *b, *end = c->series + c->n;
    size_t rank;
    for (a = c->series; a < end; a++) {
        if (!series_named(a)) continue;
        for (rank = 0, b = c->series; b < end; b++)
            rank += series_named(b) && b != a && (many ? b < a : series_before(b, a));
        if (rank == k) return a;
    }
    return NULL;
}

/* The names in a chart's legend, and how wide the widest entry is. */
static inline size_t legend_size(const chart *c, double *wide) {
    size_t n = 0, k;
    *wide = 0;
    for (k = 0; k < c->n; k++)
        if (series_named(&c->series[k]))
            n++, *wide = fmax(*wide, draw_width(c->series[k].name, 12, LEGEND_NAME));
    for (k = 0; k < c->n_rules; k++)
        if (c->rules[k].name) n++, *wide = fmax(*wide, draw_width(c->rules[k].name, 12, LEGEND_NAME));
    *wide += 35 + 16;
    return n;
}

/* How a series, or with NULL a rule, looks, 28 wide at (x, y). */
static inline void legend_sample(const drawing *d, const chart *c, const chart_series *s, double x,
                                 double y) {
    int look = s ? series_look(c, s) : 1;
    const char *colour = look_colour(d, look);
    if (!s) draw_line(d, x, y, x + 28, y, draw_colour(d, DRAW_INK), 1.2, DRAW_RULE);
    else if (s->mark >= CHART_BARS) draw_rect(d, x + 7, y - 6, 14, 12, colour, "none");
    else if (s->mark == CHART_LINES)
        draw_line(d, x, y, x + 28, y, colour, s->bold ? 3.2 : 1.6, draw_look_dash(look));
    if (s && s->mark <= CHART_POINTS) draw_mark(d, look, x + 14, y, s->mark == CHART_POINTS ? 4.2 : 3);
}

/* A legend entry at (x, y): a series, or NULL and a rule. */
static inline void legend_entry(const drawing *d, const chart *c, const chart_series *s, const chart_rule *r,
                                double x, double y) {
    legend_sample(d, c, s, x, y);
    draw_name(d, x + 35, y + 4, "start", s && s->bold ? " font-weight='bold'" : "", s ? s->name : r->name,
              LEGEND_NAME);
}

enum { LEGEND_LINE = 18 };

/* Draws a legend from (x, y) on in that many columns; returns its height. d NULL: only that. */
static inline double legend_draw(const drawing *d, const chart *c, double x, double y, size_t columns) {
    double wide;
    size_t n = legend_size(c, &wide), i = 0, k;
    const chart_series *s;
    for (k = 0; d && (s = chart_ranked(c, k, columns > 1)) != NULL; k++, i++)
        legend_entry(d, c, s, NULL, x + (double)(i % columns) * wide,
                     y + 9 + (double)(i / columns) * LEGEND_LINE);
    for (k = 0; d && k < c->n_rules; k++)
        if (c->rules[k].name)
            legend_entry(d, c, NULL, &c->rules[k], x + (double)(i % columns) * wide,
                         y + 9 + (double)(i / columns) * LEGEND_LINE), i++;
    return (double)((n + columns - 1) / columns) * LEGEND_LINE;
}

/* ---- A figure ---- */

enum { FIGURE_EDGE = 16 };

static inline size_t figure_columns(const figure *f) { return f->columns ? f->columns : 1; }

static inline int figure_whole(const figure *f, const chart *c) { return c->whole || figure_columns(f) == 1; }

static inline double figure_wide(const figure *f) {
    return f->wide > 0 ? f->wide : figure_columns(f) > 1 ? 1060 : 760;
}

/* Has the chart, which is a row of its own, a legend beside it? */
static inline int figure_beside(const figure *f, const chart *c) {
    double wide;
    return figure_whole(f, c) && !f->apart && legend_size(c, &wide) > 1;
}

/* How wide the legends beside charts are; 0 where each has one series alone. */
static inline double figure_side(const figure *f) {
    double side = 0, wide;
    for (const chart *c = f->charts; c < f->charts + f->n; c++)
        if (figure_beside(f, c)) legend_size(c, &wide), side = fmax(side, wide + 4);
    return side;
}

/* A chart as it stands in the figure: a title that is above everything is not above it again. */
static inline chart figure_chart(const figure *f, const chart *c) {
    chart own = *c;
    if (!f->title && f->n == 1) own.title = own.subtitle = NULL;
    return own;
}

/* What the charts of a column, or those that are rows of their own (column -1), need at most. */
static inline chart_room figure_room(const figure *f, int column, double wide) {
    chart_room most = {0, 0, 0, 0};
    size_t in_row = 0;
    for (const chart *c = f->charts; c < f->charts + f->n; c++) {
        chart own = figure_chart(f, c);
        int whole = figure_whole(f, c), at = whole ? -1 : (int)in_row;
        chart_room room = {0, 0, 0, 0};
        in_row = whole ? 0 : (in_row + 1) % figure_columns(f);
        if (at != column) continue;
        room = chart_margins(&own, wide - 70, chart_high(c));
        most.left = fmax(most.left, room.left), most.right = fmax(most.right, room.right);
    }
    return most;
}

/* Draws a row of the figure, which begins at y; returns where it ends. d NULL: only that. */
static inline double figure_row(drawing *d, const figure *f, const chart *row, size_t n, double y) {
    int whole = figure_whole(f, row);
    double side = whole ? figure_side(f) : 0, wide = figure_wide(f) - 2 * FIGURE_EDGE - side;
    double cell = whole ? wide : wide / (double)figure_columns(f), top = 0, bottom = 0, high = 0;
    for (size_t i = 0; i < n; i++) {
        chart own = figure_chart(f, &row[i]);
        chart_room columns = figure_room(f, whole ? -1 : (int)i, cell), room;
        room = chart_margins(&own, cell - columns.left - columns.right, chart_high(&own));
        top = fmax(top, room.top), bottom = fmax(bottom, room.bottom), high = fmax(high, chart_high(&own));
    }
    if (figure_beside(f, row)) high = fmax(high, legend_draw(NULL, row, 0, 0, 1));
    for (size_t i = 0; d && i < n; i++) {
        chart own = figure_chart(f, &row[i]);
        chart_room room = figure_room(f, whole ? -1 : (int)i, cell);
        double x = FIGURE_EDGE + cell * (double)i + room.left, plot = cell - room.left - room.right;
        chart_draw(d, &own, x, y + top, plot, high);
        if (figure_beside(f, row))
            legend_draw(d, row, x + plot + room.right + 2, y + top, 1);
    }
    return y + top + high + bottom + 14;
}

/* The chart in columns whose legend stands for all of them: that with the most names. NULL: none needs it. */
static inline const chart *figure_legend(const figure *f, size_t *columns) {
    const chart *most = NULL;
    size_t names = 1, n;
    double wide;
    for (const chart *c = f->charts; c < f->charts + f->n; c++)
        if (!figure_whole(f, c) && (n = legend_size(c, &wide)) > names) names = n, most = c;
    if (!most) return NULL;
    legend_size(most, &wide);
    *columns = (size_t)fmax(1, (figure_wide(f) - 2 * FIGURE_EDGE) / wide);
    return most;
}

static inline const char *figure_title(const figure *f) {
    return f->title ? f->title : f->n && f->charts->title ? f->charts->title : "Figure";
}

/* Draws everything from top to bottom; returns how high it is. d NULL: only that. */
static inline double figure_draw(drawing *d, const figure *f) {
    double wide = figure_wide(f) - 2 * FIGURE_EDGE, y = 10;
    const char *subtitle = f->subtitle ? f->subtitle : !f->title && f->n == 1 ? f->charts->subtitle : NULL;
    size_t columns = 1, n;
    const chart *legend = figure_legend(f, &columns), *c, *end = f->charts + f->n;
    y += draw_lines(d, FIGURE_EDGE, y, wide * 0.93, 16, " font-size='16px' font-weight='bold'",
                    figure_title(f));
    y += draw_lines(d, FIGURE_EDGE, y, wide, 12, "", subtitle) + 8;
    if (legend) y += legend_draw(d, legend, FIGURE_EDGE, y, columns) + 8;
    for (c = f->charts; c < end; c += n) {
        n = 1;
        while (!figure_whole(f, c) && n < figure_columns(f) && c + n < end && !figure_whole(f, c + n)) n++;
        y = figure_row(d, f, c, n, y);
    }
    return y;
}

/* Says what a figure shows: axes, and of each series where it begins and ends. */
static inline void figure_describe(const figure *f, char *text, size_t size) {
    size_t at = 0;
    double first, last;
#define SAY(...) at += at < size ? (size_t)snprintf(text + at, size - at, __VA_ARGS__) : 0
    *text = 0;
    for (const chart *c = f->charts; c < f->charts + f->n; c++) {
        SAY("%s%s%sover %s: %s.", at ? " " : "", c->title ? c->title : "", c->title ? ", " : "",
            c->x.label ? c->x.label : "names", c->y.label ? c->y.label : "values");
        for (size_t k = 0; k < c->n; k++) {
            const chart_series *s = &c->series[k];
            if (!s->n) continue;
            first = s->values[0], last = s->values[s->n - 1];
            SAY(" %s: ", series_named(s) ? s->name : "series");
            if (c->x.names)
                for (size_t i = 0; i < s->n && i < c->x.n_names; i++)
                    SAY("%s%s %.4g", i ? ", " : "", c->x.names[i], s->values[i]);
            else
                SAY("from %.4g at %.6g to %.4g at %.6g", first, series_at(s, 0), last,
                    series_at(s, s->n - 1));
            SAY(".");
        }
    }
#undef SAY
}

static inline int figure_write(FILE *file, const figure *f) {
    drawing d = {file, f->html, f->id, 0};
    char text[3000];
    if (!f->description) figure_describe(f, text, sizeof text);
    draw_open(&d, figure_wide(f), figure_draw(NULL, f), figure_title(f),
              f->description ? f->description : text);
    figure_draw(&d, f);
    return draw_close(&d);
}

/* Writes the legend of a figure's first chart as a list of HTML, whose lines flow as the page wants; nothing
   where that is one series alone. */
static inline void legend_page(FILE *file, const figure *f) {
    const drawing d = {file, 1, f->id, 0};
    const chart *c = f->charts;
    const chart_series *s;
    double wide;
    if (legend_size(c, &wide) < 2) return;
    fputs("<ul class=\"legend\">\n", file);
    for (size_t k = 0; k < c->n + c->n_rules; k++) {
        s = chart_ranked(c, k, 0);
        const char *name = s ? s->name : k >= c->n ? c->rules[k - c->n].name : NULL;
        if (!name) continue;
        fputs("<li><svg width='28' height='14' viewBox='0 0 28 14' aria-hidden='true'>", file);
        legend_sample(&d, c, s, 0, 7);
        fputs("</svg> <span>", file), draw_escaped(file, name, 1000), fputs("</span></li>\n", file);
    }
    fputs("</ul>\n", file);
}

/* Has a picture or a table written beside `path` and then takes it there; what is no file, as /dev/stdout,
   gets it as it comes. 0: `error` says that it could not be. */
static inline int draw_save(const char *path, int (*write)(FILE *file, const void *what), const void *what,
                            char *error) {
    int mode, done = 0;
    char *target = text_replaced(path, &mode);
    size_t size = target ? strlen(target) + 40 : 0;
    char *name = (char *)malloc(size + 1);
    FILE *file = !name ? NULL : target ? text_own_file(target, name, size, mode) : fopen(path, "w");
    if (file) {
        done = write(file, what);
        done &= fclose(file) == 0;
        done = done && (!target || text_replace(name, target));
        if (!done && target) (void)remove(name);
    }
    free(name), free(target);
    return done || text_fail(error, "cannot write %s", path);
}

static inline int figure_write_any(FILE *file, const void *what) {
    return figure_write(file, (const figure *)what);
}

static inline int figure_save(const char *path, const figure *f, char *error) {
    return draw_save(path, figure_write_any, f, error);
}

static inline int chart_save(const char *path, const chart *c, char *error) {
    figure f;
    memset(&f, 0, sizeof f);
    f.charts = c, f.n = 1;
    return figure_save(path, &f, error);
}

#endif
