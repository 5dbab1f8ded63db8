/* A disk, or a clock, that fails: preloaded, it lets the N-th call of some functions on files of a folder fail.
 *
 * FAIL_UNDER  folder
 * FAIL_CALLS  functions, such as "write,pwrite64,fsync,rename,ftruncate64,unlink"; "open" opens for reading, "create"
 *             for writing
 * FAIL_AT     number of the first call that fails, from 1; 0 for none
 * FAIL_ALSO   number of calls after it that fail, too
 * FAIL_ERRNO  what they say
 * FAIL_SHORT  if set, they do not fail, but read or write half of what they should
 * FAIL_RANK   process of MPI whose calls fail, if set
 * FAIL_COUNT  file to which the number of calls is written at the end
 * FAIL_CLOCK  seconds by which the wall clock jumps forth and back, three times a second
 *
 * gcc -shared -fPIC -O2 -o failing_disk.so failing_disk.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static atomic_long calls;

static long number(const char *name) { return getenv(name) ? atol(getenv(name)) : 0; }

static int fails(const char *function, const char *path) {
    const char *under = getenv("FAIL_UNDER"), *listed = getenv("FAIL_CALLS"), *found;
    const char *rank = getenv("FAIL_RANK"), *own = getenv("OMPI_COMM_WORLD_RANK");
    size_t length = strlen(function);
    if (!under || !listed || strncmp(path, under, strlen(under)) || (rank && (!own || strcmp(rank, own))))
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
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, room, size - 1);
    room[length < 0 ? 0 : length] = 0;
    errno = before;
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

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, #name))
#define BY_HANDLE(result, name, parameters, arguments)                                                                 \
    result name parameters {                                                                                           \
        char room[4096];                                                                                               \
        return fails(#name, path_of(handle, room, sizeof room)) ? (result)-1                                           \
                                                                : NEXT(result(*) parameters, name) arguments;          \
    }
#define TRANSFER(name, parameters, arguments)                                                                          \
    ssize_t name parameters {                                                                                          \
        char room[4096];                                                                                               \
        if (fails(#name, path_of(handle, room, sizeof room))) {                                                        \
            if (!getenv("FAIL_SHORT"))                                                                                 \
                return -1;                                                                                             \
            size = (size + 1) / 2;                                                                                     \
        }                                                                                                              \
        return NEXT(ssize_t(*) parameters, name) arguments;                                                            \
    }
#define BY_PATH(name, parameters, arguments)                                                                           \
    int name parameters { return fails(#name, path) ? -1 : NEXT(int (*) parameters, name) arguments; }
#define OPENING(name)                                                                                                  \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                        \
        va_end(more);                                                                                                  \
        const char *kind = flags & (O_WRONLY | O_RDWR | O_CREAT) ? "create" : "open";                                  \
        return fails(kind, path) ? -1 : NEXT(int (*)(const char *, int, ...), name)(path, flags, mode);                \
    }

TRANSFER(write, (int handle, const void *data, size_t size), (handle, data, size))
TRANSFER(pwrite64, (int handle, const void *data, size_t size, off64_t at), (handle, data, size, at))
TRANSFER(pwrite, (int handle, const void *data, size_t size, off_t at), (handle, data, size, at))
TRANSFER(read, (int handle, void *data, size_t size), (handle, data, size))
TRANSFER(pread64, (int handle, void *data, size_t size, off64_t at), (handle, data, size, at))
TRANSFER(pread, (int handle, void *data, size_t size, off_t at), (handle, data, size, at))
BY_HANDLE(ssize_t, writev, (int handle, const struct iovec *parts, int count), (handle, parts, count))
BY_HANDLE(int, fsync, (int handle), (handle))
BY_HANDLE(int, flock, (int handle, int operation), (handle, operation))
BY_HANDLE(int, ftruncate64, (int handle, off64_t size), (handle, size))
BY_HANDLE(int, ftruncate, (int handle, off_t size), (handle, size))
BY_HANDLE(void *, mmap, (void *place, size_t size, int protection, int flags, int handle, off_t at),
          (place, size, protection, flags, handle, at))
BY_HANDLE(void *, mmap64, (void *place, size_t size, int protection, int flags, int handle, off64_t at),
          (place, size, protection, flags, handle, at))
BY_PATH(rename, (const char *path, const char *to), (path, to))
BY_PATH(unlink, (const char *path), (path))
BY_PATH(mkdir, (const char *path, mode_t mode), (path, mode))
BY_HANDLE(int, unlinkat, (int handle, const char *name, int flags), (handle, name, flags))
OPENING(open)
OPENING(open64)

int close(int handle) { /* as on Linux, the file is closed whatever is said */
    char room[4096];
    int fail = fails("close", path_of(handle, room, sizeof room)), result = NEXT(int (*)(int), close)(handle);
    if (fail)
        errno = (int)number("FAIL_ERRNO");
    return fail ? -1 : result;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = NEXT(int (*)(clockid_t, struct timespec *), clock_gettime);
    struct timespec steady;
    if (clock == CLOCK_REALTIME && getenv("FAIL_CLOCK") && !real(CLOCK_MONOTONIC, &steady)) {
        int result = real(clock, now);
        now->tv_sec += ((steady.tv_sec * 3 + steady.tv_nsec / 333333334) % 3 - 1) * number("FAIL_CLOCK");
        return result;
    }
    return real(clock, now);
}
