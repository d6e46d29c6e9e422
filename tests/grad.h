/* Gradient checks: central differences of fourth order in double, at random coordinates and along one
   random direction per input (so that every element takes part), signed, with a guard against a
   gradient that is zero everywhere. */
#ifndef GRAD_H
#define GRAD_H

#include "check.h"

/* One input of a function: its values, and the gradient the library found */
typedef struct grad_input {
    const char *name;
    cmha_real *x;
    const cmha_real *grad;
    size_t n;
} grad_input;

typedef double (*grad_function)(void *user); /* the loss at the present values of the inputs */

/* d/dt of f(x + t u) at 0 with step h; u NULL: along coordinate i. Leaves x bitwise as it was. */
static inline double grad_difference(grad_function f, void *user, cmha_real *x, size_t n, const cmha_real *u,
                                     size_t i, double h) {
    static const double at[4] = {-2, -1, 1, 2}, weight[4] = {1, -8, 8, -1};
    cmha_real *kept = (cmha_real *)check_alloc(n, sizeof *kept);
    double sum = 0;
    size_t j;
    int s;
    memcpy(kept, x, n * sizeof *x);
    for (s = 0; s < 4; s++) {
        if (u)
            for (j = 0; j < n; j++) x[j] = kept[j] + (cmha_real)(at[s] * h) * u[j];
        else x[i] = kept[i] + (cmha_real)(at[s] * h);
        sum += weight[s] * f(user);
        memcpy(x, kept, n * sizeof *x);
    }
    free(kept);
    return sum / (12 * h);
}

/* A mismatch is tried again with smaller steps: with a delta that is no integer the feature map jumps where a
   phase crosses the negative real axis, and such a crossing inside the interval of one step size is not
   inside a smaller one's. A wrong gradient fails at every step size. */
static inline int grad_agrees(grad_function f, void *user, cmha_real *x, size_t n, const cmha_real *u,
                              size_t i, double want, double tolerance, double *got) {
    static const double step[3] = {2e-4, 2e-5, 3e-6};
    int s;
    for (s = 0; s < 3; s++) {
        *got = grad_difference(f, user, x, n, u, i, step[s]);
        if (fabs(*got - want) <= tolerance) return 1;
    }
    return 0;
}

/* One check per input: `samples` coordinates (all if there are no more) and one direction. */
static inline void grad_check(const char *label, grad_function f, void *user, const grad_input *in, int n_in,
                              size_t samples) {
    const double relative = 3e-7;
    int k;
    for (k = 0; k < n_in; k++) {
        size_t n = in[k].n, s, i, count = n < samples ? n : samples;
        double largest = check_largest(in[k].grad, n), got = 0, want, slope = 0;
        cmha_real *u = check_array(n, 1);
        int ok = check_finite(in[k].grad, n) && largest > 1e-12;
        if (!ok)
            CHECK_THAT(0, "%s: the gradient of %s is %s", label, in[k].name,
                       largest > 1e-12 ? "not finite" : "zero");
        for (s = 0; ok && s < count; s++) {
            i = count == n ? s : check_below(n);
            want = in[k].grad[i];
            ok = grad_agrees(f, user, in[k].x, n, NULL, i, want, relative * largest, &got);
            if (!ok)
                CHECK_THAT(0, "%s: d/d%s[%zu] is %.12g, differences say %.12g", label, in[k].name, i, want,
                           got);
        }
        for (i = 0; i < n; i++) slope += (double)u[i] * in[k].grad[i];
        if (ok) {
            ok =
                grad_agrees(f, user, in[k].x, n, u, 0, slope, relative * largest * sqrt((double)n + 9), &got);
            CHECK_THAT(ok, "%s: slope in %s is %.12g, differences say %.12g", label, in[k].name, slope, got);
        }
        free(u);
    }
}

static inline double grad_dot(const cmha_real *a, const cmha_real *b, size_t n) {
    double sum = 0;
    size_t i;
    for (i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

#endif
