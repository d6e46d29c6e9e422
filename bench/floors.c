/* The section floors: the ratios that the library is held to, each within one run. bench/README.md has the
   values they are not to fall below, and the scripts that measure other programs and other builds. */
#include "bench/bench.h"

#include <math.h>
#include <stdlib.h>

static void row(const char *name, size_t n, double ratio) {
    cell c = {ratio, {NAN, NAN}};
    report_row(name, n, &c);
}

static void attention_floors(size_t n) {
    static const struct { const char *forward, *backward; size_t offset; } rows[2] = {
        {"attention forward, of GEMM", "attention backward, of GEMM", AS_MALLOC},
        {"the same, aligned: forward", "the same, aligned: backward", ALIGNED}};
    core *cores[2];
    job jobs[5];
    double flops = 1e-9 * 8 * 64 * (double)n * (double)n; /* as the section attention counts them */
    for (int i = 0; i < 2; i++) {
        cores[i] = core_open("cmha", 64, n, rows[i].offset, NULL);
        jobs[2 * i] = (job){run_core_forward, cores[i], 0, 0};
        jobs[2 * i + 1] = (job){run_core_backward, cores[i], 0, 0};
    }
    jobs[4] = gemm_job();
    compare(jobs, 5);
    for (int i = 0; i < 2; i++) {
        row(rows[i].forward, n, 2 * flops / jobs[2 * i].time / gemm_rate(&jobs[4]));
        row(rows[i].backward, n, 5 * flops / jobs[2 * i + 1].time / gemm_rate(&jobs[4]));
        core_close(cores[i]);
    }
}

static void training_floors(const char *preset, const char *of_gemm, const char *over_rope, size_t batch) {
    static const char *const kinds[2] = {"rope", "cmha"};
    training t[2];
    job jobs[3];
    for (int i = 0; i < 2; i++) {
        training_open(&t[i], preset, kinds[i], batch);
        jobs[i] = (job){run_training, &t[i], 0, 0};
    }
    jobs[2] = gemm_job();
    compare(jobs, 3);
    row(of_gemm, t[1].trainer.config.batch, training_flops(&t[1]) / jobs[1].time / gemm_rate(&jobs[2]));
    row(over_rope, t[1].trainer.config.batch, jobs[1].time / jobs[0].time);
    for (int i = 0; i < 2; i++) training_close(&t[i]);
}

static void decoding_floors(size_t n) {
    decoder d[2];
    memory_work reads[2];
    job jobs[6];
    decoder_open(&d[0], "cmha", NULL, n, CMHA_STORAGE_FLOAT, CMHA_STORAGE_FLOAT);
    decoder_open(&d[1], "cmha", NULL, n, CMHA_STORAGE_INT8, CMHA_STORAGE_BF16);
    for (int i = 0; i < 2; i++) {
        read_open(&reads[i], decode_bytes(&d[i]));
        jobs[2 * i] = (job){run_decode, &d[i], 0, 0};
        jobs[2 * i + 1] = (job){run_read, &reads[i], DECODED, 0};
    }
    jobs[4] = (job){run_prefill, &d[0], 0, 0}, jobs[5] = gemm_job();
    compare(jobs, 6);
    row("a prompt, of GEMM", n, prefill_flops(&d[0]) / jobs[4].time / gemm_rate(&jobs[5]));
    row("float32 decoding over int8, bf16 cache", n, jobs[0].time / jobs[2].time);
    row("float32 decoding, of reading", n, DECODED * jobs[1].time / jobs[0].time);
    row("int8 decoding, bf16 cache, of reading", n, DECODED * jobs[3].time / jobs[2].time);
    for (int i = 0; i < 2; i++) free(reads[i].a), decoder_close(&d[i]);
}

void bench_floors(void) {
    static const column columns[] = {{"within one run", "ratio", {NULL, NULL}, 0}};
    report_table("floors", "CMHA; \"of\": share of a rate, \"over\": quotient of times; n: length or batch",
                 "n", columns, 1);
    attention_floors(quick ? 512 : 2048);
    training_floors("tiny", "train step, tiny, of GEMM", "train step, tiny, CMHA over RoPE", 0);
    training_floors("paper", "train step, paper, of GEMM", "train step, paper, CMHA over RoPE",
                    quick ? 1 : 0);
    decoding_floors(512);
    if (!quick) decoding_floors(2048);
}
