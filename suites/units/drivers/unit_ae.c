/* Timers of the event loop: their identifiers and delays have 64 bits on every machine. */
#include "ae.h"

#include "unit.h"

#include <stdlib.h>

#if __has_include("monotonic.h")
#include "monotonic.h"
#endif

#define TIMERS 4

struct fired {
    long long id;
    long long times;
};

static int fire(struct aeEventLoop *loop, long long id, void *data)
{
    struct fired *fired = data;

    (void)loop;
    fired->id = id;
    fired->times++;
    return AE_NOMORE;
}

/* Create TIMERS timers and delete the second: each must be identified by the number that it was given. */
static void numbers_from(long long first)
{
    aeEventLoop *loop = aeCreateEventLoop(16);
    struct fired fired[TIMERS] = {{0, 0}};
    long long ids[TIMERS];

    line("numbers from %lld", first);
    loop->timeEventNextId = first;
    for (int i = 0; i < TIMERS; i++) {
        ids[i] = aeCreateTimeEvent(loop, 0, fire, &fired[i], NULL);
        number(ids[i] - first);
    }
    number(aeDeleteTimeEvent(loop, first + 1 + (1LL << 32)));
    number(aeDeleteTimeEvent(loop, first + 1));
    aeProcessEvents(loop, AE_TIME_EVENTS | AE_DONT_WAIT);
    for (int i = 0; i < TIMERS; i++) {
        number(fired[i].times);
        number(fired[i].times != 0 ? fired[i].id - first : -1);
    }
    end();
    aeDeleteEventLoop(loop);
}

static void delayed(long long milliseconds)
{
    aeEventLoop *loop = aeCreateEventLoop(16);
    struct fired fired = {0, 0};

    line("delay %lld", milliseconds);
    aeCreateTimeEvent(loop, milliseconds, fire, &fired, NULL);
    aeProcessEvents(loop, AE_TIME_EVENTS | AE_DONT_WAIT);
    number(fired.times);
    end();
    aeDeleteEventLoop(loop);
}

void unit_timers(void)
{
    static const int bits[] = {8, 16, 31, 32, 33, 40};

#if __has_include("monotonic.h")
    monotonicInit();
#endif
    numbers_from(0);
    delayed(0);
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        numbers_from((1LL << bits[i]) - 2);
        numbers_from(1LL << bits[i]);
        if (bits[i] > 16) {
            delayed((1LL << bits[i]) - 1);
            delayed(1LL << bits[i]);
        }
    }
}
