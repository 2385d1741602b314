/*
 * A time of day that a test can set: the machine's, and the seconds that the file CHAOS_CLOCK contains. Preloaded.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t ahead(void)
{
    static const volatile int64_t *seconds;
    const char *path = getenv("CHAOS_CLOCK");

    if (!seconds && path) {
        int file = open(path, O_RDONLY | O_CLOEXEC);
        void *mapped = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);

        close(file);
        if (mapped != MAP_FAILED) {
            seconds = mapped;
        }
    }
    return seconds ? *seconds : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    long status = syscall(SYS_clock_gettime, clock, now);

    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec += ahead();
    }
    return (int)status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (into) {
        *into = now.tv_sec;
    }
    return now.tv_sec;
}
