/*
 * Reads and writes files of the guest for the host.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init.h"

void read_file(const struct request *request)
{
    static char bytes[LARGEST_PAYLOAD];
    char *at = request->payload, *end = at + request->length;
    char *path = next_field(&at, end), *offset = next_field(&at, end);
    int file = offset ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    size_t length = 0;
    ssize_t piece = 0;

    off_t start = offset ? (off_t)strtoull(offset, NULL, 10) : 0;

    /* Some files of debugfs do not support seeking. */
    if (file < 0 || (start && lseek(file, start, SEEK_SET) < 0)) {
        reply_error(request->id, path ? path : "read");
    } else {
        /* Files in /proc arrive in pieces. */
        while (length < sizeof bytes && (piece = read(file, bytes + length, sizeof bytes - length)) > 0) {
            length += (size_t)piece;
        }
        piece < 0 ? reply_error(request->id, path) : reply(request->id, "ok", bytes, length);
    }
    if (file >= 0) {
        close(file);
    }
}

/* Create the missing folders of a file's path. */
static void make_folders_of(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
}

void write_file(const struct request *request)
{
    char *at = request->payload, *end = at + request->length;
    char *path = next_field(&at, end), *how = next_field(&at, end);
    if (path && *path) {
        make_folders_of(path);
    }
    int flags = how && strcmp(how, "append") == 0 ? O_APPEND : O_TRUNC;
    int file = how ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0755) : -1;
    ssize_t length = how ? end - at : 0;

    if (file < 0 || write(file, at, (size_t)length) != length) {
        reply_error(request->id, path ? path : "write");
    } else {
        reply(request->id, "ok", NULL, 0);
    }
    if (file >= 0) {
        close(file);
    }
}
