/* What a few tests ask of the system beyond C: a folder of their own, a FIFO, the byte
   order. Windows has only some of it. */
#ifndef SYSTEM_H
#define SYSTEM_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef _WIN32
#include <direct.h>
#include <process.h>
#endif

/* Makes a folder and its name from "/tmp/name-XXXXXX" (on Windows in the current folder); 1 = made */
static inline int system_folder(char *path) {
#ifdef _WIN32
    const char *name = strrchr(path, '/');
    if (name) memmove(path, name + 1, strlen(name));
    snprintf(path + strlen(path) - 6, 7, "%06d", _getpid() % 1000000);
    return _mkdir(path) == 0;
#else
    return mkdtemp(path) != NULL;
#endif
}

/* A folder of this name; 1 = made */
static inline int system_make_folder(const char *path) {
#ifdef _WIN32
    return _mkdir(path) == 0;
#else
    return mkdir(path, 0700) == 0;
#endif
}

/* Makes a link; 0 where it cannot be made. Is there one? */
static inline int system_link(const char *to, const char *path) {
#ifdef _WIN32
    return (void)to, (void)path, 0;
#else
    return symlink(to, path) == 0;
#endif
}

static inline int system_is_link(const char *path) {
#ifdef _WIN32
    return (void)path, 0;
#else
    struct stat about;
    return lstat(path, &about) == 0 && S_ISLNK(about.st_mode);
#endif
}

/* Finds a file that a save has left in a folder under its own name: the path of one in found [room]; 0 =
   there is none */
static inline int system_left(const char *folder, char *found, size_t room) {
    DIR *all = opendir(folder);
    struct dirent *entry = NULL;
    while (all && (entry = readdir(all)) != NULL) {
        size_t n = strlen(entry->d_name);
        if (n > 4 && !strncmp(entry->d_name, "cmha-", 5) && !strcmp(entry->d_name + n - 4, ".tmp")) break;
    }
    if (entry) snprintf(found, room, "%s/%s", folder, entry->d_name);
    if (all) closedir(all);
    return entry != NULL;
}

/* A FIFO that no test may wait for: the program is stopped after 20 seconds, until system_fifo_end. 1 =
   made */
static inline int system_fifo(const char *path) {
#if defined(_WIN32) || defined(__EMSCRIPTEN__)
    (void)path;
    return 0;
#else
    if (mkfifo(path, 0600)) return 0;
    alarm(20);
    return 1;
#endif
}

static inline void system_fifo_end(void) {
#if !defined(_WIN32) && !defined(__EMSCRIPTEN__)
    alarm(0);
#endif
}

/* n numbers of `width` bytes between this machine's byte order and the files', in place;
   for tests that look past the library */
static inline void system_little_endian(void *numbers, size_t n, size_t width) {
    static const uint16_t one = 1;
    unsigned char *at = (unsigned char *)numbers, kept;
    size_t i, j;
    if (*(const unsigned char *)(const void *)&one) return;
    for (i = 0; i < n; i++, at += width)
        for (j = 0; j < width / 2; j++) kept = at[j], at[j] = at[width - 1 - j], at[width - 1 - j] = kept;
}

#endif
