/* voices.h - what a recogniser of words hears of a recording, and the changes that training makes of it so
   that other voices, rooms and microphones are less of a surprise. Include it after cmha.h.
   Heard are cepstra of the power in bands that lie evenly on the mel scale. In place of a power stands its
   rank among all that was heard of the same speaker in that band, as the deviate of a normal distribution:
   his loudness, his microphone's colour and how far its noise reaches up are gone. A position is
   VOICE_CONTEXT frames of VOICE_CEPSTRA numbers, the middle one and those around it. Nothing here fails but
   for want of memory; all is finite where the samples are. */
#ifndef VOICES_H
#define VOICES_H

#include "audio.h"
#include "text.h"

enum {
    VOICE_BANDS = 24,
    VOICE_CEPSTRA = 13,            /* of a frame */
    VOICE_CONTEXT = 7,             /* frames of a position, 3/8 of a window apart */
    VOICE_WIDTH = VOICE_CEPSTRA * VOICE_CONTEXT,
    VOICE_RANKS = 65,              /* levels of a band that are known of a speaker */
    VOICE_FEW = 100,               /* frames from which on his bands count for more than all together */
    VOICE_PART = AUDIO_RATE / 100, /* samples that are loud or quiet together */
    VOICE_EVERY = 2                /* frames from one position to the next */
};

#define VOICE_FLOOR 1e-3 /* of a recording's mean power in a band */

/* How much is changed at most; 0 of each changes nothing. */
typedef struct voice_strength {
    double speed;   /* [0, 0.5]: played faster or slower by this share, pitch and all */
    double stretch; /* [0, 0.5]: windows lie closer or wider by this share, at the same pitch */
    double warp;    /* [0, 0.5]: frequencies times 1 - this to 1 + this, as of another vocal tract */
    double noise;   /* [0, 1]: noise with so much of the recording's root mean square, and another floor */
    double echo;    /* [0, 0.9]: echoes, each so much as loud as the one before */
    double pad;     /* [0, 1]: silence of so many seconds before and behind, or a tenth of that cut off */
    double colour;  /* [0, 4]: bands are made louder or softer, smoothly, by so many nepers of power */
    double masks;   /* [0, 1]: so much of the bands, and half as much of the frames, is hidden */
} voice_strength;

/* What is done to one recording */
typedef struct voice_change {
    double speed, stretch, warp; /* 1: nothing */
    double bend, fold;           /* bands by which frequencies are moved, most in the middle; at its sides */
    double swing, phase;         /* of the steps from frame to frame: their change, and where it begins */
    double noise, dull;          /* ratio of root mean squares; how much the noise is low, from 0 to 1 */
    double floor;                /* what is less than this share of the mean power is not heard */
    double echo, delay;          /* how loud an echo is, and after how many samples it comes */
    double before, behind;       /* samples of silence; negative: cut off */
    double tilt, bow, turn;      /* of the colour */
    size_t band, bands;          /* hidden are `bands` bands from `band` on; of VOICE_BANDS */
    double frame, frames;        /* and such a share of the frames from that share on */
} voice_change;

/* What is known of a speaker: levels[b][r] is what a share (r + 1/2) / VOICE_RANKS of his frames is below */
typedef struct voice_known {
    double levels[VOICE_BANDS][VOICE_RANKS];
} voice_known;

/* ---- Changes ---- */

static inline double voice_between(double low, double high, cmha_rng *rng) {
    return low + (high - low) * cmha_rng_uniform(rng);
}

/* What changes nothing */
static inline voice_change voice_same(void) {
    voice_change c;
    memset(&c, 0, sizeof c);
    c.speed = c.stretch = c.warp = 1;
    c.floor = VOICE_FLOOR;
    return c;
}

/* Draws changes of a strength at most; always as many random numbers. */
static inline voice_change voice_draw(const voice_strength *s, cmha_rng *rng) {
    voice_change c = voice_same();
    double loud, u;
    c.speed = voice_between(1 - s->speed, 1 + s->speed, rng);
    c.stretch = voice_between(1 - s->stretch, 1 + s->stretch, rng);
    c.warp = voice_between(1 - s->warp, 1 + s->warp, rng);
    c.bend = VOICE_BANDS / 8 * s->warp * voice_between(-1, 1, rng);
    c.fold = c.bend / 2 * voice_between(-1, 1, rng);
    c.swing = s->stretch * voice_between(0, 0.5, rng);
    c.phase = voice_between(0, 6.283185307179586, rng);
    loud = cmha_rng_uniform(rng);
    c.noise = s->noise * exp(-5 * loud); /* any level from -43 dB of the most on */
    c.floor = VOICE_FLOOR * exp(23 * s->noise * voice_between(-1, 1, rng));
    c.echo = s->echo * cmha_rng_uniform(rng);
    c.delay = AUDIO_RATE * voice_between(0.01, 0.03, rng);
    c.dull = voice_between(0, 0.95, rng);
    c.before = AUDIO_RATE * s->pad * voice_between(-0.1, 1, rng);
    c.behind = AUDIO_RATE * s->pad * voice_between(-0.1, 1, rng);
    c.tilt = s->colour * voice_between(-1, 1, rng);
    c.bow = s->colour * voice_between(-1, 1, rng);
    c.turn = voice_between(0, 6.283185307179586, rng);
    u = s->masks * cmha_rng_uniform(rng);
    c.bands = (size_t)(u * VOICE_BANDS);
    c.band = (size_t)cmha_rng_below(rng, VOICE_BANDS - c.bands + 1);
    c.frames = 0.5 * s->masks * cmha_rng_uniform(rng); /* an s is short */
    c.frame = voice_between(0, 1 - c.frames, rng);
    return c;
}

/* Draws the changes of another word that the same voice says in the same room: the vocal tract is nearly the
   same, the microphone is, the pace and the noise are half the word's own. */
static inline voice_change voice_again(const voice_change *voice, const voice_strength *s, cmha_rng *rng) {
    const double own = 0.2;
    voice_change c = voice_draw(s, rng);
    c.speed = 0.5 * (voice->speed + c.speed);
    c.warp = voice->warp + own * (c.warp - 1);
    c.bend = voice->bend + own * c.bend;
    c.fold = voice->fold + own * c.fold;
    c.tilt = voice->tilt + own * c.tilt;
    c.bow = voice->bow + own * c.bow;
    c.turn = voice->turn;
    c.floor = pow(voice->floor, 0.7) * pow(c.floor, 0.3);
    c.noise = voice->noise * exp(voice_between(-1, 1, rng));
    c.dull = voice->dull;
    c.echo = voice->echo;
    c.delay = voice->delay;
    return c;
}

/* ---- Samples ---- */

/* The power of the differences of samples in part p, 10 ms: in them the quiet hiss of an f or s counts. */
static inline double voice_part(const float *x, size_t p) {
    double power = 0;
    for (size_t i = p * VOICE_PART + 1; i < (p + 1) * VOICE_PART; i++) {
        double step = (double)x[i] - (double)x[i - 1];
        power += step * step;
    }
    return power;
}

/* Leaves out what is more than 40 dB below the loudest 10 ms, at both ends: *begin becomes the first sample
   that is kept, and the number of them is returned. Where there is only silence all is kept. */
static inline size_t voice_trim(const float *x, size_t n, size_t *begin) {
    size_t parts = n / VOICE_PART, first = parts, last = 0, p;
    double loudest = 0;
    *begin = 0;
    for (p = 0; p < parts; p++) loudest = fmax(loudest, voice_part(x, p));
    for (p = 0; p < parts; p++) {
        if (!(voice_part(x, p) > 1e-4 * loudest)) continue;
        first = p < first ? p : first;
        last = p;
    }
    if (first == parts) return n;
    first -= first > 0; /* a part more on either side */
    last += last + 1 < parts;
    *begin = first * VOICE_PART;
    return last + 1 == parts ? n - *begin : (last + 1 - first) * VOICE_PART;
}

/* How many samples of n are heard with that change; at least 1. */
static inline size_t voice_length(size_t n, const voice_change *c) {
    double length = ((double)n + c->before + c->behind) / c->speed;
    return length < 1 ? 1 : (size_t)length;
}

/* Writes these voice_length(n, c) samples: x at another speed, linear between two samples, silent outside. */
static inline void voice_play(const float *x, size_t n, const voice_change *c, float *to) {
    size_t count = voice_length(n, c), i, k;
    for (i = 0; i < count; i++) {
        double at = c->speed * (double)i - c->before, part;
        to[i] = 0;
        if (at < 0 || !(at < (double)n)) continue;
        k = (size_t)at;
        part = at - (double)k;
        to[i] = (float)((1 - part) * (double)x[k] + part * (double)x[k + 1 < n ? k + 1 : k]);
    }
}

/* Adds echoes of echoes, from two walls. */
static inline void voice_echo(float *x, size_t n, const voice_change *c) {
    if (!(c->echo > 0)) return;
    for (size_t wall = 0; wall < 2; wall++) {
        size_t delay = (size_t)(wall ? 0.73 * c->delay : c->delay) + 1;
        for (size_t i = delay; i < n; i++) x[i] += (float)(c->echo * (double)x[i - delay]);
    }
}

/* Adds noise, white or lower, of a root mean square in proportion to that of the samples. */
static inline void voice_noise(float *x, size_t n, const voice_change *c, cmha_rng *rng) {
    double sum = 0, low = 0, size;
    size_t i;
    if (!(c->noise > 0)) return;
    for (i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    size = c->noise * sqrt(sum / (double)(n ? n : 1)) * sqrt(1 - c->dull * c->dull);
    for (i = 0; i < n; i++) {
        low = c->dull * low + voice_between(-1.7320508, 1.7320508, rng);
        x[i] += (float)(size * low);
    }
}

/* ---- Bands ---- */

/* How a change's frames lie: samples of a window and from one to the next */
typedef struct voice_frames {
    size_t window, n;
    double step;
} voice_frames;

/* Samples from a frame to the next */
static inline size_t voice_step(size_t window) { return 3 * window / 8; }

static inline voice_frames voice_frames_of(size_t count, size_t window, const voice_change *c) {
    voice_frames f;
    f.window = window;
    f.step = c->stretch * (double)voice_step(window);
    f.n = count <= window ? 1 : 1 + (size_t)ceil((double)(count - window) / f.step);
    return f;
}

/* The first sample of frame t */
static inline size_t voice_begin(const voice_frames *f, size_t t, const voice_change *c) {
    double turn = 6.283185307179586, n = (double)f->n, at = (double)t;
    if (c->swing > 0) at += c->swing * n / turn * (sin(turn * at / n + c->phase) - sin(c->phase));
    return at > 0 ? (size_t)(at * f->step) : 0;
}

static inline size_t voice_positions(size_t frames) { return (frames + VOICE_EVERY - 1) / VOICE_EVERY; }

static inline double voice_mel(double hertz) { return log(1 + hertz / 700); }

/* Where each of the bins 0 to window/2 lies among the bands, as a number from 0 to VOICE_BANDS + 1; band b is
   strongest at b + 1. A warp bends frequencies so that the highest stays. */
static inline void voice_places(size_t window, const voice_change *c, double *place) {
    const double low = voice_mel(60), high = voice_mel(AUDIO_RATE / 2.0), top = AUDIO_RATE / 2.0;
    double warp = c->warp, knee = 0.8 * top / fmax(warp, 1);
    for (size_t i = 0; i <= window / 2; i++) {
        double f = (double)i * AUDIO_RATE / (double)window, bent = warp * f;
        if (f > knee) bent = warp * knee + (f - knee) * (top - warp * knee) / (top - knee);
        double u = (voice_mel(bent) - low) / (high - low);
        double moved = c->bend * sin(3.141592653589793 * u) + c->fold * sin(6.283185307179586 * u);
        place[i] = fmax(0, u * (VOICE_BANDS + 1) + moved);
    }
}

/* Adds the power of a bin to the two bands that it lies between. */
static inline void voice_share(double power, double place, double *bands) {
    size_t k = (size_t)place;
    double part = place - (double)k;
    if (k > 0 && k <= VOICE_BANDS) bands[k - 1] += (1 - part) * power;
    if (k < VOICE_BANDS) bands[k] += part * power;
}

/* Writes the power in bands of all frames, bands [f->n, VOICE_BANDS]; two frames are transformed at once. */
static inline void voice_powers(const float *x, size_t count, const voice_frames *f, const voice_change *c,
                                double *bands) {
    double re[AUDIO_MOST], im[AUDIO_MOST], hann[AUDIO_MOST];
    double place[AUDIO_MOST / 2 + 1];
    size_t N = f->window, t, i, k;
    voice_places(N, c, place);
    memset(bands, 0, f->n * VOICE_BANDS * sizeof *bands);
    for (i = 0; i < N; i++) hann[i] = 0.5 - 0.5 * cos(6.283185307179586 * ((double)i + 0.5) / (double)N);
    for (t = 0; t < f->n; t += 2) {
        for (k = 0; k < 2; k++) {
            size_t from = voice_begin(f, t + k, c);
            double *to = k ? im : re;
            for (i = 0; i < N; i++) {
                double before = from + i && from + i <= count ? (double)x[from + i - 1] : 0;
                to[i] = from + i < count ? hann[i] * ((double)x[from + i] - 0.95 * before) : 0;
            }
        }
        audio_fft(N, re, im);
        for (i = 1; i < N / 2; i++) {
            double a = re[i] + re[N - i], b = im[i] - im[N - i];
            double p = im[i] + im[N - i], q = re[N - i] - re[i];
            voice_share(a * a + b * b, place[i], bands + t * VOICE_BANDS);
            if (t + 1 < f->n) voice_share(p * p + q * q, place[i], bands + (t + 1) * VOICE_BANDS);
        }
    }
}

/* Makes bands louder or softer. */
static inline void voice_colour(double *bands, size_t n, const voice_change *c) {
    if (c->tilt == 0 && c->bow == 0) return;
    for (size_t b = 0; b < VOICE_BANDS; b++) {
        double place = (double)b / (VOICE_BANDS - 1);
        double factor = exp(c->tilt * (2 * place - 1) + c->bow * cos(6.283185307179586 * place + c->turn));
        for (size_t t = 0; t < n; t++) bands[t * VOICE_BANDS + b] *= factor;
    }
}

/* Makes powers logarithms above a floor; of silence 0. */
static inline void voice_logarithms(double *bands, size_t n, const voice_change *c) {
    size_t all = n * VOICE_BANDS, i;
    double mean = 0;
    for (i = 0; i < all; i++) mean += bands[i] / (double)all;
    for (i = 0; i < all && mean > 0; i++) bands[i] = log(1 + bands[i] / (c->floor * mean));
}

/* Returns the logarithms of the power in bands of n samples with a change, new memory [*frames, VOICE_BANDS],
   the caller's, or NULL where there is none. rng draws the noise; it may be NULL where c->noise is 0. */
static inline double *voice_bands(const float *x, size_t n, size_t window, const voice_change *c,
                                  cmha_rng *rng, size_t *frames) {
    size_t count = voice_length(n, c);
    voice_frames f = voice_frames_of(count, window, c);
    float *played = (float *)text_memory(NULL, count, 1, sizeof *played);
    double *bands = (double *)text_memory(NULL, f.n, VOICE_BANDS, sizeof *bands);
    *frames = f.n;
    if (played && bands) {
        voice_play(x, n, c, played);
        voice_echo(played, count, c);
        voice_noise(played, count, c, rng);
        voice_powers(played, count, &f, c, bands);
        voice_colour(bands, f.n, c);
        voice_logarithms(bands, f.n, c);
    } else {
        free(bands);
        bands = NULL;
    }
    free(played);
    return bands;
}

/* ---- Speakers ---- */

static inline int voice_order(const void *a, const void *b) {
    const double *x = (const double *)a, *y = (const double *)b;
    return (*x > *y) - (*x < *y);
}

/* Writes the VOICE_RANKS levels of n >= 1 numbers, which it sorts. */
static inline void voice_levels(double *x, size_t n, double *levels) {
    qsort(x, n, sizeof *x, voice_order);
    for (size_t r = 0; r < VOICE_RANKS; r++) {
        double at = ((double)r + 0.5) / VOICE_RANKS * (double)n - 0.5;
        size_t k = at > 0 ? (size_t)at : 0, next = k + 1 < n ? k + 1 : k;
        double part = fmax(0, at - (double)k);
        levels[r] = (1 - part) * x[k] + part * x[next];
    }
}

/* Gets to know a speaker from the bands of n recordings, bands[i] [frames[i], VOICE_BANDS]; 0 where there is
   no memory. Of few frames a band's levels say what was spoken more than who spoke: they are drawn to the
   levels of all bands together. */
static inline int voice_know(voice_known *known, double *const *bands, const size_t *frames, size_t n) {
    double all[VOICE_BANDS * VOICE_RANKS], together[VOICE_RANKS], *x, share;
    size_t count = 0, i, b, r, t, k;
    for (i = 0; i < n; i++) count += frames[i];
    x = (double *)text_memory(NULL, count + 1, 1, sizeof *x);
    if (!x || !count) {
        free(x);
        return 0;
    }
    for (b = 0; b < VOICE_BANDS; b++) {
        for (i = 0, k = 0; i < n; i++)
            for (t = 0; t < frames[i]; t++) x[k++] = bands[i][t * VOICE_BANDS + b];
        voice_levels(x, count, known->levels[b]);
    }
    memcpy(all, known->levels, sizeof all);
    voice_levels(all, VOICE_BANDS * VOICE_RANKS, together);
    share = VOICE_FEW / (VOICE_FEW + (double)count);
    for (b = 0; b < VOICE_BANDS; b++)
        for (r = 0; r < VOICE_RANKS; r++)
            known->levels[b][r] += share * (together[r] - known->levels[b][r]);
    free(x);
    return 1;
}

/* The deviates of a normal distribution below which are shares (r + 1/2) / VOICE_RANKS, an odd number of
   them; worked out once. */
static inline const double *voice_deviates(void) {
    static double deviates[VOICE_RANKS];
    for (size_t r = deviates[0] < 0 ? VOICE_RANKS : 0; r < VOICE_RANKS / 2; r++) {
        double low = -4, high = 4;
        for (int halves = 0; halves < 50; halves++) {
            double middle = 0.5 * (low + high);
            if (0.5 * erfc(-middle / sqrt(2)) < ((double)r + 0.5) / VOICE_RANKS) low = middle;
            else high = middle;
        }
        deviates[r] = 0.5 * (low + high);
        deviates[VOICE_RANKS - 1 - r] = -deviates[r];
    }
    return deviates;
}

/* The deviate of a number among levels: the middle one of those that it equals, linear between two. */
static inline double voice_deviate(double x, const double *levels) {
    const double *deviates = voice_deviates();
    size_t below = 0, from = 0, end = VOICE_RANKS;
    while (from < end) { /* how many levels are lower */
        size_t middle = (from + end) / 2;
        if (levels[middle] < x) from = middle + 1;
        else end = middle;
    }
    below = from;
    end = below;
    while (end < VOICE_RANKS && !(levels[end] > x)) end++;
    if (end > below) return 0.5 * (deviates[below] + deviates[end - 1]);
    if (below == 0) return deviates[0];
    if (below == VOICE_RANKS) return deviates[VOICE_RANKS - 1];
    double part = (x - levels[below - 1]) / (levels[below] - levels[below - 1]);
    return deviates[below - 1] + part * (deviates[below] - deviates[below - 1]);
}

/* Puts deviates in place of the logarithms of n frames. */
static inline void voice_level(double *bands, size_t n, const voice_known *known) {
    for (size_t t = 0; t < n; t++)
        for (size_t b = 0; b < VOICE_BANDS; b++, bands++) *bands = voice_deviate(*bands, known->levels[b]);
}

/* ---- Positions ---- */

/* Puts the mean, 0, in place of some bands and of some frames. */
static inline void voice_hide(double *bands, size_t n, const voice_change *c) {
    size_t first = (size_t)(c->frame * (double)n), end = (size_t)((c->frame + c->frames) * (double)n), t, b;
    for (t = 0; t < n; t++)
        for (b = 0; b < VOICE_BANDS; b++) {
            int hidden = (b >= c->band && b < c->band + c->bands) || (t >= first && t < end);
            if (hidden) bands[t * VOICE_BANDS + b] = 0;
        }
}

/* Writes the cepstra of a frame: cosines of its bands, the narrow ones amplified to be as large as the wide.
   They are smooth: neither a harmonic of the voice nor a formant's exact place is in them. */
static inline void voice_cepstra(const double *bands, double *to) {
    static double cosines[VOICE_CEPSTRA][VOICE_BANDS];
    size_t k, b;
    for (k = cosines[0][0] > 0 ? VOICE_CEPSTRA : 0; k < VOICE_CEPSTRA; k++)
        for (b = 0; b < VOICE_BANDS; b++)
            cosines[k][b] = cos(3.141592653589793 * (double)k * ((double)b + 0.5) / VOICE_BANDS) *
                            (1 + 8 * sin(3.141592653589793 * (double)k / 22)) / VOICE_BANDS;
    for (k = 0; k < VOICE_CEPSTRA; k++) {
        to[k] = 0;
        for (b = 0; b < VOICE_BANDS; b++) to[k] += cosines[k][b] * bands[b];
    }
}

/* Writes the positions of n frames, to [positions, VOICE_WIDTH]; 0 beyond the ends. */
static inline void voice_gather(const double *bands, size_t n, cmha_real *to) {
    double cepstra[VOICE_CEPSTRA];
    size_t every, t, k, c;
    for (every = 0; every < n; every += VOICE_EVERY)
        for (k = 0; k < VOICE_CONTEXT; k++, to += VOICE_CEPSTRA) {
            t = every + k;
            memset(to, 0, VOICE_CEPSTRA * sizeof *to);
            if (t < VOICE_CONTEXT / 2 || t >= n + VOICE_CONTEXT / 2) continue;
            voice_cepstra(bands + (t - VOICE_CONTEXT / 2) * VOICE_BANDS, cepstra);
            for (c = 0; c < VOICE_CEPSTRA; c++) to[c] = (cmha_real)cepstra[c];
        }
}

/* Makes of the logarithms of n frames, which it changes, what is heard of a speaker who is known: positions
   [voice_positions(n), VOICE_WIDTH]. */
static inline void voice_hear(double *bands, size_t n, const voice_known *known, const voice_change *c,
                              cmha_real *to) {
    voice_level(bands, n, known);
    voice_hide(bands, n, c);
    voice_gather(bands, n, to);
}

#endif
