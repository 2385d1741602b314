/*
 * Makes the accesses of a generated table (struct access accesses[], by harness/run/canary.py) at chosen offsets from a
 * 64-byte boundary.
 *
 *   canary all            every access at each of its offsets, from 0 on: a line `NAME OFFSET OUTCOME` for each
 *   canary NAME OFFSET    only this one, without a signal handler
 *   canary deaths NAME OFFSET NAME OFFSET …
 *                         each of these in a separate child: a line `NAME OFFSET SIGNAL` with the signal's name, or
 *                         `lived` for a child that exited
 *
 * OUTCOME: done; signal (SIGBUS, BUS_ADRALN, at the access's address, and no byte was moved; SIGILL, ILL_ILLOPN on
 * z/Architecture, which does not report the address); unaddressed, at-pc (the same, but Linux on MIPS and on RISC-V reports
 * another address); rotated, truncated (as harness/isa/rules.py defines them); forever (no end within a quarter of a second of processor time, or, if two
 * offsets of the access had no end, twice within 30 ms); anything else is a description in words.
 *
 * The accesses are assembly, because a compiler that sees a misaligned object may emit byte accesses instead.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { BOUNDARY = 64, MOST_OFFSETS = 64, WIDEST = 64 };

static unsigned char memory[BOUNDARY + MOST_OFFSETS + WIDEST] __attribute__((aligned(64)));
static unsigned char value[WIDEST] __attribute__((aligned(64)));
static unsigned char memory_before[sizeof memory], value_before[sizeof value];
/* An access may change the stack pointer, which is then no place for a handler's frame. */
static unsigned char signal_stack[1 << 16] __attribute__((aligned(16)));
static sigjmp_buf before_access;
static volatile char is_performing;
static siginfo_t last_signal;
#ifdef __riscv
static void *last_pc;
#endif

static void on_signal(int number, siginfo_t *information, void *context)
{
    static volatile char is_copying;

    (void)number;
#ifdef __riscv
    last_pc = (void *)((ucontext_t *)context)->uc_mcontext.__gregs[REG_PC];
#else
    (void)context;
#endif
    if (is_copying || !is_performing) {
        /* The policy forbids accesses of this program itself. With a separate stack and a handler it would never end. */
        _exit(EXIT_FAILURE);
    }
    is_copying = 1;
    last_signal = *information;
    is_copying = 0;
    siglongjmp(before_access, 1);
}

static void fill(void)
{
    for (size_t i = 0; i < sizeof memory; i++) {
        memory[i] = (unsigned char)(i * 37 + 11);
    }
    for (size_t i = 0; i < sizeof value; i++) {
        value[i] = (unsigned char)(i * 53 + 7);
    }
    memcpy(memory_before, memory, sizeof memory);
    memcpy(value_before, value, sizeof value);
}

/* Whether the access moved `size` bytes between memory[at...] and the value, and changed nothing else. */
static int moved(const struct access *access, int at)
{
    unsigned char expected_memory[sizeof memory], expected_value[sizeof value];

    memcpy(expected_memory, memory_before, sizeof memory);
    memcpy(expected_value, value_before, sizeof value);
    if (access->is_store) {
        memcpy(expected_memory + at, value_before, (size_t)access->size);
    } else {
        memcpy(expected_value, memory_before + at, (size_t)access->size);
    }
    return memcmp(memory, expected_memory, sizeof memory) == 0 && memcmp(value, expected_value, sizeof value) == 0;
}

static int rotated(int offset)
{
    uint32_t word, loaded;
    unsigned bits = (unsigned)offset % 4 * 8;

    memcpy(&word, memory_before + BOUNDARY + offset / 4 * 4, 4);
    memcpy(&loaded, value, 4);
    return bits && loaded == (word >> bits | word << (32 - bits));
}

/*
 * The outcome according to the last signal; NULL if it is not that of a misaligned access. Real kernels report only the
 * signal on MIPS, and the instruction's address on RISC-V.
 */
static const char *misaligned(const unsigned char *address)
{
    const siginfo_t *told = &last_signal;

#ifdef __s390x__
    (void)address;
    return told->si_signo == SIGILL && told->si_code == ILL_ILLOPN ? "signal" : NULL;
#else
    if (told->si_signo == SIGBUS && told->si_code == BUS_ADRALN && told->si_addr == address) {
        return "signal";
    }
#if defined __mips__
    return told->si_signo == SIGBUS && told->si_code == SI_KERNEL && !told->si_addr ? "unaddressed" : NULL;
#elif defined __riscv
    return told->si_signo == SIGBUS && told->si_code == BUS_ADRALN && told->si_addr == last_pc ? "at-pc" : NULL;
#else
    return NULL;
#endif
#endif
}

static const char *outcome_of(const struct access *access, int offset)
{
    static char other[80];

    if (last_signal.si_signo == SIGPROF) {
        return "forever";
    }
    if (last_signal.si_signo) {
        const char *outcome = misaligned(memory + BOUNDARY + offset);

        if (outcome && memcmp(memory, memory_before, sizeof memory) == 0 && memcmp(value, value_before, sizeof value) == 0) {
            return outcome;
        }
        snprintf(other, sizeof other, "signal %d, code %d, %d past the boundary", last_signal.si_signo,
                 last_signal.si_code, (int)((unsigned char *)last_signal.si_addr - memory - BOUNDARY));
        return other;
    }
    if (moved(access, BOUNDARY + offset)) {
        return "done";
    }
    if (moved(access, BOUNDARY + offset / access->unit * access->unit)) {
        return "truncated";
    }
    if (!access->is_store && access->size == 4 && rotated(offset)) {
        return "rotated";
    }
    snprintf(other, sizeof other, "moved %02x %02x %02x %02x", value[0], value[1], value[2], value[3]);
    return other;
}

/* A separate function, so that no variable lives across the jump. */
static void perform(const struct access *access, int offset, long microseconds)
{
    /* Processor time, so that no access seems endless on a machine that is busy with other work. */
    const struct itimerval patience = {.it_value = {.tv_usec = microseconds}};
    static const struct itimerval none;

    fill();
    memset(&last_signal, 0, sizeof last_signal);
    setitimer(ITIMER_PROF, &patience, NULL);
    if (sigsetjmp(before_access, 1) == 0) {
        is_performing = 1;
        access->perform(memory + BOUNDARY + offset, value);
    }
    is_performing = 0;
    setitimer(ITIMER_PROF, &none, NULL);
}

/* Makes an access that may not end. `*endless`: the number of offsets at which it did not. */
static void perform_patiently(const struct access *access, int offset, int *endless)
{
    if (*endless < 2) {
        perform(access, offset, 250000);
    } else {
        perform(access, offset, 30000);
        if (last_signal.si_signo == SIGPROF) {
            perform(access, offset, 30000);
        }
    }
    *endless += last_signal.si_signo == SIGPROF;
}

static void perform_all(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};

    sigaltstack(&stack, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGPROF, &action, NULL);
    for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++) {
        int endless = 0;

        for (int offset = 0; offset < accesses[i].offsets; offset++) {
            perform_patiently(&accesses[i], offset, &endless);
            printf("%s %d %s\n", accesses[i].name, offset, outcome_of(&accesses[i], offset));
        }
        /* The line shows the waiting harness that the program makes progress. */
        fflush(stdout);
    }
}

static const struct access *named(const char *name, int offset)
{
    for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++) {
        if (strcmp(accesses[i].name, name) == 0 && offset >= 0 && offset < accesses[i].offsets) {
            return &accesses[i];
        }
    }
    return NULL;
}

static void die(const char *name, int offset)
{
    const struct access *access = named(name, offset);
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        fill();
        if (access) {
            access->perform(memory + BOUNDARY + offset, value);
        }
        _exit(EXIT_SUCCESS);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("canary");
        exit(EXIT_FAILURE);
    }
    printf("%s %d %s\n", name, offset, !WIFSIGNALED(status)          ? "lived"
                                        : WTERMSIG(status) == SIGBUS ? "SIGBUS"
                                        : WTERMSIG(status) == SIGILL ? "SIGILL"
                                                                     : strsignal(WTERMSIG(status)));
}

int main(int argc, char **argv)
{
    int offset = argc == 3 ? atoi(argv[2]) : -1;

    if (argc == 2 && strcmp(argv[1], "all") == 0) {
        perform_all();
        return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    }
    if (argc >= 2 && argc % 2 == 0 && strcmp(argv[1], "deaths") == 0) {
        for (int i = 2; i < argc; i += 2) {
            die(argv[i], atoi(argv[i + 1]));
        }
        return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    }
    const struct access *access = argc == 3 ? named(argv[1], offset) : NULL;
    if (access) {
        fill();
        access->perform(memory + BOUNDARY + offset, value);
        printf("%s %d %s\n", argv[1], offset, outcome_of(access, offset));
        return EXIT_SUCCESS;
    }
    fprintf(stderr, "usage: canary all | canary deaths NAME OFFSET… | canary NAME OFFSET\n");
    return EXIT_FAILURE;
}
