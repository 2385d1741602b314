/*
 * One misaligned load where a fault is hard to place: in an inlined function, a forked child, a thread, a signal
 * handler. Usage: place WHERE. Every load has a label of its own, so that a test knows its address for certain, and
 * the program says which process and thread ran it: `ran PID TID`, before the load.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* An access that the target's kernel does not let pass at 1 mod 4: plain where that is enough. */
#if defined(__arm__) && __ARM_ARCH >= 6
#define ACCESS "ldrd r2, r3, [%0]"
#define CLOBBERED "r2", "r3", "memory"
#elif defined(__arm__)
#define ACCESS "ldr r2, [%0]"
#define CLOBBERED "r2", "memory"
#elif defined(__aarch64__)
#define ACCESS "ldar x9, [%0]"
#define CLOBBERED "x9", "memory"
#elif defined(__sparc__)
#define ACCESS "ld [%0], %%g1"
#define CLOBBERED "g1", "memory"
#elif defined(__alpha__)
#define ACCESS "ldl $1, 0(%0)"
#define CLOBBERED "$1", "memory"
#elif defined(__hppa__)
#define ACCESS "ldw 0(%0), %%r19"
#define CLOBBERED "r19", "memory"
#elif defined(__mips__)
#define ACCESS "lw $2, 0(%0)"
#define CLOBBERED "$2", "memory"
#elif defined(__powerpc__)
#define ACCESS "lwarx 9, 0, %0"
#define CLOBBERED "9", "memory"
#define ADDRESS_REGISTER "b"
#elif defined(__loongarch__)
#define ACCESS "ld.w $t0, %0, 0"
#define CLOBBERED "$t0", "memory"
#elif defined(__riscv)
#define ACCESS "lw t0, 0(%0)"
#define CLOBBERED "t0", "memory"
#elif defined(__s390x__)
#define ACCESS "cs %%r2, %%r3, 0(%0)"
#define CLOBBERED "r2", "r3", "cc", "memory"
#define ADDRESS_REGISTER "a"
#endif
#ifndef ADDRESS_REGISTER
#define ADDRESS_REGISTER "r"
#endif

#define CALLED static __attribute__((noinline))
/* A call followed by something is no tail call, which would take its caller off the stack. */
#define RETURN_HERE __asm__ volatile("" : : : "memory")

#define WHERE main
#include "levels.h"
#define WHERE child
#include "levels.h"
#define WHERE thread
#include "levels.h"
#define WHERE handler
#include "levels.h"

static char memory[64] __attribute__((aligned(16)));

CALLED void say(void)
{
    printf("ran %ld %ld\n", (long)getpid(), (long)syscall(SYS_gettid));
    fflush(stdout);
}

CALLED int in_child(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        say();
        caller_child(memory);
        _exit(0); /* not reached */
    }
    waitpid(child, &status, 0);
    printf("child ended by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return 0;
}

static void *thread_body(void *argument)
{
    say();
    caller_thread(argument);
    return NULL;
}

CALLED int in_thread(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, thread_body, memory);
    pthread_join(thread, NULL);
    return 0;
}

static void handle(int number)
{
    (void)number;
    say();
    caller_handler(memory);
    RETURN_HERE;
}

CALLED int in_handler(void)
{
    signal(SIGUSR1, handle);
    raise(SIGUSR1);
    RETURN_HERE;
    return 0;
}

CALLED int in_main(void)
{
    say();
    caller_main(memory);
    RETURN_HERE;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int (*run)(void); } places[] = {
        {"main", in_main}, {"child", in_child}, {"thread", in_thread}, {"handler", in_handler},
    };

    printf("parent %ld\n", (long)getpid());
    fflush(stdout);
    for (size_t i = 0; argc == 2 && i < sizeof places / sizeof *places; i++) {
        if (strcmp(argv[1], places[i].name) == 0) {
            int code = places[i].run();

            RETURN_HERE;
            return code;
        }
    }
    return 4;
}
