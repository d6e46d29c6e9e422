/* pieces.h - pieces of SVG, which geometry.c and signal.c draw with. Include it after options.h. */
#ifndef PIECES_H
#define PIECES_H

#include <math.h>

#define OUT(...) fprintf(svg, __VA_ARGS__)
#define TEXT(words) "<text x='%.1f' y='%.1f' text-anchor='%s'>" words "</text>\n"
#define PATH "<path d='M%.1f %.1fh%.1fv%.1f' stroke='%s' stroke-dasharray='%s'/>\n"
#define RECT "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s' stroke='%s'/>\n"
/* Okabe and Ito's palette, for every kind of colour vision. After seven things the next are dashed, then
   dotted. */
static const char *const colour[7] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                      "#E69F00", "#56B4E9", "#000000"};
static const char *const dash[3] = {"none", "5 3", "1.5 3"};
static FILE *svg;

/* Writes a name into the drawing: what XML reserves as entities, what it forbids as a question mark. */
static inline void show_name(const char *name) {
    const char *last = strrchr(name, '/'), *at = last && last[1] ? last + 1 : name, *mark;
    const char *end = at + strlen(at);
    static const char reserved[] = "&<>'\"";
    static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&apos;", "&quot;"};
    uint32_t c;
    for (size_t n, shown = 0; at < end; at += n, shown++) {
        n = text_decode(at, (size_t)(end - at), &c);
        if (shown == 80) {
            OUT(" ..");
            return;
        }
        mark = c < 128 && c ? strchr(reserved, (int)c) : NULL;
        if (text_steers(c) || c == 0xFFFE || c == 0xFFFF) OUT("?");
        else if (mark) OUT("%s", entity[mark - reserved]);
        else OUT("%.*s", (int)n, at);
    }
}

/* 1, 2 or 5 times a power of ten: the distance of at most so many ticks over a span. */
static inline double tick_of(double span, double ticks) {
    double power = pow(10, floor(log10(span / ticks))), f = span / ticks / power;
    return power * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10);
}

/* Begins a white sheet of that size in pixels, whose title is the name of a file. */
static inline int open_drawing(const char *path, int wide, double high, const char *name) {
    if (!(svg = fopen(path, "w"))) return 0;
    OUT("<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%.0f' viewBox='0 0 %d %.0f' "
        "font-family='sans-serif' font-size='12px'>\n<rect width='100%%' height='100%%' fill='#fff'/>\n"
        "<title>", wide, high, wide, high);
    show_name(name);
    OUT("</title>\n");
    return 1;
}

/* Ends it; says whether all of it arrived. */
static inline int close_drawing(void) {
    int failed;
    OUT("</svg>\n");
    failed = ferror(svg);
    return fclose(svg) == 0 && !failed;
}

#endif
