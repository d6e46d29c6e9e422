/* Makes labelled radio signals with liquid-dsp (Debian: libliquid-dev), for examples/signal.c:
       cc -O3 -march=native -fopenmp -I. examples/signal_data.c -o build/signal_data -lliquid -lopenblas -lm
       build/signal_data [OPTION...] --out signal.safetensors             (--help lists everything)
   A run is one transmitter and one channel: a modulation at a symbol rate of its own, with the timing,
   carrier offset, phase, fading, echoes and noise that belong to it. It gives a few frames, some time apart.
   Training, validation and test have different runs. The file has

       iq     [n, samples]  C64, the frames, of mean power 1 over a run
       label  [n]           I64, the class: a place in the metadata "classes", "bpsk,qpsk,..."
       snr    [n]           F32, dB: power of the run's signal over that of its noise
       run    [n]           I64
       set    [n]           I64, 0 training, 1 validation, 2 test
   and in its metadata the classes, seed, offset, echo, phase and what made it. */
#include <complex.h> /* before liquid.h, which takes C's complex numbers, and before cmha.h's cblas.h */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "signal_data"
#define NO_ROWS
#include "tools/options.h"

#include <liquid/liquid.h>
#include <math.h>

#define TURN 6.283185307179586

enum { OUT, RUNS, FRAMES, SAMPLES, LOW, HIGH, STEP, OFFSET, ECHO, PHASE, SEED, HELP, N_OPTIONS };
static setting option[N_OPTIONS] = {
    {"--out", "signal.safetensors", "the file"},
    {"--runs", "32", "training runs of each class and level; validation and test have a quarter each"},
    {"--frames", "4", "frames of a run"},
    {"--samples", "256", "complex samples of a frame"},
    {"--low", "-10", "the lowest level of signal over noise in dB"},
    {"--high", "20", "the highest"},
    {"--step", "5", "from a level to the next"},
    {"--offset", "0.002", "largest carrier offset, in turns per sample"},
    {"--echo", "0.5", "share of the runs with echoes"},
    {"--phase", "1", "0: training runs come with phase 0 and no fading or offset; the others as ever"},
    {"--seed", "1", "of everything"},
    {"--help", NULL, "this page"}};

/* The modulations: what makes each, and with which number. */
enum { LINEAR, FREQUENCY_SHIFT, GAUSSIAN_SHIFT, AMPLITUDE, FREQUENCY };
static const struct { const char *name; int maker, number; } kind[] = {
    {"bpsk", LINEAR, LIQUID_MODEM_PSK2},    {"qpsk", LINEAR, LIQUID_MODEM_PSK4},
    {"psk8", LINEAR, LIQUID_MODEM_PSK8},    {"ask4", LINEAR, LIQUID_MODEM_ASK4},
    {"qam16", LINEAR, LIQUID_MODEM_QAM16},  {"qam64", LINEAR, LIQUID_MODEM_QAM64},
    {"apsk16", LINEAR, LIQUID_MODEM_APSK16}, {"fsk2", FREQUENCY_SHIFT, 1},
    {"fsk4", FREQUENCY_SHIFT, 2},           {"gmsk", GAUSSIAN_SHIFT, 0},
    {"dsb", AMPLITUDE, LIQUID_AMPMODEM_DSB}, {"ssb", AMPLITUDE, LIQUID_AMPMODEM_USB},
    {"fm", FREQUENCY, 0}};
enum { CLASSES = sizeof kind / sizeof *kind, WARM = 512 };

static size_t frames, samples, span; /* span: samples of a run, with the gaps between its frames */
static double offset, echoes;        /* largest carrier offset; share of runs with echoes */
static cmha_rng rng;                 /* of the run */

static double between(double low, double high) { return low + (high - low) * cmha_rng_uniform(&rng); }

static float complex noise(void) {
    double re = cmha_rng_normal(&rng), im = cmha_rng_normal(&rng);
    return (float complex)((re + I * im) * sqrt(0.5));
}

/* What an analogue transmitter sends: tones of a band like that of speech, louder and softer by turns. */
static void message(float *x, size_t n) {
    double w[12], a[12], p[12], slow = between(0.0005, 0.002), start = between(0, TURN), sum = 0;
    size_t t;
    int k;
    for (k = 0; k < 12; k++)
        w[k] = TURN * between(0.004, 0.05), a[k] = between(0.2, 1) / sqrt(w[k]), p[k] = between(0, TURN);
    for (t = 0; t < n; t++) {
        double v = 0;
        for (k = 0; k < 12; k++) v += a[k] * cos(w[k] * (double)t + p[k]);
        x[t] = (float)(v * (0.6 + 0.4 * cos(TURN * slow * (double)t + start)));
        sum += (double)(x[t] * x[t]);
    }
    for (t = 0; t < n; t++) x[t] *= (float)(0.35 / sqrt(sum / (double)n)); /* seldom beyond 1 */
    for (t = 0; t < n; t++) x[t] = x[t] > 1 ? 1 : x[t] < -1 ? -1 : x[t];
}

/* Writes n samples of symbols of `k` samples each, from a modulator that is asked symbol by symbol. */
static void shift_keying(int bits, unsigned k, float complex *y, size_t n) {
    float complex symbol[16];
    fskmod fsk = bits ? fskmod_create((unsigned)bits, k, (float)between(0.15, 0.35)) : NULL;
    gmskmod gmsk = bits ? NULL : gmskmod_create(k, 3, (float)between(0.25, 0.5));
    for (size_t t = 0; t < n; t++) {
        unsigned s = (unsigned)cmha_rng_below(&rng, 1u << (bits ? bits : 1));
        if (t % k == 0 && bits) fskmod_modulate(fsk, s, symbol);
        else if (t % k == 0) gmskmod_modulate(gmsk, s, symbol);
        y[t] = symbol[t % k];
    }
    if (fsk) fskmod_destroy(fsk);
    if (gmsk) gmskmod_destroy(gmsk);
}

/* Writes n samples as the transmitter sends them; WARM of them go before, while filters fill. */
static void transmit(size_t class, float complex *y, size_t n) {
    int number = kind[class].number, maker = kind[class].maker;
    float *x = take(n, sizeof *x);
    if (maker == AMPLITUDE || maker == FREQUENCY) message(x, n);
    if (maker == LINEAR) { /* root-raised cosines, at any rate: symbols fall anywhere between samples */
        symstreamrcf s = symstreamrcf_create_linear(LIQUID_FIRFILT_RRC, (float)between(0.12, 0.25), 7,
                                                    (float)between(0.2, 0.5), number);
        symstreamrcf_write_samples(s, y, (unsigned)n);
        symstreamrcf_destroy(s);
    } else if (maker == AMPLITUDE) {
        int single = number != LIQUID_AMPMODEM_DSB;
        if (single && cmha_rng_below(&rng, 2)) number = LIQUID_AMPMODEM_LSB;
        ampmodem m = ampmodem_create((float)between(0.5, 1), (liquid_ampmodem_type)number, single);
        for (size_t t = 0; t < n; t++) ampmodem_modulate(m, x[t], y + t);
        ampmodem_destroy(m);
    } else if (maker == FREQUENCY) {
        freqmod m = freqmod_create((float)between(0.03, 0.12));
        for (size_t t = 0; t < n; t++) freqmod_modulate(m, x[t], y + t);
        freqmod_destroy(m);
    } else { /* whole samples a symbol; then at another rate, so that symbols fall anywhere */
        size_t more = n + n / 4 + WARM;
        float complex *z = take(more, sizeof *z);
        double rate = between(0.85, 1.2);
        unsigned k = (unsigned)between(4, 8.999), written = 0, block = 256;
        shift_keying(maker == FREQUENCY_SHIFT ? number : 0, k, z, more);
        msresamp_crcf r = msresamp_crcf_create((float)rate, 60);
        float complex *out = take(2 * block + 64, sizeof *out);
        for (size_t t = 0, done = 0; t + block <= more && done < n; t += block) {
            msresamp_crcf_execute(r, z + t, block, out, &written);
            for (unsigned i = 0; i < written && done < n; i++) y[done++] = out[i];
        }
        msresamp_crcf_destroy(r);
        free(out), free(z);
    }
    free(x);
}

/* Sends a run through its channel and cuts the frames out of it: to [frames, 2 samples], planes. */
static void receive(float complex *y, size_t n, double snr, int still, cmha_real *to) {
    double K = pow(10, between(0, 1.5)), doppler = between(0, 2e-4), power = 0, gain;
    double complex wave[8], speed[8], carrier = cexp(I * (still ? 0 : between(0, TURN))), turn;
    float complex path[4] = {1, 0, 0, 0};
    size_t t, f, delay;
    turn = cexp(-I * TURN * (still ? 0 : between(-offset, offset)));
    for (int k = 0; k < 8; k++)
        wave[k] = cexp(I * between(0, TURN)), speed[k] = cexp(I * TURN * doppler * cos(between(0, TURN)));
    for (int k = 1; k < 4; k++) path[k] = (float)(0.4 / k) * noise();
    if (still || cmha_rng_uniform(&rng) >= echoes) path[1] = path[2] = path[3] = 0;
    for (t = n; t-- > WARM;) { /* backwards: an echo needs what came before */
        double complex sum = 0, fade = sqrt(K / (K + 1));
        for (delay = 0; delay < 4; delay++) sum += (double complex)(path[delay] * y[t - 2 * delay]);
        for (int k = 0; k < 8 && !still; k++) /* Rician: the direct path, and eight from everywhere */
            fade += (wave[k] *= speed[k]) / sqrt(8 * (K + 1));
        y[t] = (float complex)(sum * (still ? 1 : fade) * (carrier *= turn));
        power += creal((double complex)(y[t] * conjf(y[t]))) / (double)(n - WARM);
    }
    gain = pow(10, -snr / 10); /* of the noise, where the signal has power 1 */
    for (f = 0; f < frames; f++)
        for (t = 0; t < samples; t++) {
            float complex s = y[WARM + f * (span / frames) + t] / (float)sqrt(power);
            s = (s + (float)sqrt(gain) * noise()) / (float)sqrt(1 + gain);
            to[2 * f * samples + t] = crealf(s), to[(2 * f + 1) * samples + t] = cimagf(s);
        }
}

int main(int argc, char **argv) {
    static const char *meta[] = {"classes", NULL, "seed", NULL, "offset", NULL, "echo", NULL, "phase", NULL,
                                 "made by", "signal_data with liquid-dsp " LIQUID_VERSION};
    char classes[512] = "";
    int n_set = 0;
    text_open_streams();
    const char *rest = read_options(option, N_OPTIONS, 1u << HELP, argc, argv, &n_set);
    if (rest) complain(2, "see --help; what is ", rest);
    if (option[HELP].value) {
        puts("signal_data [OPTION...]: labelled radio signals, made with liquid-dsp\n");
        print_options(option, N_OPTIONS, 10, 20);
        return end_help("build/signal_data --runs 100 --out signal.safetensors");
    }
    static const setting threads = {"--threads", "1", NULL};
    open_context(&option[SEED], &threads, 1);
    must(text_may_save(option[OUT].value, failure));
    double low = number_of(&option[LOW], -100, 100), high = number_of(&option[HIGH], low, 100),
           step = number_of(&option[STEP], 0.01, 200);
    offset = number_of(&option[OFFSET], 0, 0.5), echoes = number_of(&option[ECHO], 0, 1);
    int phase = (int)whole_of(&option[PHASE], 0, 1);
    frames = (size_t)whole_of(&option[FRAMES], 1, 10000);
    samples = (size_t)whole_of(&option[SAMPLES], 16, 65536), span = frames * samples * 2;
    size_t levels = (size_t)((high - low) / step + 1e-9) + 1, of[3], runs = 0, i, n, at = 0, set;
    of[0] = (size_t)whole_of(&option[RUNS], 1, 1000000), of[1] = of[2] = (of[0] + 3) / 4;
    for (set = 0; set < 3; set++) runs += of[set];
    n = times(times(CLASSES * levels, runs), frames);
    cmha_real *iq = take(times(n, 2 * samples), sizeof *iq), *snr = take(n, sizeof *snr);
    int64_t *label = take(3 * n, sizeof *label), *run = label + n, *part = run + n;
    float complex *y = take(span + WARM, sizeof *y);
    for (set = 0; set < 3; set++)
        for (i = 0; i < CLASSES * levels * of[set]; i++) {
            double level = low + step * (double)(i / CLASSES % levels);
            int64_t number = (int64_t)(at / frames);
            rng = cmha_rng_make(ctx.config.seed, (uint64_t)number);
            srand((unsigned)cmha_rng_next(&rng)); /* liquid-dsp draws its symbols with rand() */
            transmit(i % CLASSES, y, span + WARM);
            receive(y, span + WARM, level, set == 0 && !phase, iq + 2 * at * samples);
            for (size_t f = 0; f < frames; f++, at++)
                label[at] = (int64_t)(i % CLASSES), run[at] = number, part[at] = (int64_t)set,
                snr[at] = (cmha_real)level;
        }
    for (i = 0; i < CLASSES; i++) strcat(strcat(classes, i ? "," : ""), kind[i].name);
    meta[1] = classes, meta[3] = option[SEED].value, meta[5] = option[OFFSET].value,
    meta[7] = option[ECHO].value, meta[9] = option[PHASE].value;
    size_t shape[2] = {n, samples};
    cmha_archive_item items[] = {{"iq", iq, shape, 2, "C64"},
                                 {"label", (const cmha_real *)(const void *)label, shape, 1, "I64"},
                                 {"run", (const cmha_real *)(const void *)run, shape, 1, "I64"},
                                 {"set", (const cmha_real *)(const void *)part, shape, 1, "I64"},
                                 {"snr", snr, shape, 1, NULL}};
    check(cmha_archive_write(&ctx, option[OUT].value, items, 5, meta, sizeof meta / sizeof *meta / 2));
    printf("%zu frames of %zu samples from %zu runs: %d classes, %zu levels; in %s\n", n, samples, n / frames,
           CLASSES, levels, option[OUT].value);
    free(iq), free(snr), free(label), free(y);
    cmha_context_close(&ctx);
    return end_program(0);
}
