/* The row of the conformance runner that measures generated text; a part of conformance.c. */
#include "../examples/tools/text_metrics.h"

/* Whole numbers of the file against counts */
static void compare_counts(kase *k, const char *name, const size_t *got, size_t count) {
    int64_t *want = integers(k, name, count);
    for (size_t i = 0; i < count; i++)
        if (want[i] != (int64_t)got[i])
            leave(k, CASE_FAIL, "%s[%zu] is %zu, not %lld", name, i, got[i], (long long)want[i]);
    k->compared[need(k, name) - k->file.tensors] = 1;
}

static void op_text_metrics(kase *k) {
    size_t B = axis(k, "in.ids", 0), N = axis(k, "in.ids", 1);
    int32_t *ids = tokens(k, "in.ids", B * N), eos = (int32_t)number(k, "cfg.eos"),
            pad = (int32_t)number(k, "cfg.pad");
    int over_tokens = choice(k, "cfg.dist_over", "ngrams|tokens"),
        pooled = choice(k, "cfg.rep", "mean|pooled");
    size_t *begin = (size_t *)take(k, B + 1, sizeof *begin), *own = (size_t *)take(k, B + 1, sizeof *own);
    text_metrics m;
    cmha_real value[2];
    for (size_t b = 0; b < B; b++) {
        own[b] = text_metrics_cut(ids + b * N, N, eos, pad, ids + begin[b]);
        begin[b + 1] = begin[b] + own[b];
    }
    compare_counts(k, "out.len", own, B);
    if (!text_metrics_count(&m, ids, begin, B, own)) leave(k, CASE_FAIL, "no memory");
    compare_counts(k, "out.repeated", own, B);
    compare_counts(k, "out.total", m.total, 2);
    compare_counts(k, "out.distinct", m.distinct, 2);
    for (int n = 1; n <= 2; n++) value[n - 1] = (cmha_real)text_metrics_dist(&m, n, over_tokens);
    compare(k, "out.dist", value, 2);
    value[0] = (cmha_real)text_metrics_rep4(&m, pooled);
    compare(k, "out.rep4", value, 1);
}
