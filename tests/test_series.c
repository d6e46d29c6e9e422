/* A CSV of time series (examples/tools/series.h): what is read of it, and what is refused. */
#include "check.h"

#include "examples/tools/series.h"

typedef struct csv_case {
    const char *text, *names; /* NULL: the columns that have a number in line 2 */
    const char *want;         /* the channels' names, then the rows, as one_case writes them; NULL: refused */
    const char *line;         /* of an error: what it says */
} csv_case;

static const csv_case cases[] = {
    {"date,a,b\n2016-07-01,1,2\n2016-07-02,3,-4e1\n", NULL, "a|b: 1 2; 3 -40;", NULL},
    {"a\n1\n2", NULL, "a: 1; 2;", NULL}, /* no line break at the end */
    {"a,b\r\n1,2\r\n", NULL, "a|b: 1 2;", NULL},
    {"\xEF\xBB\xBF" "a,b\n1,2\n", NULL, "a|b: 1 2;", NULL},
    {"\"a, too\", b \n\"1\", 2 \n", NULL, "a, too|b: 1 2;", NULL},
    {"a,b,c\n1,2,3\n4,5,6\n", "c,a", "c|a: 3 1; 6 4;", NULL},
    {"a,b\n,2\n", NULL, NULL, "line 2, column a"}, /* an empty cell leaves no column out */
    {"", NULL, NULL, "nothing in it"},
    {"a,b\n", NULL, NULL, "no rows"},
    {"a,b\nx,y\n", NULL, NULL, "no column has numbers"},
    {"a,b\n1,2\n3\n", NULL, NULL, "line 3 has 1 columns, the first line 2"},
    {"a,b\n1,2\n3,4,5\n", NULL, NULL, "line 3 has 3 columns"},
    {"a,b\n1\n", NULL, NULL, "line 2 has 1 columns"},
    {"a,b\n1,2\n3,x\n", NULL, NULL, "line 3, column b: \"x\" is not a number"},
    {"a,b\n1,2\n3,inf\n", NULL, NULL, "not finite"},
    {"a,b\n1,2\n3,nan\n", NULL, NULL, "not finite"},
    {"a,b\n1,2\n\n3,4\n", NULL, NULL, "line 3"},
    {"a,b\n1,2\n", "a,c", NULL, "no column \"c\""},
    {"a,b,a\n1,2,3\n", NULL, NULL, "two columns \"a\""},
    {"a,b,\"a\" \n1,2,x\n", NULL, NULL, "two columns \"a\""}, /* one of them has no numbers */
    {"a,,\n1,2,3\n", NULL, NULL, "two columns \"\""},
    {"a,b,b\n1,x,y\n", NULL, "a: 1;", NULL},
    {"ab,a,b\n1,2,3\n", NULL, "ab|a|b: 1 2 3;", NULL},
};

static void one_case(const csv_case *k) {
    char error[TEXT_ERROR] = "", got[256] = "", *text = (char *)malloc(strlen(k->text) + 1);
    text_slice names[8];
    size_t n = 0, used = 0, i;
    series s;
    for (const char *at = k->names; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        names[n].at = at;
        names[n++].n = strcspn(at, ",");
    }
    memcpy(text, k->text, strlen(k->text) + 1);
    int read = series_parse(&s, text, strlen(k->text), "the/file", k->names ? names : NULL, n, error);
    if (!k->want) {
        CHECK_THAT(!read && strstr(error, k->line), "%s: read %d, \"%s\"", k->text, read, error);
        CHECK(!s.text && !s.x && !s.names && !s.want);
        return;
    }
    if (!CHECK_THAT(read, "%s: %s", k->text, error)) return;
    for (i = 0; i < s.channels; i++)
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%.*s", i ? "|" : "", (int)s.names[i].n,
                                 s.names[i].at);
    used += (size_t)snprintf(got + used, sizeof got - used, ":");
    for (i = 0; i < s.steps * s.channels; i++)
        used += (size_t)snprintf(got + used, sizeof got - used, " %g%s", s.x[i],
                                 i % s.channels + 1 == s.channels ? ";" : "");
    CHECK_THAT(!strcmp(got, k->want), "%s: \"%s\", expected \"%s\"", k->text, got, k->want);
    series_close(&s);
}

/* Memory is bounded by the text: so many columns and lines do not fit together, which is told by a line. */
static void bounded(void) {
    enum { WIDE = 20000, LONG = 200000 };
    size_t bytes = WIDE + WIDE + LONG, at = 0, i;
    char error[TEXT_ERROR], *text = (char *)malloc(bytes);
    series s;
    for (int row = 0; row < 2; row++)
        for (i = 0; i < WIDE; i++) text[at++] = i + 1 < WIDE ? ',' : '\n';
    while (at < bytes) text[at++] = '\n';
    CHECK(!series_parse(&s, text, bytes, "the/file", NULL, 0, error));
    CHECK_THAT(strstr(error, "line 2"), "%s", error);
}

int main(void) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) one_case(&cases[i]);
    bounded();
    return check_end();
}
