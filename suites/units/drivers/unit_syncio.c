/* Reads and writes that end when their time is over, although a part of the bytes went through. */
#include "server.h"

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

static void pair(int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) exit(3);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
}

/* What a call told: its result, whether its time was over, and whether it came back before that. */
static void told(ssize_t result, int error, long long started, long long timeout)
{
    number((long long)result);
    number(result < 0 && error == ETIMEDOUT);
    number(mstime() - started + 1 < timeout);
    end();
}

void unit_syncio(void)
{
    static const long long timeouts[] = {30, 100};
    static char data[1 << 22], place[1 << 12];

    for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
        long long started;
        ssize_t result;
        int ends[2];

        pair(ends);
        line("write more than fits, %lld ms", timeouts[i]);
        started = mstime();
        result = syncWrite(ends[0], data, sizeof data, timeouts[i]);
        told(result, errno, started, timeouts[i]);

        line("read what is there, %lld ms", 1000 * timeouts[i]);
        started = mstime();
        result = syncRead(ends[1], place, 4000, 1000 * timeouts[i]);
        told(result, errno, started, 1000 * timeouts[i]);
        close(ends[0]);
        close(ends[1]);

        pair(ends);
        line("write what fits, %lld ms", 1000 * timeouts[i]);
        started = mstime();
        result = syncWrite(ends[0], data, 3000, 1000 * timeouts[i]);
        told(result, errno, started, 1000 * timeouts[i]);

        line("read more than is there, %lld ms", timeouts[i]);
        started = mstime();
        result = syncRead(ends[1], place, 4000, timeouts[i]);
        told(result, errno, started, timeouts[i]);

        line("read a line that does not come, %lld ms", timeouts[i]);
        started = mstime();
        result = syncReadLine(ends[1], place, sizeof place, timeouts[i]);
        told(result, errno, started, timeouts[i]);
        close(ends[0]);
        close(ends[1]);
    }
}
