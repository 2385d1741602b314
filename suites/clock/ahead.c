/* Clocks ahead of the machine's, as the file `ahead` in the working folder says: by how many seconds the wall clock, and by
 * how many the monotonic one. It is read again each time, so that a test can move the clocks of a server that runs.
 *
 * A server preloads it. A sleep of more than a minute returns at once; how long it would have been is in the file `slept`,
 * in seconds and nanoseconds. Shorter ones are the machine's own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Where a time_t of 64 bits was asked for and a long has 32, each function below is compiled under the name that the C
 * library has for such times (__clock_gettime64 and so on), and the system call is another. */
#ifdef SYS_clock_gettime64
enum { GET_TIME = sizeof(time_t) > sizeof(long) ? SYS_clock_gettime64 : SYS_clock_gettime };
#else
enum { GET_TIME = SYS_clock_gettime };
#endif

enum { LONG_SLEEP = 60 };

/* Plain system calls: the allocator may ask for the time before it can allocate. */
static long long seconds_ahead(int monotonic) {
    static int file = -1;
    char text[64] = "";
    char *rest;
    long long wall;
    if (file < 0) file = open("ahead", O_RDONLY | O_CLOEXEC);
    if (file < 0 || pread(file, text, sizeof(text) - 1, 0) < 0) return 0;
    wall = strtoll(text, &rest, 10);
    return monotonic ? strtoll(rest, NULL, 10) : wall;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    long result = syscall(GET_TIME, clock, now);
    int kept = errno;
    switch (result ? -1 : (int)clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        now->tv_sec += seconds_ahead(0);
        break;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
        now->tv_sec += seconds_ahead(1);
        break;
    default:
        break;
    }
    errno = kept;
    return (int)result;
}

int nanosleep(const struct timespec *due, struct timespec *left) {
    int file;
    if (due->tv_sec > LONG_SLEEP && (file = open("slept", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) >= 0) {
        dprintf(file, "%lld %ld\n", (long long)due->tv_sec, (long)due->tv_nsec);
        close(file);
        return 0;
    }
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, due, left);
    return errno ? -1 : 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    if (place) *place = exact.tv_sec;
    return exact.tv_sec;
}
