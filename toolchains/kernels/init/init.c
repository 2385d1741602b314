/*
 * The guest system of the kernel tier: the only program of its own in the machine, and process 1.
 *
 * It mounts what programs expect, configures the network (the emulator's user-mode network has fixed addresses), and
 * then does what the host asks on a control channel (channel.c), whose device the kernel's command line names in
 * `control=`; or `tcp:PORT` instead. Verbs, with their fields, each ended by a NUL:
 *
 *   ping                                        ok
 *   start TRACED FOLDER OUTPUT COUNT WORD... VARIABLE...    ok PID; later the event `ended PID exit|signal NUMBER`
 *   signal PID NUMBER                           ok; a negative PID is a process group
 *   processes                                   ok, a line `PID PARENT STATE NAME` for each
 *   read PATH OFFSET                            ok, at most LARGEST_PAYLOAD bytes; none at the end
 *   write PATH truncate|append BYTES            ok
 *   log                                         ok, the kernel's messages since the last time
 *   clock SECONDS                               ok; sets the time of day
 *   off                                         nothing: the machine is reset, and the emulator ends
 *
 * Events have ID 0: `ready` once (over TCP to each host), `ended`, and `fault` with a record (trace.c). Signals have the host's numbers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <net/if.h>
#include <net/route.h>
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

enum { MOST_WORDS = 256, MOST_PROGRAMS = 1024, OPEN_FILES = 20000, RECONNECT_PAUSE_MICROSECONDS = 20000 };

static pid_t started[MOST_PROGRAMS]; /* programs whose end the host wants to hear of */
static size_t programs;
static int kernel_log = -1;

void complain(const char *what)
{
    fprintf(stderr, "plumbline: %s: %s\n", what, strerror(errno));
}

static void mount_or_complain(const char *type, const char *place)
{
    mkdir(place, 0755);
    if (mount(type, place, type, 0, NULL) != 0) {
        complain(place);
    }
}

static void set_address(struct ifreq *request, const char *address)
{
    struct sockaddr_in *at = (struct sockaddr_in *)(void *)&request->ifr_addr;

    memset(at, 0, sizeof *at);
    at->sin_family = AF_INET;
    inet_aton(address, &at->sin_addr);
}

/* Address and mask first, then up; false when there is no such interface. */
static bool configure_interface(int socket_, const char *name, const char *address, const char *mask)
{
    struct ifreq request = {0};

    strncpy(request.ifr_name, name, sizeof request.ifr_name - 1);
    set_address(&request, address);
    bool done = ioctl(socket_, SIOCSIFADDR, &request) == 0;
    set_address(&request, mask);
    done = done && ioctl(socket_, SIOCSIFNETMASK, &request) == 0 && ioctl(socket_, SIOCGIFFLAGS, &request) == 0;
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    return done && ioctl(socket_, SIOCSIFFLAGS, &request) == 0;
}

/* QEMU's user-mode network: the guest is 10.0.2.15, the way out 10.0.2.2. */
static void configure_network(void)
{
    int socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    struct sockaddr_in *gateway = (struct sockaddr_in *)(void *)&route.rt_gateway;

    if (!configure_interface(socket_, "lo", "127.0.0.1", "255.0.0.0")) {
        complain("lo");
    }
    if (!configure_interface(socket_, "eth0", "10.0.2.15", "255.255.255.0")) {
        complain("eth0");
    }
    route.rt_dst.sa_family = route.rt_genmask.sa_family = AF_INET;
    gateway->sin_family = AF_INET;
    inet_aton("10.0.2.2", &gateway->sin_addr);
    if (ioctl(socket_, SIOCADDRT, &route) != 0) {
        complain("the default route");
    }
    close(socket_);
}

/* Machines without a source of randomness would make the first program wait for it; here nothing is secret. */
static void credit_randomness(void)
{
    struct {
        struct rand_pool_info head;
        char bytes[64];
    } seed = {.head = {.entropy_count = 512, .buf_size = 64}};
    int random = open("/dev/urandom", O_RDWR | O_CLOEXEC);

    if (random < 0 || ioctl(random, RNDADDENTROPY, &seed) != 0) {
        complain("/dev/urandom");
    }
    if (random >= 0) {
        close(random);
    }
}

static void set_up(void)
{
    static const struct rlimit files = {OPEN_FILES, OPEN_FILES}, no_core = {0, 0};

    mount_or_complain("proc", "/proc");
    mount_or_complain("sysfs", "/sys");
    mount_or_complain("devtmpfs", "/dev");
    mount_or_complain("tmpfs", "/tmp");
    mount_or_complain("tmpfs", "/run");
    setrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_CORE, &no_core);
    credit_randomness();
    configure_network();
    kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* In the child: everything of the program's own, then wait until it is traced. Never returns. */
static void become(char *folder, const char *output, char **words, char **variables, int gate)
{
    sigset_t none;
    char go;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
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

static void start(const struct request *request)
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
    close(gate[1]); /* where nothing was written, the child ends */
}

/* Take in the ends and stops of all processes. */
static void reap(void)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
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

static void send_signal(const struct request *request)
{
    char *at = request->payload, *end = at + request->length;
    char *pid = next_field(&at, end), *number = next_field(&at, end);

    if (number == NULL || kill(atoi(pid), guest_signal(atoi(number))) != 0) {
        reply_error(request->id, "kill");
    } else {
        reply(request->id, "ok", NULL, 0);
    }
}

static void list_processes(const struct request *request)
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

static void read_file(const struct request *request)
{
    static char bytes[LARGEST_PAYLOAD];
    char *at = request->payload, *end = at + request->length;
    char *path = next_field(&at, end), *offset = next_field(&at, end);
    int file = offset ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    size_t length = 0;
    ssize_t piece = 0;

    if (file < 0 || lseek(file, (off_t)strtoull(offset, NULL, 10), SEEK_SET) < 0) {
        reply_error(request->id, path ? path : "read");
    } else {
        /* Files in /proc come in pieces. */
        while (length < sizeof bytes && (piece = read(file, bytes + length, sizeof bytes - length)) > 0) {
            length += (size_t)piece;
        }
        piece < 0 ? reply_error(request->id, path) : reply(request->id, "ok", bytes, length);
    }
    if (file >= 0) {
        close(file);
    }
}

static void write_file(const struct request *request)
{
    char *at = request->payload, *end = at + request->length;
    char *path = next_field(&at, end), *how = next_field(&at, end);
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

/* A record a read: `PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT`. What does not fit comes next time. */
static void send_kernel_log(const struct request *request)
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

static void set_clock(const struct request *request)
{
    struct timespec now = {.tv_sec = (time_t)strtoll(request->payload, NULL, 10)};

    clock_settime(CLOCK_REALTIME, &now) == 0 ? reply(request->id, "ok", NULL, 0) : reply_error(request->id, "clock");
}

static void ping(const struct request *request)
{
    reply(request->id, "ok", NULL, 0);
}

static void switch_off(const struct request *request)
{
    (void)request;
    sync();
    /* Not every machine can be switched off; the emulator is told to end when one is reset. */
    reboot(RB_AUTOBOOT);
}

static void answer(const struct request *request)
{
    static const struct {
        const char *verb;
        void (*act)(const struct request *);
    } verbs[] = {
        {"ping", ping}, {"start", start}, {"signal", send_signal}, {"processes", list_processes},
        {"read", read_file}, {"write", write_file}, {"log", send_kernel_log}, {"clock", set_clock}, {"off", switch_off}
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
            usleep(RECONNECT_PAUSE_MICROSECONDS); /* nobody is there */
        }
        while (next_request(&request)) {
            answer(&request);
        }
    }
}
