/* The library over files in memory: see fuzz.h. */
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "fuzz.h"

fuzz_disk fuzz_the_disk;
cmha_context fuzz_context;
size_t fuzz_memory, fuzz_peak;

enum { READER = 3, WRITER = 4 }; /* descriptors; there is never more than one of each */
static size_t disk_at;
static unsigned open_files;

static int fuzz_open(const char *path, int flags, ...) {
    int fd = flags & O_WRONLY ? WRITER : READER;
    if (fd == READER && strcmp(path, FUZZ_PATH) != 0) return errno = ENOENT, -1;
    NEED(!(open_files & 1u << fd));
    open_files |= 1u << fd, disk_at = 0;
    if (fd == WRITER) free(fuzz_the_disk.written), fuzz_the_disk.written = NULL, fuzz_the_disk.n_written = 0;
    return fd;
}

static int fuzz_close(int fd) {
    NEED(open_files & 1u << fd);
    open_files &= ~(1u << fd);
    return 0;
}

static int fuzz_fstat(int fd, struct stat *about) {
    NEED(open_files & 1u << fd);
    memset(about, 0, sizeof *about);
    about->st_mode = S_IFREG | 0600;
    about->st_size = (off_t)(fd == READER ? fuzz_the_disk.size : fuzz_the_disk.n_written);
    return 0;
}

static off_t fuzz_lseek(int fd, off_t offset, int from) {
    NEED(fd == READER && offset >= 0 && (from == SEEK_SET || (from == SEEK_END && !offset)));
    disk_at = from == SEEK_END ? fuzz_the_disk.size : (size_t)offset;
    return (off_t)disk_at;
}

static ssize_t fuzz_read(int fd, void *to, size_t n) {
    size_t left = fuzz_the_disk.readable > disk_at ? fuzz_the_disk.readable - disk_at : 0;
    NEED(fd == READER && (open_files & 1u << fd));
    if (left < n && fuzz_the_disk.readable < fuzz_the_disk.size && !left)
        return fuzz_the_disk.shrinks ? 0 : (errno = EIO, -1);
    if (n > left) n = left;
    if (fuzz_the_disk.piece && n > fuzz_the_disk.piece && disk_at % 3) n = fuzz_the_disk.piece;
    memcpy(to, fuzz_the_disk.bytes + disk_at, n);
    disk_at += n;
    return (ssize_t)n;
}

static ssize_t fuzz_write(int fd, const void *from, size_t n) {
    unsigned char *more = (unsigned char *)realloc(fuzz_the_disk.written, fuzz_the_disk.n_written + n + 1);
    NEED(fd == WRITER && (open_files & 1u << fd) && more);
    memcpy(more + fuzz_the_disk.n_written, from, n);
    fuzz_the_disk.written = more, fuzz_the_disk.n_written += n;
    return (ssize_t)n;
}

static int fuzz_no_file(const char *path) { return (void)path, errno = ENOENT, -1; }
static int fuzz_rename(const char *from, const char *to) { return from && to ? 0 : -1; }

static void *allocate(void *user, size_t bytes) {
    void *memory = bytes > (size_t)FUZZ_MEMORY - fuzz_memory ? NULL : malloc(bytes);
    (void)user;
    if (memory) fuzz_memory += bytes;
    if (fuzz_memory > fuzz_peak) fuzz_peak = fuzz_memory;
    return memory;
}

static void release(void *user, void *memory, size_t bytes) {
    (void)user;
    NEED(!memory || bytes <= fuzz_memory);
    if (memory) fuzz_memory -= bytes;
    free(memory);
}

/* A file that was written here is found whole here; else every input would be refused, and all pass. */
static void check_disk(void) {
    static const cmha_real numbers[2] = {1, 2};
    static const size_t shape[1] = {2};
    const cmha_archive_item item = {"x", numbers, shape, 1, NULL};
    cmha_archive archive;
    cmha_real back[2];
    NEED(cmha_archive_write(&fuzz_context, FUZZ_PATH, &item, 1, NULL, 0) == CMHA_OK);
    fuzz_put(fuzz_the_disk.written, fuzz_the_disk.n_written);
    NEED(cmha_archive_open(&archive, &fuzz_context, FUZZ_PATH) == CMHA_OK && archive.n_tensors == 1);
    NEED(cmha_archive_read(&archive, archive.tensors, back) == CMHA_OK);
    NEED(!memcmp(back, numbers, sizeof back));
    cmha_archive_close(&archive);
}

void fuzz_open_context(void) {
    cmha_context_config config;
    memset(&config, 0, sizeof config);
    config.threads = 1;
    config.allocator.allocate = allocate;
    config.allocator.release = release;
    NEED(cmha_context_init(&fuzz_context, &config) == CMHA_OK);
    check_disk();
}

#define open(path, ...) fuzz_open(path, __VA_ARGS__)
#define close(fd) fuzz_close(fd)
#define fstat(fd, about) fuzz_fstat(fd, about)
#define stat(path, about) ((void)(about), fuzz_no_file(path))
#define lseek(fd, offset, from) fuzz_lseek(fd, offset, from)
#define read(fd, to, n) fuzz_read(fd, to, n)
#define write(fd, from, n) fuzz_write(fd, from, n)
#define rename(from, to) fuzz_rename(from, to)
#define remove(path) fuzz_no_file(path)
#define fsync(fd) 0
#define CMHA_IMPLEMENTATION
#include "cmha.h"
