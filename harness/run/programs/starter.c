/*
 * Replaces a program of the target that a traced command executes (tracer.c). It records what was executed and how, and
 * becomes the emulator by execv. The process number therefore remains the one that the command knows.
 *
 * It was executed as PLACE/N, which it removes. PLACE/emulator holds words, each ended by a NUL byte: HOME, the emulator
 * and its options. PLACE/N.words holds the words before the arguments: the program, or the interpreters of a script with
 * their arguments, and the script.
 *
 * HOME/guest-N/launch   words: process number, time in ms since 1970, working folder, program, the file that was
 *                       executed (the program, or a script), number of arguments, arguments, and the variables by
 *                       which its environment differs from PLACE/environment: NAME=VALUE, or NAME if it was removed
 * HOME/guest-N/input    the rest of its standard input, if that is a short file; if it is a pipe, a socket or a terminal,
 *                       an empty file, to which the tracer adds what the program reads
 * HOME/guest-N/input-lost  it is a file too long for that
 * HOME/guest-N/configure  the log of the configure script of which it is a probe: the script has its config.log open
 */
#define _GNU_SOURCE
#define PROGRAM "starter"
#include "word_list.h"
#include <dirent.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#define MOST_WORDS 256
#define MOST_INPUT (1 << 20)

extern char **environ;

/* A path below a folder. */
static char *below(const char *folder, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        fail("no memory for", name);
    return path;
}

/* Whether a list of variables has one, by its name or in full. */
static int has(char **variables, const char *one, size_t length, int whole)
{
    for (; *variables; variables++)
        if (whole ? !strcmp(*variables, one)
                  : !strncmp(*variables, one, length) && ((*variables)[length] == '=' || !(*variables)[length]))
            return 1;
    return 0;
}

/* The variables by which the environment differs from the command's. */
static void note_environment(FILE *note, const char *place)
{
    size_t length, count = 0;
    char *content = content_of(below(place, "environment"), &length);
    char **before = obtain(calloc(length + 1, sizeof *before));
    for (char *one = content; one < content + length; one += strlen(one) + 1)
        before[count++] = one;
    for (char **one = environ; *one; one++)
        if (!has(before, *one, 0, 1))
            fprintf(note, "%s%c", *one, 0);
    for (size_t i = 0; i < count; i++) {
        size_t name = strcspn(before[i], "=");
        if (!has(environ, before[i], name, 0))
            fprintf(note, "%.*s%c", (int)name, before[i], 0);
    }
}

/* Returns whether standard input is a stream, whose content only reading shows: a pipe, a socket, a terminal. */
static int keep_input(const char *folder)
{
    struct stat status = {0}, nothing = {0};
    char *path = below(folder, "input");
    if (fstat(STDIN_FILENO, &status) == 0 &&
        (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) ||
         (S_ISCHR(status.st_mode) && (stat("/dev/null", &nothing) < 0 || status.st_rdev != nothing.st_rdev)))) {
        int empty = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (empty < 0 || close(empty) < 0)
            fail("cannot write", path);
        return 1;
    }
    off_t at = lseek(STDIN_FILENO, 0, SEEK_CUR);
    int is_file = at >= 0 && S_ISREG(status.st_mode);
    if (is_file && status.st_size - at > MOST_INPUT) {
        int lost = open(below(folder, "input-lost"), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (lost < 0 || close(lost) < 0)
            fail("cannot write below", folder);
    }
    if (!is_file || status.st_size - at > MOST_INPUT)
        return 0;
    size_t length = status.st_size > at ? (size_t)(status.st_size - at) : 0;
    char *content = obtain(malloc(length + 1));
    ssize_t some = pread(STDIN_FILENO, content, length, at);
    int file = some < 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (some >= 0 && (file < 0 || write(file, content, (size_t)some) != some || close(file) < 0))
        fail("cannot write", path);
    free(content);
    return 0;
}

#define OF_CALL(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF_EQUAL(number, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, yes, no)

/* Stop the program where it writes to its standard output or error and, if `reads`, where it reads its standard input:
 * the tracer keeps what it says, and what a stream gives it. In another interface the numbers mean other calls, which the
 * tracer lets pass. */
static void show_streams(int reads)
{
    struct sock_filter filter[] = {
        OF_CALL(nr),
        IF_EQUAL(SYS_write, 3, 0),
        IF_EQUAL(SYS_writev, 2, 0),
        IF_EQUAL(reads ? SYS_read : SYS_write, 0, 6),
        BPF_STMT(BPF_JMP | BPF_JA, 3),
        OF_CALL(args[0]),
        IF_EQUAL(STDOUT_FILENO, 4, 0),
        IF_EQUAL(STDERR_FILENO, 3, 2),
        OF_CALL(args[0]),
        IF_EQUAL(STDIN_FILENO, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    /* QEMU's emulation of Linux has no filters. The tracer has set some before, so a kernel has them. */
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 && errno != EINVAL)
        fail("cannot filter the system calls of", "the program");
}

/* Record the log that a script of Autoconf leaves open for everything that it executes. */
static void note_configure(const char *folder)
{
    static const char name[] = "/config.log";
    char path[PATH_MAX];
    DIR *descriptors = opendir("/proc/self/fd");
    const struct dirent *one;
    while (descriptors && (one = readdir(descriptors))) {
        ssize_t length = readlinkat(dirfd(descriptors), one->d_name, path, sizeof path - 1);
        path[length > 0 ? length : 0] = 0;
        if (length < (ssize_t)strlen(name) || strcmp(path + length - strlen(name), name) != 0)
            continue;
        FILE *note = fopen(below(folder, "configure"), "wxe");
        if (!note || fprintf(note, "%s\n", path) < 0 || fclose(note) != 0)
            fail("cannot write below", folder);
        break;
    }
    if (descriptors)
        closedir(descriptors);
}

/* Whether a variable is one that the dynamic loader reads, such as LD_PRELOAD. In the emulator's option that passes it to
 * the program alone, a comma would begin another variable. */
static int is_of_loader(const char *variable)
{
    return !strncmp(variable, "LD_", 3) && !strchr(variable, ',');
}

/* Remove from the environment what is not for the emulator. The variables that QEMU treats as options, such as QEMU_CPU,
 * would change the machine that the canaries have proved. Those of the loader name libraries of the target, with which the
 * host's loader would not start the emulator, or not without a message on the program's standard error. The program gets
 * these by options, which are added to the arguments. Returns the place behind them. */
static char **divide_environment(char **arguments)
{
    char **kept = environ;
    for (char **one = environ; *one; one++)
        if (is_of_loader(*one)) {
            *arguments++ = "-E";
            *arguments++ = *one;
        } else if (strncmp(*one, "QEMU_", 5) != 0)
            *kept++ = *one;
    *kept = NULL;
    return arguments;
}

static size_t environment_count(void)
{
    size_t count = 0;
    while (environ[count])
        count++;
    return count;
}

/* The path without links, if there is one. */
static const char *resolved(const char *path)
{
    const char *whole = realpath(path, NULL);
    return whole ? whole : path;
}

static void note_launch(const char *folder, const char *place, char **first, size_t count, int argc, char **argv)
{
    char *path = below(folder, "launch"), here[PATH_MAX] = "";
    struct timespec now;
    FILE *note = fopen(path, "wxe");
    /* A removed folder has no path, but programs can still run there. */
    if (!getcwd(here, sizeof here))
        here[0] = 0;
    if (!note)
        fail("cannot write", path);
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(note, "%ld%c%lld%c%s%c", (long)getpid(), 0, now.tv_sec * 1000LL + now.tv_nsec / 1000000, 0, here, 0);
    fprintf(note, "%s%c%s%c%d%c", resolved(first[0]), 0, resolved(first[count - 1]), 0, argc, 0);
    for (int i = 0; i < argc; i++)
        fprintf(note, "%s%c", argv[i], 0);
    note_environment(note, place);
    if (fclose(note) != 0)
        fail("cannot write", path);
}

int main(int argc, char **argv)
{
    char *emulator[MOST_WORDS], *first[MOST_WORDS];
    const char *executed = (const char *)getauxval(AT_EXECFN);
    const char *number = executed ? strrchr(executed, '/') : NULL;
    if (!number)
        fail("cannot tell by which name it was executed:", argc ? argv[0] : "starter");
    char *place = obtain(strndup(executed, (size_t)(number++ - executed)));
    char *list = below(place, number), *guest = NULL;
    if (asprintf(&list, "%s.words", list) < 0 || asprintf(&guest, "guest-%s", number) < 0)
        fail("no memory for", number);
    size_t emulator_count = words_in(below(place, "emulator"), emulator, MOST_WORDS);
    size_t first_count = words_in(list, first, MOST_WORDS);
    if (emulator_count < 2 || !first_count)
        fail("the list is cut short in", place);
    unlink(list);
    unlink(executed);
    char *folder = below(emulator[0], guest);
    note_launch(folder, place, first, first_count, argc, argv);
    int reads_stream = keep_input(folder);
    note_configure(folder);
    size_t most = emulator_count + first_count + (size_t)argc + 2 * environment_count() + 8;
    char **arguments = obtain(calloc(most, sizeof *arguments)), **next = arguments;
    for (size_t i = 1; i < emulator_count; i++)
        *next++ = emulator[i];
    next = divide_environment(next);
    *next++ = "-fault-log";
    *next++ = below(folder, "faults.jsonl");
    /* A script's interpreter receives its own path instead. */
    *next++ = "-0";
    *next++ = first_count == 1 && argc ? argv[0] : first[0];
    for (size_t i = 0; i < first_count; i++)
        *next++ = first[i];
    for (int i = 1; i < argc; i++)
        *next++ = argv[i];
    show_streams(reads_stream);
    execv(emulator[1], arguments);
    fail("cannot become", emulator[1]);
}
