/*
 * Frames on the control channel, which is a serial line, a virtio port or a TCP connection. A frame is a line
 * `ID WORD LENGTH` and LENGTH bytes. In frames of the host, WORD is a verb and ID numbers the request. Init replies with
 * `ok` or `error` and the same ID; its own events have ID 0. Bytes before the first complete header line are dropped,
 * because a serial line may start with noise.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "init.h"

enum { LONGEST_HEADER = 64, OPEN_ATTEMPTS = 1000, OPEN_PAUSE_MICROSECONDS = 10000 };

static int channel = -1;
static int listener = -1; /* if the channel is a TCP connection */
static char buffer[LONGEST_HEADER + LARGEST_PAYLOAD + 1];
static size_t filled;
static size_t consumed; /* by the last request that was handed out */
static char displaced;  /* the byte that the NUL after that request's payload replaced */

/* Accept the next host. Connections that their hosts have already closed are accepted and left again. */
static void accept_host(void)
{
    if (channel >= 0) {
        close(channel);
    }
    do {
        channel = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    } while (channel < 0 && errno == EINTR);
    filled = consumed = 0;
    reply(0, "ready", NULL, 0);
}

static void listen_on(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, SOMAXCONN) != 0) {
        complain("the control channel's port");
    }
    accept_host();
}

static void open_device(const char *pattern)
{
    struct termios settings;

    /* Drivers still look for their devices while init starts. */
    for (int i = 0; channel < 0 && i < OPEN_ATTEMPTS; i++) {
        glob_t found;

        if (glob(pattern, 0, NULL, &found) == 0) {
            channel = open(found.gl_pathv[0], O_RDWR | O_NOCTTY | O_CLOEXEC);
            globfree(&found);
        }
        if (channel < 0) {
            usleep(OPEN_PAUSE_MICROSECONDS);
        }
    }
    if (channel < 0) {
        complain(pattern);
        return;
    }
    if (tcgetattr(channel, &settings) == 0) {
        cfmakeraw(&settings);
        settings.c_cflag |= CLOCAL;
        cfsetspeed(&settings, B115200);
        tcsetattr(channel, TCSANOW, &settings);
    }
}

void open_channel(const char *place)
{
    if (strncmp(place, "tcp:", 4) == 0) {
        listen_on(atoi(place + 4));
    } else {
        open_device(place);
        reply(0, "ready", NULL, 0);
    }
}

int channel_descriptor(void)
{
    return channel;
}

/* The NUL after the payload is in the place of the next frame's first byte: restore that, and close the gap. */
static void discard_consumed(void)
{
    if (consumed) {
        buffer[consumed] = displaced;
        memmove(buffer, buffer + consumed, filled - consumed);
        filled -= consumed;
        consumed = 0;
    }
}

bool receive(void)
{
    discard_consumed();
    ssize_t length = read(channel, buffer + filled, sizeof buffer - 1 - filled);

    if (length > 0) {
        filled += (size_t)length;
    }
    if (length > 0 || (length < 0 && (errno == EINTR || errno == EAGAIN))) {
        return true;
    }
    if (listener >= 0) {
        accept_host();
    }
    return listener >= 0;
}

bool next_request(struct request *request)
{
    discard_consumed();
    for (;;) {
        char *end = memchr(buffer, '\n', filled);
        if (end == NULL) {
            if (filled >= LONGEST_HEADER) {
                filled = 0; /* noise */
            }
            return false;
        }
        size_t header = (size_t)(end - buffer) + 1;
        *end = '\0';
        if (sscanf(buffer, "%u %15s %zu", &request->id, request->verb, &request->length) == 3
            && request->length <= LARGEST_PAYLOAD) {
            *end = '\n';
            if (filled < header + request->length) {
                return false;
            }
            request->payload = buffer + header;
            consumed = header + request->length;
            displaced = buffer[consumed];
            buffer[consumed] = '\0';
            return true;
        }
        memmove(buffer, buffer + header, filled - header);
        filled -= header;
    }
}

static void send_all(const void *bytes, size_t length)
{
    const char *at = bytes;

    while (length) {
        ssize_t sent = write(channel, at, length);
        if (sent > 0) {
            at += sent;
            length -= (size_t)sent;
        } else if (sent < 0 && errno != EINTR && errno != EAGAIN) {
            complain("the control channel");
            return;
        }
    }
}

void reply(unsigned id, const char *status, const void *payload, size_t length)
{
    char header[LONGEST_HEADER];
    int written = snprintf(header, sizeof header, "%u %s %zu\n", id, status, length);

    send_all(header, (size_t)written);
    send_all(payload, length);
}

void reply_text(unsigned id, const char *status, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    reply(id, status, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

void reply_error(unsigned id, const char *what)
{
    reply_text(id, "error", "%s: %s", what, strerror(errno));
}

char *next_field(char **at, const char *end)
{
    char *field = *at;

    if (field >= end) {
        return NULL;
    }
    *at = field + strlen(field) + 1;
    return field;
}
