/* positions.h - how far cmha_rotation_table is from angles that no product rounds: each is the sum of two,
   the larger of which is exact, a position of 27 bits by half a frequency's digits. Include it after
   check.h. */
#ifndef POSITIONS_H
#define POSITIONS_H

static double positions_apart(void) {
    enum { P = 32, N = 5 };
    const ptrdiff_t starts[] = {0, 1000000, -1000000, 123456789};
    double omega[P], worst = 0;
    cmha_real table[N * 2 * P];
    cmha_frequencies(CMHA_FREQUENCY_ROPE, 10000, P, NULL, omega);
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        cmha_rotation_table(omega, P, N, starts[s], table);
        for (size_t r = 0; r < N; r++)
            for (size_t j = 0; j < P; j++) {
                double at = (double)starts[s] + (double)r, half = (double)(float)omega[j];
                double a = at * half, b = at * (omega[j] - half);
                double cosine = cos(a) * cos(b) - sin(a) * sin(b), sine = sin(a) * cos(b) + cos(a) * sin(b);
                worst = fmax(worst, fabs(cosine - (double)table[r * 2 * P + j]));
                worst = fmax(worst, fabs(sine - (double)table[r * 2 * P + P + j]));
            }
    }
    return worst;
}

#endif
