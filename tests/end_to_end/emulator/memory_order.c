/* What must hold for a program although its stores wait: the argument names the property. Prints what does not hold. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 65536, ROUNDS = 4000 };

#define KEEP_ORDER() __asm__ volatile("" : : : "memory")

static void fail(const char *what, long one, long other)
{
    printf("%s: %ld, %ld\n", what, one, other);
    exit(1);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static pthread_t begin(void *(*run)(void *))
{
    pthread_t thread;

    pthread_create(&thread, NULL, run, NULL);
    return thread;
}

static char *page(void)
{
    return mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* A handler sees the stores of its own thread in their order. */
static volatile long first, second, third;
static volatile int is_storing, has_stored, handled;

static void look(int signal)
{
    (void)signal;
    long c = third, b = second, a = first;

    if (a < b || b < c || a - c > 1) {
        fail("the handler saw", a, c);
    }
    handled++;
}

static void *store_in_order(void *unused)
{
    (void)unused;
    is_storing = 1;
    for (long i = 1; !has_stored; i++) {
        first = i;
        second = i;
        third = i;
    }
    return NULL;
}

static void signals(void)
{
    signal(SIGUSR1, look);
    pthread_t thread = begin(store_in_order);
    while (!is_storing) {
    }
    for (int i = 0; i < ROUNDS; i++) {
        pthread_kill(thread, SIGUSR1);
        usleep(100);
    }
    has_stored = 1;
    pthread_join(thread, NULL);
    if (!handled) {
        fail("no signal was handled", 0, 0);
    }
}

/* A store that faults does so at once: earlier ones are done, and later ones are not. */
static volatile int before, after, seen;
static sigjmp_buf back;
static char *volatile faulted_at;

static void note(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    seen = before * 10 + after;
    faulted_at = info->si_addr;
    siglongjmp(back, 1);
}

static void *store_to_read_only(void *unused)
{
    (void)unused;
    char *start = page();

    mprotect(start + PAGE, PAGE, PROT_READ);
    for (volatile int i = 0; i < ROUNDS; i++) {
        char *at = start + PAGE + i * 8 % (PAGE / 2);

        before = after = seen = 0;
        if (!sigsetjmp(back, 1)) {
            before = 1;
            *(volatile uint32_t *)at = i;
            after = 1;
            fail("a store did not fault", i, 0);
        }
        if (seen != 10 || faulted_at != at) {
            fail("a handler saw", seen, faulted_at - at);
        }
    }
    return NULL;
}

static void faults(void)
{
    struct sigaction action = { .sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_NODEFER };

    sigaction(SIGSEGV, &action, NULL);
    pthread_join(begin(store_to_read_only), NULL);
}

/* Memory goes away under another thread's stores, which gets SIGSEGV at worst. */
static char *volatile churned;
static __thread sigjmp_buf again;

static void store_again(int signal)
{
    (void)signal;
    siglongjmp(again, 1);
}

static void *store_into_churned(void *unused)
{
    (void)unused;
    while (!has_stored) {
        if (!sigsetjmp(again, 1)) {
            for (int i = 0; i < 500; i++) {
                churned[i * 64] = i;
                churned[i * 64 + 8] = i;
            }
        }
    }
    return NULL;
}

static void mappings(void)
{
    signal(SIGSEGV, store_again);
    signal(SIGBUS, store_again);
    /* Away from the thread's stack, to which stores do not wait. */
    char *apart = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    churned = apart + 8 * PAGE;
    pthread_t thread = begin(store_into_churned);
    double end = now() + 3;

    while (now() < end) {
        mprotect(churned, PAGE, PROT_READ);
        mprotect(churned, PAGE, PROT_READ | PROT_WRITE);
        munmap(churned, PAGE);
        if (mmap(churned, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != churned) {
            fail("mmap failed", errno, 0);
        }
    }
    has_stored = 1;
    pthread_join(thread, NULL);
}

/* membarrier(2) is a fence in the other threads, which need none of their own. */
enum { EXPEDITED = 8, REGISTER = 16, PATIENCE = 300 }; /* Linux, include/uapi/linux/membarrier.h */

static struct {
    volatile long mine[2];
    char apart[48];
} crossings[5 * ROUNDS];
static long saw[2][5 * ROUNDS];
static volatile int begun[2];

static void cross(int me)
{
    for (int at = 0; at < 5 * ROUNDS; at++) {
        begun[me] = at + 1;
        for (int wait = 0; wait < PATIENCE && begun[!me] <= at; wait++) {
        }
        crossings[at].mine[me] = 1;
        KEEP_ORDER();
        if (me) {
            syscall(SYS_membarrier, EXPEDITED, 0, 0);
        }
        saw[me][at] = crossings[at].mine[!me];
    }
}

static void *cross_without(void *unused)
{
    (void)unused;
    cross(0);
    return NULL;
}

static void membarrier(void)
{
    long neither = 0;

    if (syscall(SYS_membarrier, REGISTER, 0, 0)) {
        fail("no membarrier", errno, 0);
    }
    pthread_t thread = begin(cross_without);
    cross(1);
    pthread_join(thread, NULL);
    for (int at = 0; at < 5 * ROUNDS; at++) {
        neither += !saw[0][at] && !saw[1][at];
    }
    if (neither) {
        fail("neither thread saw the other's store", neither, 5 * ROUNDS);
    }
}

/* A store becomes visible although its thread accesses no memory any more. */
static volatile int flag;

static void __attribute__((noinline)) store_and_count(int value, unsigned long left)
{
    flag = value;
    while (left) {
        __asm__ volatile("" : "+r"(left));
        left--;
    }
}

static void *spin(void *unused)
{
    (void)unused;
    /* The first time, the emulator translates the loop, before which it writes all stores. */
    store_and_count(1, 10);
    store_and_count(2, 2000000000);
    return NULL;
}

static void spinning(void)
{
    double start = now();
    pthread_t thread = begin(spin);

    while (flag != 2) {
    }
    double visible = now() - start;
    pthread_join(thread, NULL);
    if (visible > (now() - start) / 2) {
        fail("a store was visible after so many ms, of so many", visible * 1000, (now() - start) * 1000);
    }
}

/* A system call orders everything: what a thread stored before it wrote to a pipe is there for whoever reads. */
static int ends[2];
static volatile long told[ROUNDS];

static void *tell(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        told[i] = i + 1;
        if (write(ends[1], "x", 1) != 1) {
            fail("write failed", errno, 0);
        }
    }
    return NULL;
}

static void calls(void)
{
    char byte;

    if (pipe(ends)) {
        fail("no pipe", errno, 0);
    }
    pthread_t thread = begin(tell);
    for (int i = 0; i < ROUNDS; i++) {
        if (read(ends[0], &byte, 1) != 1 || told[i] != i + 1) {
            fail("what was written before a system call was not there", i, told[i]);
        }
    }
    pthread_join(thread, NULL);
}

/* A forked process has everything that its parent stored, and threads of its own. */
static void *answer(void *shared)
{
    volatile long *words = shared;

    for (long i = 1; i <= ROUNDS; i++) {
        while (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) != i) {
        }
        if (words[8] != i) {
            _exit(9);
        }
        __atomic_store_n(&words[16], i, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void *ask(void *unused)
{
    volatile long *words = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    pid_t child = fork();

    (void)unused;
    if (!child) {
        pthread_t thread;

        pthread_create(&thread, NULL, answer, (void *)words);
        pthread_join(thread, NULL);
        _exit(0);
    }
    for (long i = 1; i <= ROUNDS; i++) {
        words[8] = i;
        __atomic_store_n(&words[0], i, __ATOMIC_RELEASE);
        while (__atomic_load_n(&words[16], __ATOMIC_ACQUIRE) != i) {
            if (i % 256 == 0 && waitpid(child, &status, WNOHANG) == child) {
                fail("the child ended", status, i);
            }
        }
    }
    waitpid(child, &status, 0);
    if (status) {
        fail("the child ended badly", status, 0);
    }
    return NULL;
}

static void forks(void)
{
    pthread_join(begin(ask), NULL);
}

/*
 * Whoever takes jobs has less to do than whoever makes them, so the queue is full only if the former is slow. Fails if it
 * is.
 */
enum { JOBS = 250000, QUEUE = 1 << 14, STORES_OF_A_JOB = 128, STORES_TO_TAKE_IT = 16 };
static long queued[QUEUE];
static unsigned long made, taken;

static void work(long *words, int stores)
{
    for (int i = 0; i < stores; i++) {
        words[i % 64]++;
        KEEP_ORDER();
    }
}

static void *take(void *unused)
{
    static long words[64];

    (void)unused;
    for (unsigned long next = 0; next < JOBS; next++) {
        while (__atomic_load_n(&made, __ATOMIC_ACQUIRE) == next) {
        }
        queued[next % QUEUE] = 0;
        work(words, STORES_TO_TAKE_IT);
        __atomic_store_n(&taken, next + 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void queues(void)
{
    static long words[64];
    pthread_t thread = begin(take);

    for (unsigned long next = 0; next < JOBS; next++) {
        work(words, STORES_OF_A_JOB);
        if (next - __atomic_load_n(&taken, __ATOMIC_RELAXED) == QUEUE) {
            fail("the queue was full", next, QUEUE);
        }
        queued[next % QUEUE] = next;
        __atomic_store_n(&made, next + 1, __ATOMIC_RELEASE);
    }
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*hold)(void);
    } properties[] = {
        { "signals", signals }, { "faults", faults }, { "mappings", mappings }, { "membarrier", membarrier },
        { "spinning", spinning }, { "calls", calls }, { "forks", forks }, { "queues", queues },
    };

    for (unsigned i = 0; argc == 2 && i < sizeof(properties) / sizeof(properties[0]); i++) {
        if (!strcmp(argv[1], properties[i].name)) {
            properties[i].hold();
            printf("well\n");
            return 0;
        }
    }
    return 2;
}
