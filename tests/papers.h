/* What test_papers.c and grad_papers.c share: CoPE's RoPE as its authors have it, literally. */
#ifndef PAPERS_TEST_H
#define PAPERS_TEST_H

#include "../bench/evidence/papers.c"
#include "../bench/evidence/runs.c"
#include "../bench/evidence/tools.c"

/* No run keeps its state here. */
int rows_origin(FILE *file, const evidence_run *run) { return (void)file, (void)run, 0; }

/* x [d] at a position: cosines and sines of neighbours, each twice; the half-split rotation. */
static inline void literal_mixed(const double *x, size_t d, size_t position, double *y) {
    for (size_t c = 0; c < d; c++) {
        double angle = (double)position * pow(10000, -2.0 * (double)(c / 2) / (double)d);
        double turned = c < d / 2 ? -x[c + d / 2] : x[c - d / 2];
        y[c] = x[c] * cos(angle) + turned * sin(angle);
    }
}

#endif
