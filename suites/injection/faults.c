/* Makes system calls fail as a test requests.
 *
 * A server preloads it. The file `faults` in the working folder contains 32-bit words in the machine's byte order, which the
 * test and every process of the server share: which call must fail (enum order), and how often each kind was called.
 *
 * Only calls on the server's files and pipes count: no sockets, no standard streams, and nothing in /proc, /dev and /sys. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the order of faults.py. */
enum kind { OPEN = 1, OPEN_TO_READ, READ, WRITE, FREAD, FWRITE, FFLUSH, FSYNC, RENAME, FTRUNCATE, FORK, PIPE, READ_PIPE, WRITE_PIPE };
enum order { KIND, FIRST, TIMES, ERROR, SHORT, FAILED, CALLS = 16, WORDS = 64 };

static int32_t *words;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    int file = REAL(open)("faults", O_RDWR);
    if (file < 0) return;
    void *mapped = mmap(NULL, WORDS * sizeof(int32_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) words = mapped;
    close(file);
}

/* Whether this call must fail. Sets errno if it must. */
static int fails(enum kind kind) {
    if (!words) return 0;
    int32_t number = __atomic_add_fetch(&words[CALLS + kind], 1, __ATOMIC_SEQ_CST);
    if (words[KIND] != (int32_t)kind || number < words[FIRST] || number >= words[FIRST] + words[TIMES]) return 0;
    __atomic_add_fetch(&words[FAILED], 1, __ATOMIC_SEQ_CST);
    errno = words[ERROR];
    return 1;
}

static int is_a_file(const char *path) {
    return strncmp(path, "/proc/", 6) && strncmp(path, "/dev/", 5) && strncmp(path, "/sys/", 5);
}

/* 0 for a descriptor whose calls do not count. */
static int kind_of(int descriptor, enum kind of_file, enum kind of_pipe) {
    struct stat about;
    int saved = errno;
    int known = descriptor > 2 && !fstat(descriptor, &about);
    errno = saved;
    return !known ? 0 : S_ISREG(about.st_mode) ? of_file : S_ISFIFO(about.st_mode) ? of_pipe : 0;
}

static int open_fails(const char *path, int flags) {
    return is_a_file(path) && fails((flags & O_ACCMODE) == O_RDONLY ? OPEN_TO_READ : OPEN);
}

#define OPENING(name)                                                       \
    int name(const char *path, int flags, ...) {                            \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        mode_t mode = flags & O_CREAT ? (mode_t)va_arg(rest, int) : 0;      \
        va_end(rest);                                                       \
        return open_fails(path, flags) ? -1 : REAL(name)(path, flags, mode); \
    }
OPENING(open)
OPENING(open64)

#define OPENING_A_STREAM(name)                                                                         \
    FILE *name(const char *restrict path, const char *restrict mode) {                                 \
        return open_fails(path, *mode == 'r' ? O_RDONLY : O_WRONLY) ? NULL : REAL(name)(path, mode); \
    }
OPENING_A_STREAM(fopen)
OPENING_A_STREAM(fopen64)

#define OPENING_ANEW(name) \
    int name(char *path, int flags) { return fails(OPEN) ? -1 : REAL(name)(path, flags); }
OPENING_ANEW(mkostemp)
OPENING_ANEW(mkostemp64)

ssize_t read(int descriptor, void *place, size_t size) {
    int kind = kind_of(descriptor, READ, READ_PIPE);
    return kind && fails(kind) ? -1 : REAL(read)(descriptor, place, size);
}

ssize_t write(int descriptor, const void *place, size_t size) {
    int kind = kind_of(descriptor, WRITE, WRITE_PIPE);
    if (kind && fails(kind)) {
        if (!words[SHORT] || size < 2) return -1;
        size /= 2;
    }
    return REAL(write)(descriptor, place, size);
}

size_t fread(void *restrict place, size_t size, size_t count, FILE *restrict stream) {
    return fails(FREAD) ? 0 : REAL(fread)(place, size, count, stream);
}

size_t fwrite(const void *restrict place, size_t size, size_t count, FILE *restrict stream) {
    if (stream != stdout && stream != stderr && fails(FWRITE)) return 0;
    return REAL(fwrite)(place, size, count, stream);
}

int fflush(FILE *stream) {
    return stream && stream != stdout && stream != stderr && fails(FFLUSH) ? EOF : REAL(fflush)(stream);
}

int fsync(int descriptor) { return fails(FSYNC) ? -1 : REAL(fsync)(descriptor); }

int fdatasync(int descriptor) { return fails(FSYNC) ? -1 : REAL(fdatasync)(descriptor); }

int rename(const char *from, const char *to) { return fails(RENAME) ? -1 : REAL(rename)(from, to); }

int ftruncate(int descriptor, off_t length) { return fails(FTRUNCATE) ? -1 : REAL(ftruncate)(descriptor, length); }

int ftruncate64(int descriptor, off64_t length) { return fails(FTRUNCATE) ? -1 : REAL(ftruncate64)(descriptor, length); }

pid_t fork(void) { return fails(FORK) ? -1 : REAL(fork)(); }

int pipe(int ends[2]) { return fails(PIPE) ? -1 : REAL(pipe)(ends); }

int pipe2(int ends[2], int flags) { return fails(PIPE) ? -1 : REAL(pipe2)(ends, flags); }
