/* Clocks ahead of the machine's, as the file `ahead` in the working folder says: by how many seconds the wall clock, and by
 * how many the monotonic one.
 *
 * A server preloads it. A sleep of more than a minute returns at once, and all clocks are as much further: so DEBUG SLEEP
 * moves the clocks of a server that runs, also where its commands are sent again. Shorter sleeps are the machine's own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
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

/* What was slept through, in seconds. */
static long long slept;

/* Plain system calls: the allocator may ask for the time before it can allocate. */
static long long seconds_ahead(int monotonic) {
    static long long wall = -1, other;
    if (wall < 0) {
        char text[64] = "0";
        char *rest;
        int file = open("ahead", O_RDONLY);
        if (file >= 0) {
            ssize_t length = read(file, text, sizeof(text) - 1);
            text[length > 0 ? length : 0] = 0;
            close(file);
        }
        wall = strtoll(text, &rest, 10);
        other = strtoll(rest, NULL, 10);
    }
    return slept + (monotonic ? other : wall);
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
    if (due->tv_sec > LONG_SLEEP) {
        slept += due->tv_sec;
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
