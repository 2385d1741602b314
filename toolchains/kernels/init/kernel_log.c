/*
 * The kernel's messages, as /dev/kmsg has them: a record a read, `PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT`
 * (Linux Documentation/ABI/testing/dev-kmsg).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "init.h"

static int kernel_log = -1;

void open_kernel_log(void)
{
    kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* What does not fit comes next time. */
void send_kernel_log(const struct request *request)
{
    static char text[LARGEST_PAYLOAD];
    char entry[8192];
    size_t length = 0;

    while (length + sizeof entry < sizeof text) {
        ssize_t got = read(kernel_log, entry, sizeof entry - 1);
        if (got < 0 && errno == EPIPE) {
            continue; /* older ones were overwritten */
        }
        if (got <= 0) {
            break;
        }
        entry[got] = '\0';
        char *message = strchr(entry, ';');
        unsigned long long microseconds = 0;

        sscanf(entry, "%*u,%*u,%llu", &microseconds);
        if (message) {
            message[1 + strcspn(message + 1, "\n")] = '\0';
            length += (size_t)snprintf(text + length, sizeof text - length, "[%5llu.%06llu] %s\n",
                                       microseconds / 1000000, microseconds % 1000000, message + 1);
        }
    }
    reply(request->id, "ok", text, length);
}
