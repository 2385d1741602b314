/* Faults where they are hard to see: in a forked child, in a thread, in a handler's reach; then the program goes on. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a misaligned access raises: on z/Architecture it is a specification exception. */
#if defined(__s390x__)
enum { MISALIGNED = SIGILL };
#else
enum { MISALIGNED = SIGBUS };
#endif

static char bytes[16] __attribute__((aligned(16)));

/*
 * LDRD and SPARC's LDX fault at 1 mod 4 whatever the machine; what the compiler makes of 8 bytes is one or the other. Where
 * machines do plain accesses at any address, one that reserves, or compares and swaps, faults.
 */
__attribute__((noinline)) static uint64_t misaligned(const char *address)
{
    __asm__ volatile("" : "+r"(address));
    uint64_t value;
#if defined(__arm__)
    __asm__ volatile("ldrd r2, r3, [%1]\n\tmov %Q0, r2\n\tmov %R0, r3" : "=r"(value) : "r"(address) : "r2", "r3", "memory");
#elif defined(__powerpc__)
    uint32_t word;
    __asm__ volatile("lwarx %0,0,%1" : "=r"(word) : "r"(address) : "memory");
    value = word;
#elif defined(__riscv)
    __asm__ volatile("lr.d %0,(%1)" : "=r"(value) : "r"(address) : "memory");
#elif defined(__s390x__)
    value = 0;
    __asm__ volatile("csg %0,%0,0(%1)" : "+d"(value) : "a"(address) : "memory", "cc");
#else
    value = *(const volatile uint64_t *)address;
#endif
    return value;
}

static void *in_a_thread(void *unused)
{
    (void)unused;
    misaligned(bytes + 1);
    return NULL;
}

static void *asleep(void *unused)
{
    pause();
    return unused;
}

static void leave(int number)
{
    (void)number;
    _exit(3);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int status;

    if (argc == 2 && strcmp(argv[1], "thread") == 0) {
        pthread_create(&thread, NULL, in_a_thread, NULL);
        pthread_join(thread, NULL);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "asleep") == 0) {
        asleep(NULL);
    }
    bool aborts = argc == 2 && strcmp(argv[1], "abort") == 0;
    pid_t child = fork();
    if (child == 0 && aborts) {
        /* All of its threads end by the signal, and it is one process. */
        pthread_create(&thread, NULL, asleep, NULL);
        abort();
    }
    if (child == 0) {
        misaligned(bytes + 1);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (aborts) {
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? 0 : 1;
    }
    printf("child ended by its signal: %d\n", WIFSIGNALED(status) && WTERMSIG(status) == MISALIGNED);
    fflush(stdout);
    /* Sent by somebody, it is no fault. */
    signal(MISALIGNED, leave);
    kill(getpid(), MISALIGNED);
    return 0;
}
