/* drawing.h - charts as SVG, and the pieces they consist of: the one drawing code of these programs.

   A chart has an axis of positions, an axis of values and series: lines, points or bars, with intervals if
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

   NaN, infinities, what lies beyond 1e300 and, on a logarithmic axis, what is not above 0 are gaps. */
#ifndef DRAWING_H
#define DRAWING_H

#include "text.h"

#include <math.h>

/* ---- What is drawn ---- */

enum { CHART_TICKS = 24, DRAW_LOOKS = 16 };

typedef enum chart_mark {
    CHART_LINES,  /* a line through the points, with a mark at some of them */
    CHART_POINTS, /* a mark for each point */
    CHART_BARS,   /* a bar from 0 (logarithmic: from the axis) to the value, beside those of other series */
    CHART_STACK   /* the same, where the series before ends; values are not negative */
} chart_mark;

typedef struct chart_series {
    const char *name;             /* in the legend; NULL or "": not there */
    size_t n;                     /* points */
    const double *at;             /* [n] positions; NULL: 0, 1, 2, .. */
    const double *values;         /* [n] */
    const double *low, *high;     /* [n] ends of their intervals; both NULL: there are none */
    chart_mark mark;
    int look;                     /* 1 to DRAW_LOOKS: that one (of the same series in another chart); 0: by the order */
    int bold;                     /* a thick line */
} chart_series;

typedef struct chart_axis {
    const char *label;            /* what it is, with the unit: "loss (nats a token)" */
    int log;                      /* 0, or the base whose powers are marked: 2 or 10 */
    double least, most;           /* its ends; both 0: as the data want it */
    const char *const *names;     /* [n_names] of the positions 0, 1, ..; NULL: numbers */
    size_t n_names;
} chart_axis;

/* A straight line across the chart. */
typedef struct chart_rule {
    double at;                    /* a value; with `upright` a position */
    int upright;
    const char *name;             /* in the legend; NULL: not there */
} chart_rule;

typedef struct chart {
    const char *title, *subtitle; /* a subtitle alone, without a title, is fine */
    chart_axis x, y;              /* of positions, of values */
    int flat;                     /* 1: positions run down, values to the right */
    const chart_series *series;
    size_t n;
    const chart_rule *rules;
    size_t n_rules;
    double high;                  /* of the plot in pixels; 0: 300, or what its names take */
    int whole;                    /* takes a row of the figure alone */
} chart;

typedef struct figure {
    const char *title, *subtitle; /* title NULL: those of the first chart */
    const char *description;      /* for who cannot see it; NULL: what the series say */
    const chart *charts;          /* row by row */
    size_t n, columns;            /* columns 0: 1 */
    double wide;                  /* of the sheet in pixels; 0: 760, or 1060 for more columns */
    int html;                     /* 1: to stand in an HTML page */
    unsigned id;                  /* tells the drawings of a page apart */
} figure;

/* An SVG that is being written; draw_open fills it. */
typedef struct drawing {
    FILE *file;
    int html;
    unsigned id, clips;
} drawing;

/* Writes a figure; returns whether all of it arrived. */
static inline int figure_write(FILE *file, const figure *f);
/* The same into a file of its own, which then replaces the old one: nobody sees half of it. */
static inline int figure_save(const char *path, const figure *f, char *error);
/* A figure of one chart. */
static inline int chart_save(const char *path, const chart *c, char *error);

/* ---- Colours ---- */

/* What has a colour; eight series follow DRAW_SERIES. */
enum { DRAW_INK, DRAW_SOFT, DRAW_AXIS, DRAW_GRID, DRAW_SHEET, DRAW_SERIES, DRAW_COLOURS = DRAW_SERIES + 8 };

/* A colour's value on a white sheet, in a page, and what declares it in a light and in a dark one. After Okabe
   and Ito's palette for every kind of colour vision, with 3:1 of contrast at least. */
static inline const char *draw_palette(int colour, int which) {
#define DRAW_ROW(name, light, dark) \
    {light, "var(--draw-" name "," light ")", "--draw-" name ":" light ";", "--draw-" name ":" dark ";"}
    static const char *const rows[DRAW_COLOURS][4] = {
        DRAW_ROW("ink", "#222222", "#e8e8e8"), DRAW_ROW("soft", "#595959", "#b0b4ba"),
        DRAW_ROW("axis", "#888888", "#8a8f98"), DRAW_ROW("grid", "#e2e2e2", "#33373d"),
        DRAW_ROW("sheet", "#ffffff", "#16181c"), DRAW_ROW("1", "#0072b2", "#4aa3e0"),
        DRAW_ROW("2", "#d55e00", "#f08a4b"), DRAW_ROW("3", "#009e73", "#2cc295"),
        DRAW_ROW("4", "#c0569a", "#e08cc0"), DRAW_ROW("5", "#b07d00", "#e3b341"),
        DRAW_ROW("6", "#3d9bd4", "#8fd0f5"), DRAW_ROW("7", "#222222", "#e8e8e8"),
        DRAW_ROW("8", "#7f2a56", "#c98aa9")};
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
    const char *end, *mark;
    uint32_t c;
    if (!text) return;
    end = text + strlen(text);
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
    const char *end = text ? text + strlen(text) : text;
    double wide = 0;
    uint32_t c;
    for (size_t n; text < end && most--; text += n) {
        n = text_decode(text, (size_t)(end - text), &c);
        wide += c >= 0x1100                                     ? 1.05
                : c < 128 && c && strchr("ijl.,:;|'!()[]ft /-", (int)c) ? 0.39
                : c < 128 && c && strchr("mwMW%@", (int)c)      ? 0.97
                : c >= 'A' && c <= 'Z'                          ? 0.72
                                                                : 0.63;
    }
    return wide * size;
}

#ifdef __GNUC__
__attribute__((format(printf, 6, 7)))
#endif
/* A text at (x, y); anchor: start, middle or end; more: further attributes, each behind a blank. */
static inline void draw_text(const drawing *d, double x, double y, const char *anchor, const char *more,
                             const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(d->file, "<text x='%.1f' y='%.1f' text-anchor='%s'%s>", x, y, anchor, more);
    draw_escaped(d->file, text, 200);
    fputs("</text>\n", d->file);
}

/* ---- Shapes ---- */

/* Begins a drawing of that size in pixels: a white sheet, or in a page (d->html) nothing. */
static inline void draw_open(drawing *d, double wide, double high, const char *title,
                             const char *description) {
    fprintf(d->file,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' viewBox='0 0 %.0f %.0f' "
            "role='img' aria-labelledby='draw%u-title draw%u-desc' font-family='sans-serif' font-size='12px' "
            "fill='%s'>\n<title id='draw%u-title'>",
            wide, high, wide, high, d->id, d->id, draw_colour(d, DRAW_INK), d->id);
    draw_escaped(d->file, title, 200);
    fprintf(d->file, "</title>\n<desc id='draw%u-desc'>", d->id);
    draw_escaped(d->file, description, 4000);
    fputs("</desc>\n", d->file);
    if (!d->html) fprintf(d->file, "<rect width='100%%' height='100%%' fill='%s'/>\n", draw_colour(d, DRAW_SHEET));
}

/* Ends it; says whether all of it arrived. */
static inline int draw_close(const drawing *d) {
    fputs("</svg>\n", d->file);
    return !fflush(d->file) && !ferror(d->file);
}

static inline void draw_line(const drawing *d, double x0, double y0, double x1, double y1, const char *colour,
                             double wide, const char *dash) {
    fprintf(d->file, "<path d='M%.1f %.1fL%.1f %.1f' fill='none' stroke='%s' stroke-width='%g'", x0, y0, x1, y1,
            colour, wide);
    fprintf(d->file, *dash ? " stroke-dasharray='%s'/>\n" : "/>\n", dash);
}

/* A rectangle; fill and stroke are colours or "none". */
static inline void draw_rect(const drawing *d, double x, double y, double wide, double high, const char *fill,
                             const char *stroke) {
    fprintf(d->file, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s' stroke='%s'/>\n", x, y, wide,
            high, fill, stroke);
}

/* ---- Sixteen looks: a colour, a dash and a mark each ---- */

static inline int draw_look_colour(int look) { return DRAW_SERIES + (look - 1) % 8; }

static inline const char *draw_look_dash(int look) {
    return (look - 1) / 8 % 2 ? "6 3" : "";
}

/* The mark of a look, about r pixels around (x, y). */
static inline void draw_mark(const drawing *d, int look, double x, double y, double r) {
    static const char *const shapes[8] = {
        "m-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z", "m-.9-.9h1.8v1.8h-1.8z", "m0-1.2l1.1 2h-2.2z",
        "m0-1.3l1.1 1.3-1.1 1.3-1.1-1.3z",    "m0 1.2l1.1-2h-2.2z",    "m-.9-.9l1.8 1.8m0-1.8l-1.8 1.8",
        "m-1.2 0h2.4m-1.2-1.2v2.4",           "m-1.2-.5h2.4v1h-2.4z"};
    int turn = (look - 1) / 8 % 2, shape = (look - 1 + 3 * turn) % 8;
    const char *colour = draw_colour(d, draw_look_colour(look));
    fprintf(d->file, "<path transform='translate(%.1f %.1f) scale(%g)' d='M0 0%s' fill='%s' stroke='%s' "
            "stroke-width='%g'/>", x, y, r, shapes[shape], turn ? draw_colour(d, DRAW_SHEET) : colour, colour,
            1.6 / r);
}

/* ---- Axes ---- */

/* 1, 2 or 5 times a power of ten: the distance of at most so many ticks over a span. */
static inline double tick_of(double span, double ticks) {
    double power = pow(10, floor(log10(span / ticks))), f = span / ticks / power;
    return power * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10);
}

/* An axis on the sheet. */
typedef struct chart_scale {
    double low, high;             /* its ends, logarithms where it is logarithmic */
    double start, length;         /* pixels: where `low` is, and from there to `high` */
    int log;
    size_t n;
    struct { double at; char label[32]; } ticks[CHART_TICKS];
} chart_scale;

/* Where a number is, in pixels; NAN where it is nowhere. */
static inline double chart_place(const chart_scale *s, double v) {
    if (!(fabs(v) <= 1e300) || (s->log && !(v > 0))) return NAN;
    return s->start + s->length * (((s->log ? log(v) : v) - s->low) / (s->high - s->low));
}

static inline void chart_reach(const chart_axis *a, double v, double *low, double *high) {
    if (!(fabs(v) <= 1e300) || (a->log && !(v > 0))) return;
    *low = fmin(*low, v), *high = fmax(*high, v);
}

static inline double series_at(const chart_series *s, size_t i) { return s->at ? s->at[i] : (double)i; }

/* Where the stacked bar of series k at its point i begins. */
static inline double chart_below(const chart *c, size_t k, size_t i) {
    double sum = 0;
    for (size_t s = 0; s < k; s++)
        if (c->series[s].mark == CHART_STACK && i < c->series[s].n && c->series[s].values[i] > 0)
            sum += c->series[s].values[i];
    return sum;
}

/* The least and the largest number on an axis (0: positions, 1: values). */
static inline void chart_range(const chart *c, int values, double *low, double *high) {
    const chart_axis *a = values ? &c->y : &c->x;
    *low = INFINITY, *high = -INFINITY;
    for (size_t k = 0; k < c->n; k++) {
        const chart_series *s = &c->series[k];
        for (size_t i = 0; i < s->n; i++) {
            if (!values) {
                chart_reach(a, series_at(s, i), low, high);
                continue;
            }
            chart_reach(a, s->values[i] + (s->mark == CHART_STACK ? chart_below(c, k, i) : 0), low, high);
            if (s->low && s->high) chart_reach(a, s->low[i], low, high), chart_reach(a, s->high[i], low, high);
        }
        if (values && s->mark >= CHART_BARS) chart_reach(a, 0, low, high);
    }
    for (size_t r = 0; r < c->n_rules; r++)
        if (c->rules[r].upright != values) chart_reach(a, c->rules[r].at, low, high);
}

/* A number of an axis whose largest is `most` and whose ticks are `tick` apart. */
static inline void chart_number(char label[32], double v, double most, double tick) {
    int digits = (int)fmax(0, -floor(log10(tick) + 1e-9)), first;
    char *e;
    if (fabs(v) < tick * 1e-6) snprintf(label, 32, "0");
    else if (most < 1e7 && tick >= 1e-6) snprintf(label, 32, "%.*f", digits, v);
    else {
        first = (int)floor(log10(fabs(v)) + 1e-9) - (int)floor(log10(tick) + 1e-9);
        snprintf(label, 32, "%.*e", first < 0 ? 0 : first > 16 ? 16 : first, v);
        if ((e = strchr(label, 'e')) != NULL) snprintf(e, 8, "e%d", atoi(e + 1));
    }
}

static inline void chart_tick(chart_scale *s, double at, double most, double tick) {
    if (s->n == CHART_TICKS) return;
    s->ticks[s->n].at = at;
    chart_number(s->ticks[s->n++].label, at, most, tick);
}

/* Ticks at whole steps, at most `most` of them. */
static inline void chart_ticks(chart_scale *s, double low, double high, double most) {
    double tick = tick_of(high - low, most), largest = fmax(fabs(low), fabs(high));
    s->n = 0;
    for (double k = ceil(low / tick - 1e-9); k * tick <= high + tick * 1e-9 && s->n < CHART_TICKS; k++)
        chart_tick(s, k * tick + 0, largest, tick);
}

/* Ticks at powers of the base, where there are few of ten also at 2 and 5 times these. */
static inline void chart_log_ticks(chart_scale *s, double base, double most) {
    static const double parts[3] = {1, 2, 5};
    double decades = (s->high - s->low) / log(base), step = fmax(1, ceil(decades / most)), v;
    int n = base == 10 && decades * 3 <= most + 1 ? 3 : 1;
    s->n = 0;
    for (double e = floor(s->low / log(base)) ; e <= s->high / log(base) + 1e-9; e++)
        for (int p = 0; p < n; p++) {
            v = parts[p] * pow(base, e);
            if (fmod(e, step) != 0 || log(v) < s->low - 1e-9 || log(v) > s->high + 1e-9 || s->n == CHART_TICKS) continue;
            s->ticks[s->n].at = v;
            if (v >= 1e-4 && v < 1e7) snprintf(s->ticks[s->n++].label, 32, "%.10g", v);
            else chart_number(s->ticks[s->n++].label, v, INFINITY, v);
        }
    if (s->n < 2) chart_ticks(s, exp(s->low), exp(s->high), most);
}

/* How wide the widest name or number of an axis is. */
static inline double chart_widest(const chart_axis *a, const chart_scale *s) {
    double widest = 0;
    for (size_t i = 0; a->names && i < a->n_names; i++) widest = fmax(widest, draw_width(a->names[i], 12, 40));
    for (size_t i = 0; !a->names && i < s->n; i++) widest = fmax(widest, draw_width(s->ticks[i].label, 12, 40));
    return widest;
}

/* Ticks of an axis: as many as its labels, side by side or one above another, leave room for. */
static inline void chart_choose_ticks(chart_scale *s, const chart_axis *a, int across) {
    double room = fabs(s->length);
    for (int most = across ? 10 : (int)fmin(8, fmax(2, room / 36)); most > 1; most--) {
        if (a->log) chart_log_ticks(s, a->log, most);
        else chart_ticks(s, s->low, s->high, most);
        if (!across || (double)s->n * (chart_widest(a, s) + 14) <= room) return;
    }
}

/* An axis over what is drawn, from pixel `start` on. Values end at whole ticks. */
static inline void chart_scale_make(chart_scale *s, const chart *c, int values, double start, double length) {
    const chart_axis *a = values ? &c->y : &c->x;
    int given = a->most > a->least, bars = 0;
    double tick, pad;
    memset(s, 0, sizeof *s);
    s->start = start, s->length = length, s->log = a->log;
    chart_range(c, values, &s->low, &s->high);
    for (size_t k = 0; k < c->n; k++) bars |= c->series[k].mark >= CHART_BARS;
    if (given) s->low = a->least, s->high = a->most;
    if (a->names) s->low = -0.5, s->high = (a->n_names ? (double)a->n_names : 1) - 0.5;
    if (!(s->low <= s->high)) s->low = a->log ? 1 : 0, s->high = a->log ? 10 : 1;
    if (a->log) s->low = log(s->low), s->high = log(s->high);
    pad = fmax(fabs(s->low), fabs(s->high)) * 1e-9;
    if (s->high - s->low <= fmax(pad, 1e-300)) {
        pad = a->log ? log(2) : s->high ? fabs(s->high) / 2 : 0.5; /* one number alone */
        s->low -= pad, s->high += pad;
    } else if (a->names || given) pad = 0;
    else if (a->log || !values) {
        pad = (s->high - s->low) * (values ? 0.05 : bars ? 0.6 / (double)c->series->n : 0.02);
        s->low -= pad, s->high += pad;
    } else {
        tick = tick_of(s->high - s->low, 6);
        s->low = floor(s->low / tick + 1e-9) * tick, s->high = ceil(s->high / tick - 1e-9) * tick;
    }
    if (!a->names) chart_choose_ticks(s, a, values == (c->flat != 0));
}

/* ---- A chart ---- */

/* Room that a chart needs around its plot, in pixels. */
typedef struct chart_room { double left, top, right, bottom; } chart_room;

static inline double chart_high(const chart *c) {
    double names = c->flat ? (double)c->x.n_names * 22 : 0;
    return c->high > 0 ? c->high : names > 0 ? fmax(names, 44) : 300;
}

/* Names side by side are turned where they would not fit. */
static inline int chart_turned(const chart *c, double wide) {
    return !c->flat && c->x.n_names && chart_widest(&c->x, NULL) + 8 > wide / (double)c->x.n_names;
}

static inline chart_room chart_margins(const chart *c, double wide) {
    chart_scale at, values;
    chart_room room = {0, 0, 0, 0};
    double names;
    chart_scale_make(&at, c, 0, 0, c->flat ? chart_high(c) : wide);
    chart_scale_make(&values, c, 1, 0, c->flat ? wide : chart_high(c));
    names = chart_widest(&c->x, &at);
    room.left = (c->flat ? names : chart_widest(&c->y, &values)) + 10;
    room.top = (c->title ? 20 : 0) + (c->subtitle ? 17 : 0) + 8;
    room.right = 12, room.bottom = 22;
    if (chart_turned(c, wide)) {
        room.bottom += names * 0.6;
        room.left = fmax(room.left, names * 0.8 - wide / (double)c->x.n_names / 2 + 4);
    }
    if ((c->flat ? c->x.label : c->y.label) != NULL) room.left += 20;
    if ((c->flat ? c->y.label : c->x.label) != NULL) room.bottom += 20;
    return room;
}

/* An axis, of which `across` says that it lies; the plot is at (x, y). */
static inline void chart_axis_draw(const drawing *d, const chart_axis *a, const chart_scale *s, int across,
                                   double x, double y, double wide, double high, int turned) {
    const char *grid = draw_colour(d, DRAW_GRID), *soft = draw_colour(d, DRAW_SOFT);
    char more[128];
    double at, widest = chart_widest(a, s);
    for (size_t i = 0; i < (a->names ? a->n_names : s->n); i++) {
        const char *label = a->names ? a->names[i] : s->ticks[i].label;
        at = chart_place(s, a->names ? (double)i : s->ticks[i].at);
        if (!a->names && across) draw_line(d, at, y, at, y + high, grid, 1, "");
        else if (!a->names) draw_line(d, x, at, x + wide, at, grid, 1, "");
        snprintf(more, sizeof more, " fill='%s'", soft);
        if (turned)
            snprintf(more, sizeof more, " fill='%s' transform='rotate(-37 %.1f %.1f)'", soft, at, y + high + 14);
        if (across) draw_text(d, at, y + high + (turned ? 14 : 17), turned ? "end" : "middle", more, "%s", label);
        else draw_text(d, x - 7, at + 4, "end", more, "%.40s", label);
    }
    if (!a->label) return;
    if (across) {
        draw_text(d, x + wide / 2, y + high + 38 + (turned ? widest * 0.6 : 0), "middle", "", "%s", a->label);
        return;
    }
    at = x - widest - 18;
    snprintf(more, sizeof more, " transform='rotate(-90 %.1f %.1f)'", at, y + high / 2);
    draw_text(d, at, y + high / 2, "middle", more, "%s", a->label);
}

/* The plot and the axes on the sheet, while a chart is drawn. */
typedef struct chart_plot {
    const drawing *d;
    const chart *c;
    chart_scale at, values;
    double x, y, wide, high;
} chart_plot;

static inline int series_look(const chart *c, const chart_series *s) {
    return s->look > 0 ? (s->look - 1) % DRAW_LOOKS + 1 : (int)((size_t)(s - c->series) % DRAW_LOOKS) + 1;
}

/* Where a position and a value meet; 0 where nothing does. */
static inline int chart_point(const chart_plot *p, double at, double value, double *x, double *y) {
    double u = chart_place(&p->at, at), v = chart_place(&p->values, value);
    *x = p->c->flat ? v : u, *y = p->c->flat ? u : v;
    return isfinite(u) && isfinite(v) && u > -1e6 && u < 1e6 && v > -1e6 && v < 1e6;
}

/* The interval of a point as a line with two ends. */
static inline void chart_interval(const chart_plot *p, const chart_series *s, size_t i, double at,
                                  const char *colour) {
    double x0, y0, x1, y1, low, high;
    if (!s->low || !s->high) return;
    low = s->low[i], high = s->high[i];
    if (p->values.log && high > 0 && !(low > 0)) low = exp(p->values.low);
    if (!chart_point(p, at, low, &x0, &y0) || !chart_point(p, at, high, &x1, &y1)) return;
    fprintf(p->d->file, "<path d='M%.1f %.1fL%.1f %.1f", x0, y0, x1, y1);
    fprintf(p->d->file, p->c->flat ? "M%.1f %.1fv8M%.1f %.1fv8" : "M%.1f %.1fh8M%.1f %.1fh8",
            x0 - (p->c->flat ? 0 : 4), y0 - (p->c->flat ? 4 : 0), x1 - (p->c->flat ? 0 : 4),
            y1 - (p->c->flat ? 4 : 0));
    fprintf(p->d->file, "' fill='none' stroke='%s' stroke-width='1.5'/>\n", colour);
}

/* The line of a series, broken where a point is missing; a point between two gaps is a dot. */
static inline void chart_line(const chart_plot *p, const chart_series *s, int look) {
    FILE *f = p->d->file;
    double x, y;
    int open = 0;
    fprintf(f, "<path fill='none' stroke-linejoin='round' stroke-linecap='round' stroke='%s' stroke-width='%g'",
            draw_colour(p->d, draw_look_colour(look)), s->bold ? 3 : 1.6);
    if (*draw_look_dash(look)) fprintf(f, " stroke-dasharray='%s'", draw_look_dash(look));
    fputs(" d='M0 0", f);
    for (size_t i = 0; i < s->n; i++) {
        int there = chart_point(p, series_at(s, i), s->values[i], &x, &y);
        if (there) fprintf(f, open ? "L%.1f %.1f" : "M%.1f %.1fh0", x, y);
        open = there;
    }
    fputs("'/>\n", f);
}

/* Marks and intervals: at each point, or along a line of many at a few, which differ from line to line. */
static inline void chart_marks(const chart_plot *p, const chart_series *s, int look) {
    size_t every = s->mark == CHART_LINES && s->n > 40 ? s->n / 8 : 1;
    const char *colour = draw_colour(p->d, draw_look_colour(look));
    double x, y;
    for (size_t i = every > 1 ? every * (size_t)(look % 8) / 8 : 0; i < s->n; i += every) {
        if (!chart_point(p, series_at(s, i), s->values[i], &x, &y)) continue;
        chart_interval(p, s, i, series_at(s, i), colour);
        draw_mark(p->d, look, x, y, s->mark == CHART_POINTS ? 4.2 : 3);
        fputc('\n', p->d->file);
    }
}

/* The bars of series k: beside one another (number `slot` of `slots`), or stacked with what they say in them. */
static inline void chart_bars(const chart_plot *p, size_t k, size_t slot, size_t slots, int look) {
    const chart_series *s = &p->c->series[k];
    double slice = fabs(p->at.length) / (p->at.high - p->at.low), x0, y0, x1, y1, at, from;
    double size = fmin(fmax(1, slice * 0.8 / (double)slots), 60);
    for (size_t i = 0; i < s->n; i++) {
        at = series_at(s, i) + (((double)slot + 0.5 - (double)slots / 2) * size) / slice;
        from = s->mark == CHART_STACK ? chart_below(p->c, k, i) : 0;
        if (p->values.log && !(from > 0)) from = exp(p->values.low);
        if (!chart_point(p, at, from, &x0, &y0) ||
            !chart_point(p, at, s->values[i] + (s->mark == CHART_STACK ? from : 0), &x1, &y1)) continue;
        if (p->c->flat)
            draw_rect(p->d, fmin(x0, x1), y0 - size / 2, fabs(x1 - x0), size, draw_colour(p->d, draw_look_colour(look)),
                      draw_colour(p->d, DRAW_SHEET));
        else
            draw_rect(p->d, x0 - size / 2, fmin(y0, y1), size, fabs(y1 - y0), draw_colour(p->d, draw_look_colour(look)),
                      draw_colour(p->d, DRAW_SHEET));
        chart_interval(p, s, i, at, draw_colour(p->d, DRAW_INK));
        if (s->mark != CHART_STACK || fabs(x1 - x0) < 26 || !p->c->flat) continue;
        char more[64];
        snprintf(more, sizeof more, " fill='%s'", draw_colour(p->d, DRAW_SHEET));
        draw_text(p->d, (x0 + x1) / 2, y0 + 4, "middle", more, "%.6g", s->values[i]);
    }
}

static inline void chart_rules_draw(const chart_plot *p) {
    for (size_t r = 0; r < p->c->n_rules; r++) {
        int upright = p->c->rules[r].upright != p->c->flat;
        double at = chart_place(p->c->rules[r].upright ? &p->at : &p->values, p->c->rules[r].at);
        if (!isfinite(at)) continue;
        if (upright && at >= p->x - 1 && at <= p->x + p->wide + 1)
            draw_line(p->d, at, p->y, at, p->y + p->high, draw_colour(p->d, DRAW_INK), 1.2, "9 3 2 3");
        if (!upright && at >= p->y - 1 && at <= p->y + p->high + 1)
            draw_line(p->d, p->x, at, p->x + p->wide, at, draw_colour(p->d, DRAW_INK), 1.2, "9 3 2 3");
    }
}

/* Draws a chart whose plot begins at (x, y); around it chart_margins says how much room it needs. */
static inline void chart_draw(drawing *d, const chart *c, double x, double y, double wide, double high) {
    chart_plot p = {d, c, {0, 0, 0, 0, 0, 0, {{0, {0}}}}, {0, 0, 0, 0, 0, 0, {{0, {0}}}}, x, y, wide, high};
    size_t slots = 0, slot = 0, stacked = 0;
    chart_scale_make(&p.at, c, 0, c->flat ? y : x, c->flat ? high : wide);
    chart_scale_make(&p.values, c, 1, c->flat ? x : y + high, c->flat ? wide : -high);
    if (c->title) draw_text(d, x, y - 10 - (c->subtitle ? 17 : 0), "start", " font-weight='bold'", "%s", c->title);
    if (c->subtitle) draw_text(d, x, y - 10, "start", "", "%s", c->subtitle);
    chart_axis_draw(d, &c->x, &p.at, !c->flat, x, y, wide, high, chart_turned(c, wide));
    chart_axis_draw(d, &c->y, &p.values, c->flat, x, y, wide, high, 0);
    draw_rect(d, x, y, wide, high, "none", draw_colour(d, DRAW_AXIS));
    fprintf(d->file, "<clipPath id='draw%u-%u'><rect x='%.1f' y='%.1f' width='%.1f' height='%.1f'/></clipPath>"
            "<g clip-path='url(#draw%u-%u)'>\n", d->id, d->clips, x - 5, y - 5, wide + 10, high + 10, d->id, d->clips);
    d->clips++;
    for (size_t k = 0; k < c->n; k++) slots += c->series[k].mark == CHART_BARS, stacked |= c->series[k].mark == CHART_STACK;
    for (size_t k = 0; k < c->n; k++) {
        const chart_series *s = &c->series[k];
        if (s->mark == CHART_BARS) chart_bars(&p, k, slot++, slots + stacked, series_look(c, s));
        if (s->mark == CHART_STACK) chart_bars(&p, k, slots, slots + 1, series_look(c, s));
    }
    chart_rules_draw(&p);
    for (size_t k = 0; k < c->n; k++) {
        const chart_series *s = &c->series[k];
        if (s->mark == CHART_LINES) chart_line(&p, s, series_look(c, s));
        if (s->mark <= CHART_POINTS) chart_marks(&p, s, series_look(c, s));
    }
    fputs("</g>\n", d->file);
}

/* ---- Legends ---- */

static inline int series_named(const chart_series *s) { return s->name && *s->name; }

static inline double series_last(const chart_series *s) {
    for (size_t i = s->n; i-- > 0;)
        if (isfinite(s->values[i])) return s->values[i];
    return -INFINITY;
}

/* The k-th series of a legend: lines from the one that ends highest down, others as they come. */
static inline const chart_series *chart_ranked(const chart *c, size_t k) {
    for (size_t i = 0; i < c->n; i++) {
        size_t rank = 0;
        if (!series_named(&c->series[i])) continue;
        for (size_t j = 0; j < c->n; j++) {
            const chart_series *a = &c->series[j], *b = &c->series[i];
            if (!series_named(a) || i == j) continue;
            if (a->mark != CHART_LINES || b->mark != CHART_LINES || !(series_last(a) < series_last(b) || series_last(a) > series_last(b))) rank += j < i;
            else rank += series_last(a) > series_last(b);
        }
        if (rank == k) return &c->series[i];
    }
    return NULL;
}

static inline void legend_entry(const drawing *d, const chart *c, const chart_series *s, double x, double y) {
    int look = series_look(c, s);
    const char *colour = draw_colour(d, draw_look_colour(look));
    if (s->mark >= CHART_BARS) draw_rect(d, x + 6, y - 6, 14, 12, colour, "none");
    else {
        if (s->mark == CHART_LINES) draw_line(d, x, y, x + 28, y, colour, s->bold ? 3 : 1.6, draw_look_dash(look));
        draw_mark(d, look, x + 14, y, s->mark == CHART_POINTS ? 4.2 : 3);
    }
    draw_text(d, x + 35, y + 4, "start", s->bold ? " font-weight='bold'" : "", "%.120s", s->name);
}

static inline void legend_rule(const drawing *d, const chart_rule *r, double x, double y) {
    draw_line(d, x, y, x + 28, y, draw_colour(d, DRAW_INK), 1.2, "9 3 2 3");
    draw_text(d, x + 35, y + 4, "start", "", "%.120s", r->name);
}

/* Names in a chart's legend, and the width of its widest entry. */
static inline size_t legend_size(const chart *c, double *wide) {
    size_t n = 0;
    *wide = 0;
    for (size_t k = 0; k < c->n; k++)
        if (series_named(&c->series[k])) n++, *wide = fmax(*wide, draw_width(c->series[k].name, 12, 120));
    for (size_t k = 0; k < c->n_rules; k++)
        if (c->rules[k].name) n++, *wide = fmax(*wide, draw_width(c->rules[k].name, 12, 120));
    *wide += 35 + 14;
    return n;
}

/* Draws a legend from (x, y) on, in lines of so many; returns its height. */
static inline double legend_draw(const drawing *d, const chart *c, double x, double y, size_t columns) {
    const chart_series *s;
    size_t i = 0;
    double wide;
    legend_size(c, &wide);
    for (size_t k = 0; (s = chart_ranked(c, k)) != NULL; k++, i++)
        legend_entry(d, c, s, x + (double)(i % columns) * wide, y + (double)(i / columns) * 18);
    for (size_t k = 0; k < c->n_rules; k++)
        if (c->rules[k].name)
            legend_rule(d, &c->rules[k], x + (double)(i % columns) * wide, y + (double)(i / columns) * 18), i++;
    return (double)((i + columns - 1) / columns) * 18;
}

/* ---- A figure ---- */

static inline int figure_write(FILE *file, const figure *f) {
    drawing d = {file, f->html, f->id, 0};
    const chart *c = f->charts;
    double wide = f->wide > 0 ? f->wide : 760, side, names;
    chart_room room;
    if (f->n != 1) return 0;
    names = legend_size(c, &side) > 1 ? side : 0;
    chart one = *c;
    one.title = one.subtitle = NULL;
    room = chart_margins(&one, wide - 200);
    double plot = wide - 32 - room.left - room.right - names, high = chart_high(c);
    if (names > 0) high = fmax(high, 18 * (double)legend_size(c, &side));
    draw_open(&d, wide, 60 + high + room.bottom + 16, f->title ? f->title : c->title, f->description ? f->description : "");
    draw_text(&d, 16, 28, "start", " font-size='16px' font-weight='bold'", "%s", f->title ? f->title : c->title ? c->title : "");
    if (f->subtitle || c->subtitle) draw_text(&d, 16, 47, "start", "", "%s", f->subtitle ? f->subtitle : c->subtitle);
    chart_draw(&d, &one, 16 + room.left, 60, plot, high);
    if (names > 0) legend_draw(&d, c, 16 + room.left + plot + 14, 68, 1);
    return draw_close(&d);
}

static inline int figure_save(const char *path, const figure *f, char *error) {
    int mode, bad;
    char *target = text_replaced(path, &mode);
    size_t size = target ? strlen(target) + 40 : 0;
    char *name = (char *)malloc(size + 1);
    FILE *file = target && name ? text_own_file(target, name, size, mode) : NULL;
    bad = !file;
    if (file) {
        bad = !figure_write(file, f);
        bad |= fclose(file) != 0;
        bad = bad || !text_replace(name, target);
        if (bad) (void)remove(name);
    }
    free(name), free(target);
    return bad ? text_fail(error, "cannot write %s", path) : 1;
}

static inline int chart_save(const char *path, const chart *c, char *error) {
    figure f;
    memset(&f, 0, sizeof f);
    f.charts = c, f.n = 1;
    return figure_save(path, &f, error);
}

#endif
