/* A disk that fails: preloaded, it lets the N-th call of some functions on files of a folder fail.
 *
 * FAIL_UNDER  folder
 * FAIL_CALLS  functions, such as "write,pwrite64,fsync,rename,ftruncate64,unlink"
 * FAIL_AT     number of the first call that fails, from 1; 0 for none
 * FAIL_ALSO   number of calls after it that fail, too
 * FAIL_ERRNO  what they say
 * FAIL_COUNT  file to which the number of calls is written at the end
 *
 * gcc -shared -fPIC -O2 -o failing_disk.so failing_disk.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static long number(const char *name) { return getenv(name) ? atol(getenv(name)) : 0; }

static int fails(const char *function, const char *path) {
    const char *under = getenv("FAIL_UNDER"), *listed = getenv("FAIL_CALLS"), *found;
    size_t length = strlen(function);
    if (!under || !listed || strncmp(path, under, strlen(under)))
        return 0;
    for (found = strstr(listed, function); found; found = strstr(found + 1, function))
        if ((found == listed || found[-1] == ',') && (found[length] == ',' || !found[length]))
            break;
    if (!found)
        return 0;
    long now = ++calls, at = number("FAIL_AT");
    if (!at || now < at || now > at + number("FAIL_ALSO"))
        return 0;
    errno = (int)number("FAIL_ERRNO");
    return 1;
}

static const char *path_of(int handle, char *room, size_t size) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, room, size - 1);
    room[length < 0 ? 0 : length] = 0;
    return room;
}

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("FAIL_COUNT");
    FILE *file = path && calls ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%ld\n", (long)calls);
        fclose(file);
    }
}

/* As in Linux, a handle is closed even if that fails. */
int close(int handle) {
    char room[4096];
    int failed = fails("close", path_of(handle, room, sizeof room)), number = errno;
    int result = ((int (*)(int))dlsym(RTLD_NEXT, "close"))(handle);
    errno = failed ? number : errno;
    return failed ? -1 : result;
}

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, #name))
#define BY_HANDLE(result, name, parameters, arguments)                                                                 \
    result name parameters {                                                                                           \
        char room[4096];                                                                                               \
        return fails(#name, path_of(handle, room, sizeof room)) ? -1 : NEXT(result(*) parameters, name) arguments;      \
    }
#define BY_PATH(name, parameters, arguments)                                                                           \
    int name parameters { return fails(#name, path) ? -1 : NEXT(int (*) parameters, name) arguments; }

BY_HANDLE(ssize_t, write, (int handle, const void *data, size_t size), (handle, data, size))
BY_HANDLE(ssize_t, pwrite64, (int handle, const void *data, size_t size, off64_t at), (handle, data, size, at))
BY_HANDLE(ssize_t, pwrite, (int handle, const void *data, size_t size, off_t at), (handle, data, size, at))
BY_HANDLE(ssize_t, writev, (int handle, const struct iovec *parts, int count), (handle, parts, count))
BY_HANDLE(ssize_t, read, (int handle, void *data, size_t size), (handle, data, size))
BY_HANDLE(ssize_t, pread, (int handle, void *data, size_t size, off_t at), (handle, data, size, at))
BY_HANDLE(ssize_t, pread64, (int handle, void *data, size_t size, off64_t at), (handle, data, size, at))
BY_HANDLE(int, fsync, (int handle), (handle))
BY_HANDLE(int, ftruncate64, (int handle, off64_t size), (handle, size))
BY_HANDLE(int, ftruncate, (int handle, off_t size), (handle, size))
BY_PATH(open, (const char *path, int flags, mode_t mode), (path, flags, mode))
BY_PATH(open64, (const char *path, int flags, mode_t mode), (path, flags, mode))
BY_PATH(rename, (const char *path, const char *to), (path, to))
BY_PATH(unlink, (const char *path), (path))
BY_PATH(rmdir, (const char *path), (path))
BY_PATH(mkdir, (const char *path, mode_t mode), (path, mode))
BY_HANDLE(int, unlinkat, (int handle, const char *name, int flags), (handle, name, flags))
