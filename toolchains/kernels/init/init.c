/*
 * The guest system of the kernel tier: process 1, and the only program that belongs to the machine.
 *
 * It mounts the file systems that programs expect, configures the network (the emulator's user-mode network has fixed
 * addresses), and then carries out the host's requests on a control channel (channel.c). The kernel's command line names
 * the channel's device, or `tcp:PORT`, in `control=`. The verbs and their fields, each of which ends with a NUL:
 *
 *   ping                                        ok
 *   start TRACED FOLDER OUTPUT COUNT WORD... VARIABLE...    ok PID; later the event `ended PID exit|signal NUMBER`;
 *                                               a missing folder is created, as for `write`
 *   signal PID NUMBER                           ok; a negative PID is a process group
 *   processes                                   ok, a line `PID PARENT STATE NAME` for each process
 *   read PATH OFFSET                            ok, at most LARGEST_PAYLOAD bytes; none at the end
 *   write PATH truncate|append BYTES            ok
 *   log                                         ok, the kernel's messages since the last `log`
 *   clock SECONDS                               ok; sets the time of day
 *
 * Events have ID 0: `ready` once (over TCP, once for each host), `ended`, `fault` with a record (trace.c), and
 * `died SESSION PID SIGNAL` for each traced process that a signal ended, whatever its parent. Signals have the host's
 * numbers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

enum { RECONNECT_PAUSE_MICROSECONDS = 20000 };

void complain(const char *what)
{
    fprintf(stderr, "plumbline: %s: %s\n", what, strerror(errno));
}

static void set_clock(const struct request *request)
{
    struct timespec now = {.tv_sec = (time_t)strtoll(request->payload, NULL, 10)};

    clock_settime(CLOCK_REALTIME, &now) == 0 ? reply(request->id, "ok", NULL, 0) : reply_error(request->id, "clock");
}

static void ping(const struct request *request)
{
    reply(request->id, "ok", NULL, 0);
}

static void answer(const struct request *request)
{
    static const struct {
        const char *verb;
        void (*act)(const struct request *);
    } verbs[] = {
        {"ping", ping}, {"start", start}, {"signal", send_signal}, {"processes", list_processes},
        {"read", read_file}, {"write", write_file}, {"log", send_kernel_log}, {"clock", set_clock}
    };

    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verbs[i].verb, request->verb) == 0) {
            verbs[i].act(request);
            return;
        }
    }
    reply_text(request->id, "error", "unknown verb %s", request->verb);
}

int main(void)
{
    const char *control = getenv("control");
    sigset_t children;

    set_up();
    open_kernel_log();
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    int ends = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
    open_channel(control ? control : "/dev/null");
    for (;;) {
        struct pollfd sources[] = {{channel_descriptor(), POLLIN, 0}, {ends, POLLIN, 0}};
        struct signalfd_siginfo signal;
        struct request request;

        poll(sources, 2, -1);
        while (read(ends, &signal, sizeof signal) > 0) {
        }
        reap();
        if (sources[0].revents && !receive()) {
            usleep(RECONNECT_PAUSE_MICROSECONDS); /* no host is connected */
        }
        while (next_request(&request)) {
            answer(&request);
        }
    }
}
