/* A safetensors file: opened, read, written again, and then it must come back the
   same. Input: see fuzz_put_archive. */
#include "fuzz.h"
#include "mutate.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    return mutate_archive(data, size, most, seed, 2, size > 2 && data[1] & 1);
}

static const char *text_or_nothing(const char *text) { return text ? text : ""; }

static void read_all(cmha_archive *archive) {
    size_t i, k;
    for (i = 0; i < archive->n_tensors; i++) {
        const cmha_archive_tensor *t = &archive->tensors[i];
        cmha_real *real = (cmha_real *)malloc(t->count * sizeof *real + 1);
        int64_t *whole = (int64_t *)malloc(t->count * sizeof *whole + 1);
        size_t count = 1;
        NEED(real && whole && cmha_archive_find(archive, t->name) == t);
        NEED(t->begin <= t->end && t->rank >= 0 && t->rank <= 8 &&
             archive->data_begin + t->end <= fuzz_the_disk.size);
        for (k = 0; k < (size_t)t->rank; k++) count *= t->shape[k];
        if (!strcmp(t->dtype, "C64")) count *= 2;
        NEED(count == t->count && (!count || t->end > t->begin));
        if (cmha_archive_read(archive, t, real)) fuzz_check_line(cmha_error(&fuzz_context));
        if (cmha_archive_read_i64(archive, t, whole)) fuzz_check_line(cmha_error(&fuzz_context));
        free(real), free(whole);
    }
    for (i = 0; i < archive->n_metadata; i++)
        NEED(!strcmp(text_or_nothing(cmha_archive_metadata(archive, archive->metadata[2 * i])),
                     archive->metadata[2 * i + 1]));
}

/* Same names, shapes, metadata and bits */
static void compare(cmha_archive *a, const cmha_archive_item *items, size_t n, char *const *metadata,
                    size_t n_metadata) {
    size_t i;
    NEED(a->n_tensors == n && a->n_metadata == n_metadata);
    for (i = 0; i < n; i++) {
        const cmha_archive_tensor *t = cmha_archive_find(a, items[i].name);
        cmha_real *back;
        NEED(t && t->rank == items[i].rank &&
             !memcmp(t->shape, items[i].shape, (size_t)t->rank * sizeof *t->shape));
        back = (cmha_real *)malloc(t->count * sizeof *back + 1);
        NEED(back && cmha_archive_read(a, t, back) == CMHA_OK &&
             !memcmp(back, items[i].data, t->count * sizeof *back));
        free(back);
    }
    for (i = 0; i < n_metadata; i++)
        NEED(!strcmp(text_or_nothing(cmha_archive_metadata(a, metadata[2 * i])), metadata[2 * i + 1]));
}

/* What was read, copied, as the archive must be closed before the same file can be opened again */
static void again(cmha_archive *archive) {
    cmha_archive_item items[16];
    char *metadata[32];
    size_t n = 0, m = 0, i;
    for (i = 0; i < archive->n_tensors && n < 16; i++) {
        const cmha_archive_tensor *t = &archive->tensors[i];
        cmha_real *data = (cmha_real *)malloc(t->count * sizeof *data + 1);
        size_t *shape = (size_t *)malloc(sizeof t->shape);
        NEED(data && shape);
        memcpy(shape, t->shape, sizeof t->shape);
        items[n].name = strdup(t->name), items[n].data = data, items[n].shape = shape,
        items[n].rank = t->rank, items[n].dtype = NULL;
        if (t->count && cmha_archive_read(archive, t, data))
            free(data), free(shape), free((void *)(uintptr_t)items[n].name);
        else n++;
    }
    for (i = 0; i < 2 * archive->n_metadata && m < 32; i++) metadata[m++] = strdup(archive->metadata[i]);
    cmha_archive_close(archive);
    NEED(cmha_archive_write(&fuzz_context, FUZZ_PATH, items, n, (const char *const *)metadata, m / 2) ==
         CMHA_OK);
    fuzz_put(fuzz_the_disk.written, fuzz_the_disk.n_written);
    NEED(cmha_archive_open(archive, &fuzz_context, FUZZ_PATH) == CMHA_OK);
    compare(archive, items, n, metadata, m / 2);
    cmha_archive_close(archive);
    for (i = 0; i < n; i++) {
        free((void *)(uintptr_t)items[i].name), free((void *)(uintptr_t)items[i].data),
            free((void *)(uintptr_t)items[i].shape);
    }
    for (i = 0; i < m; i++) free(metadata[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned char *file;
    cmha_archive archive;
    if (!fuzz_context.open) fuzz_open_context();
    if (size < 2) return 0;
    file = fuzz_put_archive(data, size);
    if (cmha_archive_open(&archive, &fuzz_context, FUZZ_PATH)) fuzz_check_line(cmha_error(&fuzz_context));
    else read_all(&archive), again(&archive);
    NEED(fuzz_memory == 0);
    free(file);
    return 0;
}
