/*
 * Tells what a machine and its C compiler are, one fact a line: a name, a space, the value. It compiles as C89, so that
 * the machine's own compiler can compile it, however old it is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What an int does that is loaded from an odd address. It may end the process, so a child does it. */
static void show_odd_load(void)
{
    static char bytes[2 * sizeof(int)];
    volatile int *place;
    char *address = bytes;
    int status = 0;
    pid_t child;

    /* The array itself may lie anywhere. */
    address += 1 - (int)((unsigned long)address & 1);
    memcpy(&place, &address, sizeof place);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        _exit(*place != 0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return;
    }
    if (WIFSIGNALED(status)) {
        printf("odd-load signal %d\n", WTERMSIG(status));
    } else {
        printf("odd-load %s\n", WEXITSTATUS(status) == 0 ? "done" : "wrong");
    }
}

/* The first line of /proc/cpuinfo that names the processor: each architecture has another key. */
static void show_processor(void)
{
    static const char *const keys[] = {"model name", "cpu model", "cpu\t", "Processor", "Hardware", "uarch"};
    char line[512];
    size_t i;
    FILE *file = fopen("/proc/cpuinfo", "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        for (i = 0; i < sizeof keys / sizeof *keys; i++) {
            char *colon = strchr(line, ':');
            if (colon != NULL && strncmp(line, keys[i], strlen(keys[i])) == 0) {
                printf("processor %s", colon + 1 + strspn(colon + 1, " \t"));
                fclose(file);
                return;
            }
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

int main(void)
{
    struct utsname system;
    unsigned int one = 1;
    char first;

    memcpy(&first, &one, 1);
    printf("endianness %s\n", first == 1 ? "little" : "big");
    printf("width_bits %d\n", (int)(sizeof(long) * CHAR_BIT));
    printf("time_bits %d\n", (int)(sizeof(time_t) * CHAR_BIT));
    printf("char %s\n", CHAR_MIN < 0 ? "signed" : "unsigned");
    printf("page_size_bytes %ld\n", sysconf(_SC_PAGESIZE));
    if (uname(&system) >= 0) {
        printf("kernel %s %s %s\n", system.sysname, system.release, system.version);
        printf("machine %s\n", system.machine);
    }
#if defined(__BIONIC__)
    printf("libc bionic\n");
#elif defined(__GLIBC__)
    printf("libc glibc %d.%d\n", __GLIBC__, __GLIBC_MINOR__);
#endif
    show_processor();
    show_odd_load();
    return 0;
}
