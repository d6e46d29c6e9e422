/* regular.h - opens files for reading, and nothing else: to open a FIFO or a device could mean to wait for
   ever. Static functions. */
#ifndef REGULAR_H
#define REGULAR_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#ifndef _WIN32
#include <unistd.h>
#endif

#define REGULAR_FOLDER ": a folder, not a regular file"

/* What to add to "cannot open PATH": that it is a folder, no regular file, or nothing. */
static inline const char *regular_fault(const char *path) {
    struct stat about;
    if (stat(path, &about) || S_ISREG(about.st_mode)) return "";
    return S_ISDIR(about.st_mode) ? REGULAR_FOLDER : ": not a regular file";
}

/* A regular file, as fopen(path, "rb"); NULL for anything else. */
static inline FILE *regular_open(const char *path) {
#ifdef _WIN32
    return *regular_fault(path) ? NULL : fopen(path, "rb");
#else
    struct stat about;
    FILE *file = NULL;
    int fd = *regular_fault(path) ? -1 : open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return NULL;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) file = fdopen(fd, "rb"); /* it may have changed */
    if (!file) close(fd);
    return file;
#endif
}

#endif
