/* Drawings: well-formed whatever they are told, numbers where the axes say they are, looks that differ for
   every kind of colour vision, files that are replaced whole. */
#include "check.h"
#include "../examples/tools/drawing.h"

/* ---- A checker of XML: elements that match, quoted attributes, ids used once, allowed characters ---- */

enum { DEEP = 32, IDS = 64 };
static const char *stopped; /* where the checker has seen something wrong */

typedef struct xml {
    const char *at;
    const char *open[DEEP], *ids[IDS]; /* names of open elements, and ids, in the text */
    size_t lengths[DEEP], id_lengths[IDS], deep, n_ids, elements;
} xml;

static size_t name_length(const char *s) {
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-:");
}

/* An entity or a character that XML allows; its length, or 0. */
static size_t xml_character(const char *s) {
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&apos;", "&quot;"};
    uint32_t c;
    size_t n = text_decode(s, strlen(s), &c);
    if (*s == '&') {
        for (size_t e = 0; e < 5; e++)
            if (!strncmp(s, entities[e], strlen(entities[e]))) return strlen(entities[e]);
        return 0;
    }
    return c && *s != '<' && (c >= 32 || c == '\n') && c != 0xFFFE && c != 0xFFFF ? n : 0;
}

/* The attributes of an element; what they say must be numbers of this world. */
static int xml_attributes(xml *x) {
    while (*x->at == ' ') {
        size_t n = name_length(++x->at), step;
        int id = n == 2 && !strncmp(x->at, "id", 2);
        if (!n || x->at[n] != '=' || x->at[n + 1] != '\'') return 0;
        x->at += n + 2;
        if (id) {
            size_t long_is = strcspn(x->at, "'");
            for (size_t i = 0; i < x->n_ids; i++)
                if (x->id_lengths[i] == long_is && !strncmp(x->ids[i], x->at, long_is)) return 0;
            if (x->n_ids == IDS) return 0;
            x->ids[x->n_ids] = x->at, x->id_lengths[x->n_ids++] = long_is;
        }
        while (*x->at != '\'') {
            if (!strncmp(x->at, "nan", 3) || !strncmp(x->at, "inf", 3)) return 0;
            if (!*x->at || !(step = xml_character(x->at))) return 0;
            x->at += step;
        }
        x->at++;
    }
    return 1;
}

static int xml_element(xml *x) {
    int ends = x->at[1] == '/';
    size_t n = name_length(x->at += 1 + ends);
    if (!n) return 0;
    if (ends) {
        if (!x->deep-- || x->lengths[x->deep] != n || strncmp(x->open[x->deep], x->at, n) != 0) return 0;
        x->at += n;
        return *x->at++ == '>';
    }
    if (x->deep == DEEP) return 0;
    x->open[x->deep] = x->at, x->lengths[x->deep++] = n, x->elements++;
    x->at += n;
    if (!xml_attributes(x)) return 0;
    if (*x->at == '/') x->deep--, x->at++;
    return *x->at++ == '>';
}

/* The number of elements of a text that is one well-formed element; 0 where it is not. */
static size_t well_formed(const char *text) {
    static xml x;
    size_t step;
    memset(&x, 0, sizeof x);
    x.at = text;
    while (*x.at) {
        stopped = x.at;
        if (*x.at == '<') {
            if (!xml_element(&x)) return 0;
            if (!x.deep) return *x.at == '\n' && !x.at[1] ? x.elements : 0;
            continue;
        }
        if (!(step = xml_character(x.at))) return 0;
        x.at += step;
    }
    return 0;
}

static void the_checker_itself(void) {
    static const char *const wrong[] = {
        "", "<svg/><svg/>\n", "<svg><b></svg>\n", "<svg a=1></svg>\n", "<svg>&</svg>\n", "<a>&nbsp;</a>\n",
        "<svg>\x01</svg>\n", "<svg>\xff</svg>\n", "<svg x='nan'/>\n", "<svg><a id='x'/><b id='x'/></svg>\n"};
    CHECK(well_formed("<svg a='1'><b/>x &amp; y</svg>\n") == 2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK(!well_formed(wrong[i]));
}

/* ---- What a figure becomes ---- */

/* The figure as text, in memory that the next call overwrites. */
static const char *drawn(const figure *f) {
    static char text[1 << 21];
    FILE *file = tmpfile();
    size_t n = 0;
    if (CHECK(file != NULL)) {
        CHECK(figure_write(file, f));
        rewind(file), n = fread(text, 1, sizeof text - 1, file), fclose(file);
    }
    text[n] = 0;
    CHECK_THAT(well_formed(text), "not well-formed: %.300s", stopped);
    CHECK(strstr(text, "role='img' aria-labelledby='draw"));
    CHECK(strstr(text, "<title id='") && strstr(text, "<desc id='"));
    return text;
}

static const char *drawn_chart(const chart *c) {
    figure f;
    memset(&f, 0, sizeof f);
    f.charts = c, f.n = 1;
    return drawn(&f);
}

static size_t count(const char *text, const char *what) {
    size_t n = 0;
    for (; (text = strstr(text, what)) != NULL; text += strlen(what)) n++;
    return n;
}

/* A chart of one series with labelled axes. */
static chart plain(const chart_series *s, size_t n) {
    chart c;
    memset(&c, 0, sizeof c);
    c.title = "A title", c.series = s, c.n = n;
    c.x.label = "step", c.y.label = "loss (nats a token)";
    return c;
}

static chart_series line_of(const char *name, const double *values, size_t n) {
    chart_series s;
    memset(&s, 0, sizeof s);
    s.name = name, s.values = values, s.n = n;
    return s;
}

/* ---- Names ---- */

static void names(void) {
    static const double values[3] = {1, 3, 2};
    static const char *const hostile[] = {
        "", "a & b", "<script>alert('x')</script>", "]]>", "\"quoted\" 'twice'", "%s%n%d", "a\nb\tc\r",
        "\x01\x02\x1b[31m", "\xff\xfe\x80", "\xc3", "\xed\xa0\x80", "\xef\xbf\xbe and \xef\xbf\xbf",
        "\xc2\x85\xe2\x80\xa8", "caf\xc3\xa9 \xe2\x88\x86 \xf0\x9f\x98\x80"};
    char every[256], longest[3000];
    for (int i = 0; i < 255; i++) every[i] = (char)(i + 1);
    every[255] = 0;
    memset(longest, 'W', sizeof longest), longest[sizeof longest - 1] = 0;
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile + 2; i++) {
        const char *name = i < sizeof hostile / sizeof *hostile ? hostile[i] : i % 2 ? every : longest;
        const char *categories[3] = {name, "plain", name};
        chart_series s[2] = {line_of(name, values, 3), line_of(name, values, 3)};
        chart c = plain(s, 2);
        chart_rule rule = {2, 0, name};
        figure f;
        memset(&f, 0, sizeof f);
        c.rules = &rule, c.n_rules = 1;
        c.title = c.subtitle = c.x.label = c.y.label = c.y.also = name, c.y.factor = 2;
        f.title = f.subtitle = name, f.charts = &c, f.n = 1;
        for (int kind = 0; kind < 4; kind++) {
            if (kind == 1) s[0].mark = s[1].mark = CHART_BARS, c.x.names = categories, c.x.n_names = 3;
            c.flat = kind == 2, f.html = kind == 3;
            drawn(&f);
        }
        f.description = name, drawn(&f);
    }
    chart_series s = line_of("a<b>&'\"", values, 3), two[2] = {s, s};
    chart c = plain(two, 2);
    CHECK(count(drawn_chart(&c), ">a&lt;b&gt;&amp;&apos;&quot;</text>") == 2);
    CHECK(!strcmp(draw_base("a/b/c.d"), "c.d") && !strcmp(draw_base("c"), "c"));
    CHECK(!strcmp(draw_base("a/"), "a/"));
}

/* ---- Data ---- */

static void data(void) {
    static double many[1000], at[1000], low[1000], high[1000];
    static const double one[1] = {3}, none[3] = {NAN, INFINITY, -INFINITY}, zeros[2] = {0, -0.0},
                        gaps[7] = {1, 2, NAN, 3, INFINITY, 4, 5}, mixed[3] = {-1, 0, 10},
                        huge[4] = {DBL_MAX, -DBL_MAX, 9e289, -9e289}, tiny[3] = {DBL_MIN, 4.9e-324, 0},
                        near_each_other[3] = {1e15, 1e15 + 1, 1e15 + 2};
    struct { const double *values; size_t n; } sets[] = {
        {NULL, 0}, {one, 1}, {none, 3}, {gaps, 7}, {huge, 4}, {tiny, 3}, {near_each_other, 3}, {zeros, 2},
        {mixed, 3}, {many, 1000}};
    const char *text;
    for (size_t i = 0; i < 1000; i++) {
        many[i] = check_random() * 5, at[i] = (double)i * (double)i;
        low[i] = i % 7 ? many[i] - 1 : NAN, high[i] = many[i] + (i % 11 ? 1 : INFINITY);
    }
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        for (int how = 0; how < 48; how++) {
            chart_series s = line_of("name", sets[i].values, sets[i].n), two[2];
            s.mark = (chart_mark)(how % 4);
            if (how & 4) s.low = low, s.high = high;
            if (how & 8) s.at = at;
            two[0] = two[1] = s, two[1].look = 20;
            chart c = plain(two, 2);
            c.flat = how >= 16 && how < 32, c.y.log = how >= 32 ? 10 : 0, c.x.log = how >= 40 ? 2 : 0;
            if (how % 3 == 1) c.title = NULL, c.x.label = c.y.label = NULL;
            text = drawn_chart(&c);
            CHECK(strlen(text) < 700000);
        }
    chart_series s = line_of("gaps", gaps, 7);
    chart c = plain(&s, 1);
    text = strstr(drawn_chart(&c), "stroke-linejoin");
    /* three pieces: 1 2, 3 alone, 4 5 */
    if (CHECK(text && (text = strstr(text, " d='M0 0")) != NULL)) {
        size_t n = strcspn(text + 8, "'"), starts = 0, lines = 0;
        for (size_t i = 8; i < n + 8; i++) starts += text[i] == 'M', lines += text[i] == 'L';
        CHECK(starts == 3 && lines == 2);
    }
    c = plain(NULL, 0);
    CHECK(strstr(drawn_chart(&c), "nothing to show"));
    figure f;
    memset(&f, 0, sizeof f);
    drawn(&f);
}

/* ---- Axes ---- */

/* Ticks are in order, on the axis, where they say, and say different things. */
static void check_ticks(const chart_scale *s, const char *what) {
    double end = s->start + s->length, least = fmin(s->start, end), most = fmax(s->start, end), before = 0;
    CHECK_THAT(s->n >= 1 && s->n <= CHART_TICKS, "%s: %zu ticks", what, s->n);
    for (size_t i = 0; i < s->n; i++) {
        double at = chart_place(s, s->ticks[i].at), says = strtod(s->ticks[i].label, NULL), there;
        double gap = s->log || s->n < 2 ? 0.1 * fabs(says) : s->ticks[1].at - s->ticks[0].at;
        CHECK_THAT(at >= least - 0.5 && at <= most + 0.5, "%s: %s at pixel %g", what, s->ticks[i].label, at);
        CHECK_THAT(fabs(says - s->ticks[i].at) <= gap * 0.01, "%s: %s stands at %.17g", what,
                   s->ticks[i].label, s->ticks[i].at);
        there = i ? s->ticks[i].at : INFINITY;
        CHECK_THAT(!i || there > before, "%s: ticks %g and %g", what, before, there);
        CHECK_THAT(!i || strcmp(s->ticks[i].label, s->ticks[i - 1].label) != 0, "%s: %s twice", what,
                   s->ticks[i].label);
        before = s->ticks[i].at;
    }
}

static void axes(void) {
    chart_scale scale;
    char what[80];
    for (int trial = 0; trial < 4000; trial++) {
        double size = pow(10, floor(check_random() * 12)), values[2];
        int log = trial % 4 == 3 ? 10 : trial % 4 == 2 ? 2 : 0;
        values[0] = log ? size * exp(check_random()) : size * check_random();
        values[1] = log ? values[0] * exp(12 * fabs(check_random()) + 0.01)
                        : values[0] + size * pow(10, 4 * check_random());
        chart_series s = line_of("", values, 2);
        chart c = plain(&s, 1);
        c.y.log = log;
        chart_scale_make(&scale, &c, 1, 300, -50 - 300 * fabs(check_random()));
        snprintf(what, sizeof what, "%.17g to %.17g, log %d", values[0], values[1], log);
        check_ticks(&scale, what);
        for (int e = 0; e < 2; e++) {
            double at = chart_place(&scale, values[e]);
            CHECK_THAT(at <= 300.5 && at >= 300 + scale.length - 0.5, "%s: outside of the plot", what);
        }
    }
    /* a mark stands where lines of the grid through it would: (4, 20) on 0 to 10 by 0 to 40 */
    static const double at[1] = {4}, value[1] = {20};
    chart_series s = line_of("", value, 1);
    chart c = plain(&s, 1);
    double x, y;
    s.at = at, s.mark = CHART_POINTS, c.x.most = 10, c.y.most = 40;
    chart_plot p = chart_plot_make(NULL, &c, 100, 50, 500, 200);
    CHECK(chart_point(&p, 4, 20, &x, &y));
    CHECK_NEAR(x, 300, 1e-9), CHECK_NEAR(y, 150, 1e-9);
    c.flat = 1, p = chart_plot_make(NULL, &c, 100, 50, 500, 200);
    CHECK(chart_point(&p, 4, 20, &x, &y));
    CHECK_NEAR(x, 350, 1e-9), CHECK_NEAR(y, 130, 1e-9);
    c.flat = 0, c.y.log = 10, c.y.least = 1, c.y.most = 400;
    p = chart_plot_make(NULL, &c, 100, 50, 500, 200);
    CHECK(chart_point(&p, 4, 20, &x, &y));
    CHECK_NEAR(y, 150, 1e-9);
    CHECK(!chart_point(&p, 4, -1, &x, &y) && !chart_point(&p, 4, NAN, &x, &y));
    /* a second unit: twice the number at the same height */
    c.y.log = 0, c.y.least = 0, c.y.most = 10, c.y.also = "bits", c.y.factor = 2;
    p = chart_plot_make(NULL, &c, 0, 0, 500, 200);
    CHECK(p.also.n > 1), CHECK_NEAR(chart_place(&p.also, 8), chart_place(&p.values, 4), 1e-9);
}

/* Bars stand on 0, stacks on one another; intervals are where they should be. */
static void bars(void) {
    static const double a[3] = {1, NAN, 3}, b[3] = {2, 5, -1}, low[3] = {0.5, 0, 2}, high[3] = {1.5, 1, 4};
    static const char *const kinds[3] = {"one", "two", "three"};
    chart_series s[2] = {line_of("a", a, 3), line_of("b", b, 3)};
    chart c = plain(s, 2);
    double least, most;
    c.x.names = kinds, c.x.n_names = 3;
    s[0].mark = s[1].mark = CHART_STACK;
    CHECK_NEAR(chart_below(&c, 1, 0), 1, 0), CHECK_NEAR(chart_below(&c, 1, 1), 0, 0);
    CHECK_NEAR(chart_value(&c, 1, 0), 3, 0), CHECK(isnan(chart_value(&c, 1, 2)));
    chart_range(&c, 1, &least, &most);
    CHECK(least >= 0 && least <= 0), CHECK_NEAR(most, 5, 0);
    s[0].mark = s[1].mark = CHART_BARS, s[0].low = low, s[0].high = high;
    chart_range(&c, 1, &least, &most);
    CHECK_NEAR(least, -1, 0), CHECK_NEAR(most, 5, 0);
    CHECK(count(drawn_chart(&c), "class='interval'") == 2); /* none where the value is missing */
    CHECK(count(drawn_chart(&c), ">two</text>") == 1);
}

/* ---- Looks ---- */

/* The part of a text from `from` to the next `to`. */
static void part_of(char *part, size_t size, const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from), *end = at ? strstr(at + strlen(from), to) : NULL;
    snprintf(part, size, "%.*s", end ? (int)(end - at) : 0, end ? at : "");
}

/* Sixteen series have sixteen lines: each differs from every other in colour, or in dash and mark. */
static void sixteen(void) {
    static double values[16][4];
    static char title[16][16], colours[16][40], dashes[16][40], marks[16][120];
    chart_series s[16];
    const char *text, *at;
    for (size_t k = 0; k < 16; k++) {
        snprintf(title[k], sizeof title[k], "head %zu", k);
        for (size_t j = 0; j < 4; j++) values[k][j] = check_random();
        s[k] = line_of(title[k], values[k], 4);
    }
    chart c = plain(s, 16);
    text = drawn_chart(&c);
    for (size_t k = 0; k < 16; k++) { /* in the plot: the line of series k, and its first mark */
        at = text;
        for (size_t i = 0; at && i <= k; i++) at = strstr(at + 1, "<path fill='none' stroke-linejoin");
        if (!CHECK(at)) return;
        part_of(colours[k], sizeof colours[k], at, "stroke='", "' ");
        part_of(dashes[k], sizeof dashes[k], at, "stroke-width='", " d='");
        part_of(marks[k], sizeof marks[k], at, "d='M0 0m", "' fill='#");
        CHECK(*colours[k] && *dashes[k] && *marks[k]);
        for (size_t i = 0; i < k; i++)
            CHECK_THAT(strcmp(colours[i], colours[k]) != 0 ||
                       (strcmp(dashes[i], dashes[k]) != 0 && strcmp(marks[i], marks[k]) != 0),
                       "lines %zu and %zu look the same", i, k);
    }
    for (size_t k = 0; k < 16; k++) { /* all in the legend, one below another */
        char name[32];
        snprintf(name, sizeof name, ">head %zu</text>", k);
        CHECK(count(text, name) == 1);
    }
    CHECK(chart_high(&c) >= legend_draw(NULL, &c, 0, 0, 1));
}

typedef struct colour { double x[3]; } colour;

/* A colour in linear light, as someone sees it whose cones work so. */
static colour seen(const char *hex, const double vision[9]) {
    colour light, out;
    unsigned rgb[3];
    CHECK(sscanf(hex, "#%2x%2x%2x", &rgb[0], &rgb[1], &rgb[2]) == 3);
    for (int i = 0; i < 3; i++) {
        double c = rgb[i] / 255.0;
        light.x[i] = c > 0.04045 ? pow((c + 0.055) / 1.055, 2.4) : c / 12.92;
    }
    for (int i = 0; i < 3; i++) {
        out.x[i] = 0;
        for (int j = 0; j < 3; j++) out.x[i] += vision[3 * i + j] * light.x[j];
        out.x[i] = fmin(1, fmax(0, out.x[i]));
    }
    return out;
}

static double luminance(colour c) { return 0.2126 * c.x[0] + 0.7152 * c.x[1] + 0.0722 * c.x[2]; }

/* How far apart two colours are in CIELAB (D65). */
static double apart(colour a, colour b) {
    static const double xyz[9] = {0.4124, 0.3576, 0.1805, 0.2126, 0.7152, 0.0722, 0.0193, 0.1192, 0.9505},
                        white[3] = {0.9505, 1, 1.089};
    double f[2][3], sum = 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++) {
            double t = 0;
            for (int j = 0; j < 3; j++) t += xyz[3 * i + j] * (k ? b : a).x[j];
            t /= white[i], f[k][i] = t > 0.008856 ? cbrt(t) : 7.787 * t + 16.0 / 116;
        }
    sum += pow(116 * (f[0][1] - f[1][1]), 2);
    sum += pow(500 * (f[0][0] - f[0][1] - f[1][0] + f[1][1]), 2);
    return sqrt(sum + pow(200 * (f[0][1] - f[0][2] - f[1][1] + f[1][2]), 2));
}

/* For normal vision, and without the long, middle or short cones (Machado, Oliveira, Fernandes 2009). */
static void colours(void) {
    static const double visions[4][9] = {
        {1, 0, 0, 0, 1, 0, 0, 0, 1},
        {0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998},
        {0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881},
        {1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.303900}};
    for (int dark = 0; dark < 2; dark++) {
        const char *hex[DRAW_COLOURS];
        double sheet;
        for (int c = 0; c < DRAW_COLOURS; c++) hex[c] = strchr(draw_palette(c, 2 + dark), '#');
        sheet = luminance(seen(hex[DRAW_SHEET], visions[0])) + 0.05;
        for (int c = 0; c < DRAW_COLOURS; c++) {
            double light = luminance(seen(hex[c], visions[0])) + 0.05;
            double contrast = fmax(light, sheet) / fmin(light, sheet);
            CHECK_THAT(c == DRAW_SHEET || c == DRAW_GRID || contrast >= (c <= DRAW_SOFT ? 4.5 : 3),
                       "%s: a contrast of %.2f", hex[c], contrast);
        }
        for (int v = 0; v < 4; v++)
            for (int a = DRAW_SERIES; a < DRAW_COLOURS; a++)
                for (int b = DRAW_SERIES; b < a; b++) {
                    double far = apart(seen(hex[a], visions[v]), seen(hex[b], visions[v]));
                    CHECK_THAT(far >= 20, "vision %d: %.7s and %.7s are %.1f apart", v, hex[a], hex[b], far);
                }
    }
    CHECK(*draw_palette(DRAW_SERIES, 0) == '#' && strstr(draw_palette(DRAW_SERIES, 1), "var(--draw-1,#"));
}

/* ---- Legends and layout ---- */

/* A text of a drawing that lies flat: where it begins, and how wide draw_width takes it for. */
typedef struct label { double x, y, wide; char text[200]; } label;

static int find_label(const char *at, label *l) {
    const char *end = strchr(at, '>'), *turned = strstr(at, "rotate");
    char anchor;
    if (!end || (turned && turned < end)) return 0;
    if (sscanf(at, "<text x='%lf' y='%lf' text-anchor='%c", &l->x, &l->y, &anchor) != 3) return 0;
    snprintf(l->text, sizeof l->text, "%.*s", (int)strcspn(end + 1, "<"), end + 1);
    l->wide = draw_width(l->text, 12, 199);
    l->x -= anchor == 'e' ? l->wide : anchor == 'm' ? l->wide / 2 : 0;
    return 1;
}

/* No text lies on another one. */
static void no_overlaps(const char *text, const char *what) {
    static label labels[256];
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, "<text x='")) != NULL && n < 256; at++) {
        label *l = &labels[n];
        if (!find_label(at, l)) continue;
        for (label *o = labels; o < l; o++)
            CHECK_THAT(fabs(o->y - l->y) > 10 || l->x >= o->x + o->wide - 1 || l->x + l->wide <= o->x + 1,
                       "%s: \"%s\" lies on \"%s\"", what, l->text, o->text);
        n++;
    }
    CHECK(n > 3);
}

static void layout(void) {
    static double values[16][12];
    static char title[16][64];
    chart_series s[16];
    chart charts[5];
    figure f;
    for (size_t k = 0; k < 16; k++) {
        snprintf(title[k], sizeof title[k], k % 3 ? "head %zu" : "a head with a rather long name, %zu", k);
        for (size_t j = 0; j < 12; j++) values[k][j] = check_random() * pow(10, (double)(k % 5));
        s[k] = line_of(title[k], values[k], 12);
    }
    memset(&f, 0, sizeof f);
    for (size_t i = 0; i < 5; i++)
        charts[i] = plain(s, 16), charts[i].title = "a panel", charts[i].high = 120, charts[i].whole = i == 4;
    f.title = "A figure", f.subtitle = "with many charts", f.charts = charts;
    for (f.columns = 1; f.columns <= 3; f.columns++)
        for (f.n = 1; f.n <= 5; f.n++) no_overlaps(drawn(&f), "a figure");
    chart c = plain(s, 16);
    c.y.also = "loss (bits a byte)", c.y.factor = 1.44;
    no_overlaps(drawn_chart(&c), "a second unit");
}

/* ---- Legends that a page writes ---- */

static void legends(void) {
    static const double values[2][3] = {{1, 3, 2}, {3, 1, 4}};
    chart_series s[2] = {line_of("one & <all>", values[0], 3), line_of("other", values[1], 3)};
    chart c = plain(s, 2);
    figure f;
    char text[4000];
    memset(&f, 0, sizeof f);
    f.charts = &c, f.n = 1, f.html = 1;
    CHECK(count(drawn(&f), "other</text>") == 1);
    f.apart = 1;
    CHECK(count(drawn(&f), "other</text>") == 0);
    for (c.n = 0; c.n <= 2; c.n++) { /* one alone needs none */
        FILE *file = tmpfile();
        if (!CHECK(file)) return;
        legend_page(file, &f);
        rewind(file);
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        CHECK(count(text, "<li>") == (c.n > 1 ? 2u : 0u));
    }
    CHECK(strstr(text, "<span>one &amp; &lt;all&gt;</span>") && strstr(text, "<span>other</span>"));
    CHECK(count(text, "aria-hidden") == 2);
}

/* ---- Files ---- */

static void files(void) {
    static const double values[3] = {1, 3, 2};
    chart_series s = line_of("a", values, 3);
    chart c = plain(&s, 1);
    char path[96], error[TEXT_ERROR] = "", first[64] = "";
    FILE *file;
    snprintf(path, sizeof path, "/tmp/drawing.%ld.svg", (long)getpid());
    CHECK(chart_save(path, &c, error));
    CHECK(chart_save(path, &c, error)); /* over an old one */
    if (CHECK((file = fopen(path, "r")) != NULL)) {
        CHECK(fgets(first, sizeof first, file) && !strncmp(first, "<svg ", 5));
        fclose(file);
    }
    CHECK(!remove(path));
    CHECK(!chart_save("/nowhere/at/all.svg", &c, error) && strstr(error, "/nowhere/at/all.svg"));
    CHECK(!chart_save("/", &c, error));
    if (!access("/dev/full", W_OK)) CHECK(!chart_save("/dev/full", &c, error));
    if (!access("/dev/null", W_OK)) CHECK(chart_save("/dev/null", &c, error));
}

int main(void) {
    the_checker_itself();
    names();
    data();
    axes();
    bars();
    sixteen();
    colours();
    layout();
    legends();
    files();
    return check_end();
}
