/* Reads and writes with a time limit, which must end in time even if some of the bytes are transferred. */
#include "server.h"

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PIECES 4

static void pair(int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) exit(3);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
}

/* Show the result of a call, whether it reports a timeout, and whether it returned before the limit. */
static void told(ssize_t result, int error, long long started, long long timeout)
{
    number((long long)result);
    number(result < 0 && error == ETIMEDOUT);
    number(mstime() - started + 1 < timeout);
    end();
}

static char data[1 << 22], taken[1 << 12];

/* Start a slow process at the other end, which reads all data, or writes pieces and the end of a line. */
static pid_t slow(int end, int other, int takes)
{
    pid_t child = fork();
    size_t done = 0;
    ssize_t some = 1;

    if (child != 0) return child;
    close(other);
    fcntl(end, F_SETFL, 0);
    for (int i = 0; !takes && i < PIECES; i++) {
        usleep(20000);
        if (write(end, i + 1 < PIECES ? "abcdefgh\r" : "abcdefg\r\n", 9) != 9) _exit(1);
    }
    while (takes && done < sizeof data && some > 0) {
        usleep(5000);
        some = read(end, data, sizeof data / 64);
        done += (size_t)some;
    }
    _exit(0);
}

static void in_pieces(long long timeout)
{
    static const char *const calls[] = {"write to a slow reader", "read from a slow writer", "read a slow writer's line"};

    for (int i = 0; i < 3; i++) {
        long long started;
        ssize_t result;
        int ends[2];
        pid_t other;

        pair(ends);
        fflush(stdout);
        other = slow(ends[1], ends[0], i == 0);
        line("%s, %lld ms", calls[i], timeout);
        started = mstime();
        if (i == 0) result = syncWrite(ends[0], data, sizeof data, timeout);
        else if (i == 1) result = syncRead(ends[0], taken, 9 * PIECES, timeout);
        else result = syncReadLine(ends[0], taken, sizeof taken, timeout);
        told(result, errno, started, timeout);
        /* The process ends when its peer has closed. */
        close(ends[0]);
        close(ends[1]);
        waitpid(other, NULL, 0);
    }
}

void unit_syncio(void)
{
    static const long long timeouts[] = {30, 100};

    in_pieces(100000);
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
        result = syncRead(ends[1], taken, 4000, 1000 * timeouts[i]);
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
        result = syncRead(ends[1], taken, 4000, timeouts[i]);
        told(result, errno, started, timeouts[i]);

        line("read a line that does not come, %lld ms", timeouts[i]);
        started = mstime();
        result = syncReadLine(ends[1], taken, sizeof taken, timeouts[i]);
        told(result, errno, started, timeouts[i]);
        close(ends[0]);
        close(ends[1]);
    }
}
