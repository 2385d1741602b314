/*
 * Sends requests to a server in the same machine, and prints how long the server worked on them
 * (harness/workflows/measure/fixup_cost_run.py).
 *
 *   load PORT PID REQUESTS REPLIES TIMES
 *   load PID
 *   load from FILE PROGRAM WORD...
 *
 * The first form sends the content of the file REQUESTS at once and waits for the replies, which must equal the content
 * of the file REPLIES. It does this TIMES times, and prints the nanoseconds that all threads of process PID used
 * meanwhile, including the kernel's work for them. The second form prints the nanoseconds that they have used since the
 * start of the process. The third form becomes PROGRAM with FILE as its standard input: the machine has no shell.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 256 * 1024 };

struct content {
    char bytes[LARGEST];
    size_t length;
};

static void fail(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static void read_content(const char *path, struct content *content)
{
    FILE *file = fopen(path, "rb");

    if (file == NULL) {
        fail(path);
    }
    content->length = fread(content->bytes, 1, sizeof content->bytes, file);
    if (content->length == 0 || content->length == sizeof content->bytes) {
        fprintf(stderr, "%s is empty, or too large\n", path);
        exit(EXIT_FAILURE);
    }
    fclose(file);
}

static int connect_to(int port)
{
    struct sockaddr_in server = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int connection = socket(AF_INET, SOCK_STREAM, 0);

    if (connection < 0 || connect(connection, (struct sockaddr *)&server, sizeof server) != 0) {
        fail("connect");
    }
    return connection;
}

static void exchange(int connection, const struct content *requests, const struct content *replies)
{
    static char received[LARGEST];
    size_t sent = 0, got = 0;

    while (sent < requests->length) {
        ssize_t wrote = write(connection, requests->bytes + sent, requests->length - sent);
        if (wrote <= 0) {
            fail("write");
        }
        sent += (size_t)wrote;
    }
    while (got < replies->length) {
        ssize_t more = read(connection, received + got, sizeof received - got);
        if (more <= 0) {
            errno = more < 0 ? errno : ECONNRESET; /* the server closed the connection */
            fail("the server's reply");
        }
        got += (size_t)more;
    }
    if (got != replies->length || memcmp(received, replies->bytes, got) != 0) {
        fprintf(stderr, "unexpected: %.*s\n", got < 200 ? (int)got : 200, received);
        exit(EXIT_FAILURE);
    }
}

static int64_t nanoseconds_of(pid_t pid)
{
    struct timespec now;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) != 0) {
        fprintf(stderr, "process %d has no clock\n", (int)pid);
        exit(EXIT_FAILURE);
    }
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void become(char **words)
{
    int input = open(words[0], O_RDONLY);

    if (input < 0 || dup2(input, STDIN_FILENO) < 0) {
        fail(words[0]);
    }
    close(input);
    execv(words[1], words + 1);
    fail(words[1]);
}

int main(int argc, char **argv)
{
    static struct content requests, replies;

    if (argc > 3 && strcmp(argv[1], "from") == 0) {
        become(argv + 2);
    }
    if (argc == 2) {
        printf("%lld\n", (long long)nanoseconds_of(atoi(argv[1])));
        return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    }
    if (argc != 6) {
        fprintf(stderr, "usage: load PORT PID REQUESTS REPLIES TIMES | load PID | load from FILE PROGRAM WORD...\n");
        return EXIT_FAILURE;
    }
    read_content(argv[3], &requests);
    read_content(argv[4], &replies);
    int connection = connect_to(atoi(argv[1]));
    pid_t server = atoi(argv[2]);
    int64_t before = nanoseconds_of(server);
    for (long i = 0; i < atol(argv[5]); i++) {
        exchange(connection, &requests, &replies);
    }
    printf("%lld\n", (long long)(nanoseconds_of(server) - before));
    return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
