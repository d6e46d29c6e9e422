/* The metrics of classification and regression: against values worked out by hand, and
   against the textbook on random data. */
#include "check.h"
#include "../examples/tools/metrics.h"

enum { MANY = 400 };

/* ----------------------------------------------- classes ------------------------------------------------ */

/* TP 3, FP 1, FN 2, TN 4 */
static const int32_t predicted[] = {1, 1, 1, 1, 0, 0, 0, 0, 0, 0}, wanted[] = {1, 1, 1, 0, 1, 1, 0, 0, 0, 0};

static void by_hand(void) {
    static const int32_t p3[] = {0, 0, 1, 1, 2, 2}, t3[] = {0, 1, 1, 1, 2, 0};
    CHECK_NEAR(metrics_accuracy(predicted, wanted, 10), 0.7, 1e-15);
    CHECK_NEAR(metrics_f1(predicted, wanted, 10, 1), 6.0 / 9, 1e-15);
    CHECK_NEAR(metrics_f1(predicted, wanted, 10, 0), 8.0 / 11, 1e-15);
    CHECK_NEAR(metrics_matthews(predicted, wanted, 10, 2), (3.0 * 4 - 1.0 * 2) / sqrt(4.0 * 5 * 5 * 6),
               1e-15);
    /* three classes: 4 of 6 agree; predicted 2 2 2, wanted 2 3 1: (24 - 12) / sqrt((36 - 12) (36 - 14)) */
    CHECK_NEAR(metrics_matthews(p3, t3, 6, 3), 12 / sqrt(24.0 * 22), 1e-15);
    CHECK_NEAR(metrics_matthews(p3, t3, 6, 9), 12 / sqrt(24.0 * 22),
               1e-15); /* classes nobody has change nothing */
    CHECK_NEAR(metrics_f1(p3, t3, 6, 2), 2.0 / 3, 1e-15);
}

static void degenerate(void) {
    static const int32_t same[] = {1, 1, 1}, odd[] = {0, 1, 7}, negative[] = {-1, 0, 1};
    int32_t many[49];
    size_t i;
    CHECK(metrics_accuracy(NULL, NULL, 0) == 0 && metrics_f1(NULL, NULL, 0, 1) == 0 &&
          metrics_matthews(NULL, NULL, 0, 2) == 0);
    CHECK(metrics_accuracy(same, same, 3) == 1 && metrics_f1(same, same, 3, 1) == 1);
    CHECK(metrics_matthews(same, same, 3, 2) == 0);    /* nothing but one class: a factor is 0 */
    CHECK(metrics_matthews(same, wanted, 3, 2) == 0 && metrics_matthews(predicted + 2, same, 3, 2) == 0);
    CHECK(metrics_f1(same, same, 3, 5) == 0);          /* neither predicted nor wanted */
    CHECK(isnan(metrics_matthews(odd, same, 3, 2)) && isnan(metrics_matthews(same, negative, 3, 2)));
    CHECK(isnan(metrics_matthews(same, same, 3, 0)));
    CHECK_NEAR(metrics_matthews(wanted, wanted, 10, 2), 1, 1e-15);
    for (i = 0; i < 10; i++) many[i] = !wanted[i];
    CHECK_NEAR(metrics_matthews(many, wanted, 10, 2), -1, 1e-15);
    for (i = 0; i < 49; i++) many[i] = i == 48;     /* 49 * (1 / 49) is not 1 */
    CHECK_NEAR(metrics_matthews(many, many, 49, 2), 1, 1e-15);
}

/* Random classes: Matthews is the Pearson correlation of two binary series, F1 the
   harmonic mean of precision and recall. */
static void against_formulas(void) {
    int32_t p[MANY], t[MANY];
    double x[MANY], y[MANY], both = 0, said = 0, meant = 0;
    size_t i;
    for (i = 0; i < MANY; i++) {
        t[i] = check_random() > 0.3, p[i] = check_random() > 0.5 ? t[i] : check_random() > 0;
        x[i] = p[i], y[i] = t[i];
        both += p[i] && t[i], said += p[i], meant += t[i];
    }
    CHECK_NEAR(metrics_matthews(p, t, MANY, 2), metrics_pearson(x, y, MANY), 1e-13);
    CHECK_NEAR(metrics_f1(p, t, MANY, 1), 2 / (said / both + meant / both), 1e-14);
}

/* --------------------------------------------- correlations --------------------------------------------- */

static void lines(void) {
    static const double x[] = {1, 2, 3, 4, 5}, y[] = {2, 1, 4, 3, 7}, flat[] = {0.1, 0.1, 0.1, 0.1, 0.1};
    double up[5], down[5], scratch[20];
    size_t i;
    for (i = 0; i < 5; i++) up[i] = 3 * x[i] - 100, down[i] = -1e-9 * x[i];
    CHECK_NEAR(metrics_pearson(x, up, 5), 1, 1e-12);
    CHECK_NEAR(metrics_pearson(x, down, 5), -1, 1e-12);
    /* centred: x -2 -1 0 1 2; 5 y -7 -12 3 -2 18: products 60, x^2 10, y^2 530 / 25 */
    CHECK_NEAR(metrics_pearson(x, y, 5), 60.0 / 5 / sqrt(10 * 530.0 / 25), 1e-14);
    CHECK_NEAR(metrics_spearman(x, y, 5, scratch), 1 - 6 * 4.0 / (5 * 24),
               1e-14); /* no ties: 1 - 6 sum d^2 / (n (n^2 - 1)) */
    CHECK(metrics_pearson(flat, x, 5) == 0 && metrics_pearson(x, flat, 5) == 0 &&
          metrics_spearman(flat, x, 5, scratch) == 0);
    CHECK(metrics_pearson(x, y, 0) == 0 && metrics_pearson(x, y, 1) == 0 &&
          metrics_spearman(x, y, 1, scratch) == 0);
    CHECK(metrics_pearson(NULL, NULL, 0) == 0 && metrics_spearman(x, y, 0, scratch) == 0);
}

static void ties(void) {
    static const double x[] = {3, 1, 3, 2, 3}, y[] = {10, 20, 30, 20, 50};
    double scratch[20];
    /* ranks of x 4 1 4 2 4, of y 1 2.5 4 2.5 5, both of mean 3: products 1 * -2 + -2 * -0.5 + 1 * 1 + -1 *
       -0.5 + 1 * 2 = 2.5; squares 8 and 9.5 */
    CHECK_NEAR(metrics_spearman(x, y, 5, scratch), 2.5 / sqrt(8 * 9.5), 1e-14);
}

static void extremes(void) {
    const double inf = HUGE_VAL, none = (double)NAN;
    double x[] = {1, 2, 3, 4}, big[] = {1e308, -1e308, 1e308, 0}, small[] = {1e-320, -1e-320, 1e-320, 0};
    double ends[] = {-inf, 0, 5, inf};
    double scratch[16];
    CHECK_NEAR(metrics_pearson(big, small, 4), 1, 1e-3);
    CHECK_NEAR(metrics_pearson(x, big, 4), -0.5 / sqrt(5 * 2.75),
               1e-14); /* the products of -1.5 -0.5 0.5 1.5 with 1 -1 1 0 */
    CHECK(metrics_spearman(x, ends, 4, scratch) == 1);
    CHECK(isnan(metrics_pearson(x, ends, 4)));
    x[2] = none;
    CHECK(isnan(metrics_pearson(x, big, 4)) && isnan(metrics_pearson(big, x, 4)));
    CHECK(isnan(metrics_spearman(x, big, 4, scratch)) && isnan(metrics_spearman(big, x, 4, scratch)));
}

/* Ranks counted pair by pair, correlated in the one-pass form */
static void against_pairs(void) {
    double x[MANY], y[MANY], scratch[4 * MANY], sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0, n = MANY;
    size_t i, j;
    for (i = 0; i < MANY; i++) x[i] = floor(20 * check_random()), y[i] = x[i] + floor(30 * check_random());
    for (i = 0; i < MANY; i++) {
        double rx = 0.5, ry = 0.5;
        for (j = 0; j < MANY; j++) {
            rx += x[j] < x[i] ? 1 : x[j] > x[i] ? 0 : 0.5;
            ry += y[j] < y[i] ? 1 : y[j] > y[i] ? 0 : 0.5;
        }
        sx += rx, sy += ry, sxx += rx * rx, syy += ry * ry, sxy += rx * ry;
    }
    CHECK_NEAR(metrics_spearman(x, y, MANY, scratch),
               (n * sxy - sx * sy) / sqrt((n * sxx - sx * sx) * (n * syy - sy * sy)), 1e-10);
}

/* Of every class what metrics_f1 counts example by example, and by hand: 2 of 3 called 0 are 0, 2 of 4. */
static void of_classes(void) {
    enum { CLASSES = 5 };
    static const size_t small[4] = {2, 2, 1, 5}, none[9] = {3, 0, 0, 1, 0, 0, 0, 0, 0};
    int32_t said[MANY], is[MANY];
    size_t counts[CLASSES * CLASSES] = {0}, i, all = 0;
    metrics_class m = metrics_of_class(small, 2, 0);
    CHECK_NEAR(m.precision, 2.0 / 3, 1e-15), CHECK_NEAR(m.recall, 0.5, 1e-15);
    CHECK_NEAR(m.f1, 4.0 / 7, 1e-15);
    CHECK(m.wanted == 4 && m.predicted == 3);
    m = metrics_of_class(none, 3, 1); /* never said */
    CHECK(!(m.precision > 0) && !(m.recall > 0) && !(m.f1 > 0) && m.wanted == 1 && !m.predicted);
    m = metrics_of_class(none, 3, 2); /* not there at all */
    CHECK(!(m.precision > 0) && !(m.recall > 0) && !(m.f1 > 0) && !m.wanted && !m.predicted);
    for (i = 0; i < MANY; i++) {
        is[i] = (int32_t)check_below(CLASSES);
        said[i] = check_below(2) ? is[i] : (int32_t)check_below(CLASSES);
        counts[is[i] * CLASSES + said[i]]++;
    }
    for (i = 0; i < CLASSES; i++) {
        m = metrics_of_class(counts, CLASSES, i), all += m.wanted;
        CHECK_NEAR(m.f1, metrics_f1(said, is, MANY, (int32_t)i), 1e-14);
        CHECK_NEAR(m.f1, 2 * m.precision * m.recall / (m.precision + m.recall), 1e-14);
    }
    CHECK(all == MANY);
}

int main(void) {
    by_hand();
    of_classes();
    degenerate();
    against_formulas();
    lines();
    ties();
    extremes();
    against_pairs();
    return check_end();
}
