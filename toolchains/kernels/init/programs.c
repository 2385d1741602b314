/*
 * Programs that the host starts. Each leads its own session, runs traced (trace.c) or not, and init reports its end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"

enum { MOST_WORDS = 256, MOST_PROGRAMS = 1024 };

static pid_t started[MOST_PROGRAMS]; /* programs whose ends are reported to the host */
static size_t programs;

/* In the child: set up the program's session, folder and output, and wait until it is traced. Never returns. */
static void become(char *folder, const char *output, char **words, char **variables, int gate)
{
    sigset_t none;
    char go;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    mkdir(folder, 0755); /* it may exist */
    int log = open(output, O_WRONLY | O_CREAT | O_APPEND, 0644), nothing = open("/dev/null", O_RDONLY);
    if (log < 0 || nothing < 0 || chdir(folder) != 0) {
        complain(log < 0 ? output : folder);
        _exit(127);
    }
    dup2(nothing, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    if (log > STDERR_FILENO) {
        close(log);
    }
    if (nothing > STDERR_FILENO) {
        close(nothing);
    }
    if (read(gate, &go, 1) == 1) {
        execve(words[0], words, variables);
        complain(words[0]);
    }
    _exit(127);
}

void start(const struct request *request)
{
    char *at = request->payload, *end = at + request->length;
    char *traced = next_field(&at, end), *folder = next_field(&at, end), *output = next_field(&at, end);
    char *count = next_field(&at, end), *texts[MOST_WORDS + 2] = {NULL}, **variables = texts;
    int total = 0, gate[2];

    if (count == NULL || programs == MOST_PROGRAMS) {
        reply_text(request->id, "error", count ? "too many programs have been started" : "start: fields are missing");
        return;
    }
    /* Words, NULL, variables, NULL. */
    for (char *field; total < MOST_WORDS && (field = next_field(&at, end)) != NULL; total++) {
        if (total == atoi(count)) {
            variables = texts + total + 1;
        }
        variables == texts ? (texts[total] = field) : (texts[total + 1] = field);
    }
    if (variables == texts) {
        variables = texts + total + 1;
    }
    if (pipe2(gate, O_CLOEXEC) != 0) {
        reply_error(request->id, "pipe");
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        become(folder, output, texts, variables, gate[0]);
    }
    close(gate[0]);
    if (pid < 0) {
        reply_error(request->id, "fork");
    } else if (strcmp(traced, "1") == 0 && !trace(pid)) {
        reply_error(request->id, "ptrace");
    } else {
        started[programs++] = pid;
        reply_text(request->id, "ok", "%d", pid);
        if (write(gate[1], "", 1) != 1) {
            complain("a program's start");
        }
    }
    close(gate[1]); /* if nothing was written, the child ends */
}

void reap(void)
{
    siginfo_t change = {0};

    /* Both calls report ends, and stops of traced processes. They would report a stop of any other process for ever. */
    while (waitid(P_ALL, 0, &change, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 && change.si_pid > 0) {
        int status;
        pid_t pid = change.si_pid;

        /* The process can only be looked up until its end is reaped. */
        if (change.si_code == CLD_KILLED || change.si_code == CLD_DUMPED) {
            report_death(pid, change.si_status);
        }
        change.si_pid = 0;
        if (waitpid(pid, &status, WNOHANG | __WALL) != pid) {
            continue;
        }
        if (WIFSTOPPED(status)) {
            on_stop(pid, status);
            continue;
        }
        for (size_t i = 0; i < programs; i++) {
            if (started[i] == pid) {
                started[i] = started[--programs];
                if (WIFSIGNALED(status)) {
                    reply_text(0, "ended", "%d signal %d", pid, host_signal(WTERMSIG(status)));
                } else {
                    reply_text(0, "ended", "%d exit %d", pid, WEXITSTATUS(status));
                }
                break;
            }
        }
    }
}

void send_signal(const struct request *request)
{
    char *at = request->payload, *end = at + request->length;
    char *pid = next_field(&at, end), *number = next_field(&at, end);

    if (number == NULL || kill(atoi(pid), guest_signal(atoi(number))) != 0) {
        reply_error(request->id, "kill");
    } else {
        reply(request->id, "ok", NULL, 0);
    }
}

void list_processes(const struct request *request)
{
    static char text[LARGEST_PAYLOAD];
    size_t length = 0;
    DIR *all = opendir("/proc");

    for (struct dirent *entry; all && (entry = readdir(all)) != NULL;) {
        char path[300], line[256], *name, *rest;

        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *stat = atoi(entry->d_name) > 0 ? fopen(path, "re") : NULL;
        if (stat == NULL) {
            continue;
        }
        /* PID (NAME) STATE PARENT ...; kernel threads are the second's children. */
        if (fgets(line, sizeof line, stat) && (name = strchr(line, '(')) && (rest = strrchr(line, ')'))) {
            char state;
            int parent;

            *rest = '\0';
            if (sscanf(rest + 1, " %c %d", &state, &parent) == 2 && parent != 2 && atoi(line) != 2
                && length + sizeof line < sizeof text) {
                length += (size_t)snprintf(text + length, sizeof text - length, "%d %d %c %s\n", atoi(line), parent,
                                           state, name + 1);
            }
        }
        fclose(stat);
    }
    if (all) {
        closedir(all);
    }
    reply(request->id, "ok", text, length);
}
