/*
 * The kernel's messages. Each read of /dev/kmsg returns one record, `PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT`
 * (Linux Documentation/ABI/testing/dev-kmsg).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "init.h"

enum { LONGEST_RECORD = 8192 };

/* Each reader has its own position in the log. */
static int for_host = -1, for_faults = -1;

void open_kernel_log(void)
{
    for_host = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    for_faults = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* A reader's next message without the end of its line; NULL if there is none yet. */
static char *next_message(int reader, char record[LONGEST_RECORD], unsigned long long *microseconds)
{
    for (;;) {
        ssize_t got = read(reader, record, LONGEST_RECORD - 1);
        if (got < 0 && errno == EPIPE) {
            continue; /* older ones were overwritten */
        }
        if (got <= 0) {
            return NULL;
        }
        record[got] = '\0';
        char *message = strchr(record, ';');
        if (message && sscanf(record, "%*u,%*u,%llu", microseconds) == 1) {
            message[1 + strcspn(message + 1, "\n")] = '\0';
            return message + 1;
        }
    }
}

/* The next call returns the messages that do not fit. */
void send_kernel_log(const struct request *request)
{
    static char text[LARGEST_PAYLOAD];
    char record[LONGEST_RECORD], *message;
    unsigned long long microseconds;
    size_t length = 0;

    while (length + sizeof record < sizeof text && (message = next_message(for_host, record, &microseconds))) {
        length += (size_t)snprintf(text + length, sizeof text - length, "[%5llu.%06llu] %s\n", microseconds / 1000000,
                                   microseconds % 1000000, message);
    }
    reply(request->id, "ok", text, length);
}

/*
 * The formats of Linux arch/arm/mm. If warnings are on, alignment.c reports every trapped access. It also reports an
 * instruction that it cannot fix up, and fault.c then reports the fault. The messages name the thread, the instruction's
 * place, or the address.
 */
static bool is_about(const char *message, pid_t tid, uint64_t pc, uint64_t address)
{
    char thread[32], place[32], accessed[32];

    snprintf(thread, sizeof thread, " (%d) PC=", (int)tid);
    snprintf(place, sizeof place, " at [<%08" PRIx64 ">]", pc);
    snprintf(accessed, sizeof accessed, " at 0x%08" PRIx64, address);
    if (strncmp(message, "Alignment trap: ", 16) == 0) {
        return strstr(message, thread) || strstr(message, place);
    }
    return strncmp(message, "Unhandled fault: ", 17) == 0 && strstr(message, accessed);
}

void messages_about(pid_t tid, uint64_t pc, uint64_t address, void (*take)(const char *message))
{
    char record[LONGEST_RECORD], *message;
    unsigned long long microseconds;

    while ((message = next_message(for_faults, record, &microseconds))) {
        if (is_about(message, tid, pc, address)) {
            take(message);
        }
    }
}
