/* The wall clock, as many seconds ahead as the file `ahead` in the working folder says.
 *
 * A server preloads it. Monotonic clocks and sleeps are the machine's own, so that nothing takes longer. */
#define _GNU_SOURCE
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

/* Plain system calls: the allocator may ask for the time before it can allocate. */
static long long seconds_ahead(void) {
    static long long seconds = -1;
    if (seconds < 0) {
        char text[32] = "0";
        int file = open("ahead", O_RDONLY);
        if (file >= 0) {
            ssize_t length = read(file, text, sizeof(text) - 1);
            text[length > 0 ? length : 0] = 0;
            close(file);
        }
        seconds = atoll(text);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    long result = syscall(GET_TIME, clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += seconds_ahead();
    return (int)result;
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
