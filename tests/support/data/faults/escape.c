/* A program that its emulator's fault log must survive: it closes what is not its own, limits files, repeats itself. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[16] __attribute__((aligned(16)));
static sigjmp_buf again;

/* One instruction, which every strict machine refuses. */
__attribute__((noinline)) static uint32_t misaligned(const char *address)
{
    __asm__ volatile("" : "+r"(address));
    return *(const volatile uint32_t *)address;
}

static void handled(int number)
{
    (void)number;
    siglongjmp(again, 1);
}

/* As a server does: a report, and then the signal's own end. */
static void reported(int number)
{
    static const char report[] = "reported\n";
    ssize_t written = write(STDOUT_FILENO, report, sizeof report - 1);

    (void)written;
    signal(number, SIG_DFL);
    raise(number);
}

/* Says whether the program's maps, where a crash handler looks for memory to test, name any. */
static void look_at_maps(void)
{
    char byte;
    int maps = open("/proc/self/maps", O_RDONLY);
    const char *found = maps >= 0 && read(maps, &byte, 1) == 1 ? "maps\n" : "no maps\n";
    ssize_t written = write(STDOUT_FILENO, found, strlen(found));

    (void)written;
    close(maps);
}

static void handled_with_maps(int number)
{
    look_at_maps();
    signal(number, SIG_DFL);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";

    if (strcmp(how, "close") == 0) {
        for (int number = 3; number < 4096; number++) {
            close(number);
        }
    } else if (strcmp(how, "reuse") == 0) {
        /* Every number that the log can have becomes a file of the program's own. */
        int own = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);

        for (int number = 3; number < 1020; number++) {
            if (number != own) {
                dup2(own, number);
            }
        }
    } else if (strcmp(how, "limit") == 0) {
        const struct rlimit least = { 1, 1 };

        setrlimit(RLIMIT_FSIZE, &least);
    } else if (strcmp(how, "repeat") == 0) {
        volatile int left = atoi(argv[2]);

        signal(SIGBUS, handled);
        sigsetjmp(again, 1);
        while (left-- > 0) {
            misaligned(bytes + 1);
        }
        return 0;
    } else if (strcmp(how, "report") == 0) {
        signal(SIGBUS, reported);
    } else if (strcmp(how, "maps") == 0) {
        signal(SIGBUS, handled_with_maps);
        look_at_maps();
    } else if (strcmp(how, "abort") == 0) {
        int status;

        if (fork() == 0) {
            abort();
        }
        wait(&status);
        return 7;
    }
    misaligned(bytes + 1);
    return 0;
}
