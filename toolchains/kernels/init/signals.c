/*
 * Converts signal numbers: the control channel uses those of x86 and ARM.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <signal.h>

#include "init.h"

/* In the order of asm-generic's numbers, from 1. SPARC has other numbers for most. */
static const int generic_signals[] = {
    SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE,
    SIGALRM, SIGTERM, 0, SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGXCPU, SIGXFSZ, SIGVTALRM,
    SIGPROF, SIGWINCH, SIGIO, SIGPWR, SIGSYS
};
enum { GENERIC_SIGNALS = sizeof generic_signals / sizeof *generic_signals };

int host_signal(int number)
{
    for (int i = 0; i < GENERIC_SIGNALS; i++) {
        if (generic_signals[i] == number) {
            return i + 1;
        }
    }
    return number;
}

int guest_signal(int number)
{
    return number >= 1 && number <= GENERIC_SIGNALS ? generic_signals[number - 1] : number;
}
