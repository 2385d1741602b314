/*
 * What goes wrong by an address without a load or a store that a table of accesses could hold.
 *
 *   beyond jump              a call to a misaligned function
 *   beyond trap              a breakpoint, as __builtin_trap() is on many machines, in a forked child; prints its signal
 *   beyond spill OFFSET      SPARC: a register window is spilled at so many bytes past a 64-byte boundary
 *   beyond fill OFFSET       SPARC: one is filled from there; does not come back where that is aligned
 *   beyond stack BY          AArch64: a load through SP, which has been moved by so many bytes since the last one
 *   beyond atomic4 OFFSET    an atomic addition to an int, or to a 64-bit number, at so many bytes past a boundary; prints
 *   beyond atomic8 OFFSET    the sum and what is in memory
 *   beyond exchange4 OFFSET  a compare-and-swap of an int there; ROTATED in the environment: by what a CPU loads that rotates
 *   beyond compared OLD      ARM: the kernel's compare-and-swap of an int that is 5; prints r0, the carry flag and memory
 *   beyond forbidden WRITE   ARM: the same in a page that is not mapped, or, if WRITE is not 0, that may only be read
 *   beyond threads NUMBER    ARM: so many threads count by it, each in a variable of its own, too; prints the counts
 */
#include <inttypes.h>
#if defined __arm__
#include <pthread.h>
#include <sys/mman.h>
#endif
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char memory[256] __attribute__((aligned(64)));

static void callee(void)
{
}

__attribute__((noinline)) static void jump(void)
{
    /* Two bytes on: in the middle of an instruction. One, where instructions have two bytes. */
    uintptr_t target = (uintptr_t)callee;
#if defined __m68k__ || defined __s390x__
    target += 1;
#else
    target += 2;
#endif
    void (*function)(void) = NULL;

    memcpy(&function, &target, sizeof function);
    __asm__ volatile("" : "+r"(function));
    function();
}

static int trap(void)
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
#if defined __aarch64__
        __asm__ volatile("brk #1000");
#elif defined __arm__
        __asm__ volatile(".inst 0xe7f001f0");
#elif defined __sparc__
        __asm__ volatile("ta 1");
#elif defined __m68k__
        __asm__ volatile("trap #15");
#elif defined __loongarch__
        __asm__ volatile("break 0");
#else
        __asm__ volatile("break");
#endif
    }
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) {
        return EXIT_FAILURE;
    }
    printf("child: signal %d\n", WTERMSIG(status));
    return EXIT_SUCCESS;
}

#if defined __sparc__
__attribute__((noinline)) static void spill(unsigned char *where)
{
#ifdef __arch64__
    where -= 2047;
#endif
    /* A window whose stack pointer is the address, under one whose is right, and all but the last are stored. */
    __asm__ volatile("mov %%sp, %%g1\n\t"
                     "mov %0, %%sp\n\t"
                     "save %%g1, -192, %%sp\n\t"
                     "flushw\n\t"
                     "restore\n\t"
                     "mov %%g1, %%sp"
                     : : "r"(where) : "g1", "memory");
}

__attribute__((noinline)) static void fill(unsigned char *where)
{
#ifdef __arch64__
    where -= 2047;
#endif
    __asm__ volatile("mov %0, %%g2\n\t"
                     "save %%sp, -192, %%sp\n\t"
                     "flushw\n\t"
                     "mov %%g2, %%fp\n\t"
                     "restore"
                     : : "r"(where) : "g2", "memory");
}
#endif

#if defined __aarch64__
__attribute__((noinline)) static void stack(long by)
{
    long found;

    /* One block: the first load finds SP aligned, and the second must look again. */
    if (by == 8) {
        __asm__ volatile("sub sp, sp, #64\n\tldr %0, [sp]\n\tadd sp, sp, #8\n\tldr %0, [sp]\n\tadd sp, sp, #56"
                         : "=r"(found) : : "memory");
    } else if (by == 9) { /* by write-back */
        __asm__ volatile("sub sp, sp, #64\n\tldr %0, [sp], #8\n\tldr %0, [sp]\n\tadd sp, sp, #56"
                         : "=r"(found) : : "memory");
    } else { /* by what stays aligned */
        __asm__ volatile("sub sp, sp, #64\n\tldr %0, [sp], #16\n\tldr %0, [sp]\n\tadd sp, sp, #48"
                         : "=r"(found) : : "memory");
    }
}
#endif

__attribute__((noinline)) static void atomic4(int offset)
{
    uint32_t number = 41;

    memcpy(memory + offset, &number, sizeof number);
    uint32_t sum = __sync_add_and_fetch((uint32_t *)(void *)(memory + offset), 1);
    memcpy(&number, memory + offset, sizeof number);
    printf("sum %" PRIu32 ", memory %" PRIu32 "\n", sum, number);
}

#if defined __arm__ /* other machines of 32 bits lack it */
__attribute__((noinline)) static void atomic8(int offset)
{
    uint64_t number = UINT64_C(0xffffffff);

    memcpy(memory + offset, &number, sizeof number);
    uint64_t sum = __sync_add_and_fetch((uint64_t *)(void *)(memory + offset), 1);
    memcpy(&number, memory + offset, sizeof number);
    printf("sum %" PRIu64 ", memory %" PRIu64 "\n", sum, number);
}
#endif

__attribute__((noinline)) static void exchange4(int offset)
{
    uint32_t number = UINT32_C(0x44332211), rotated = number;

    memcpy(memory + offset / 4 * 4, &number, sizeof number);
    if (getenv("ROTATED")) {
        int bits = offset % 4 * 8;
        rotated = bits ? number >> bits | number << (32 - bits) : number;
    } else {
        memcpy(memory + offset, &number, sizeof number);
    }
#if defined __arm__
    /* What GCC's library calls for it, without the load that it makes before: __kuser_cmpxchg. */
    int done = !((int (*)(uint32_t, uint32_t, void *))0xffff0fc0)(rotated, UINT32_C(0x88776655), memory + offset);
#else
    int done = __sync_bool_compare_and_swap((uint32_t *)(void *)(memory + offset), rotated, UINT32_C(0x88776655));
#endif
    memcpy(&number, memory + (getenv("ROTATED") ? offset / 4 * 4 : offset), sizeof number);
    printf("done %d, memory %" PRIx32 "\n", done, number);
}

#if defined __arm__
typedef int exchanger(uint32_t old, uint32_t new, volatile void *place);
#define EXCHANGE ((exchanger *)0xffff0fc0)

__attribute__((noinline)) static void compared(int old)
{
    uint32_t number = 5;
    register uint32_t r0 __asm__("r0") = (uint32_t)old;
    register uint32_t r1 __asm__("r1") = 7;
    register volatile void *r2 __asm__("r2") = &number;
    register void *helper __asm__("r4") = (void *)0xffff0fc0;
    uint32_t carry;

    /* The address of the instruction after the jump is the program counter plus 4 there. */
    __asm__ volatile("mov lr, pc\n\tmov pc, r4\n\tmov %1, #0\n\tadc %1, %1, #0"
                     : "+r"(r0), "=r"(carry)
                     : "r"(r1), "r"(r2), "r"(helper)
                     : "r3", "ip", "lr", "cc", "memory");
    printf("r0 %d, carry %" PRIu32 ", memory %" PRIu32 "\n", (int)r0, carry, number);
}

__attribute__((noinline)) static void forbidden(int readable)
{
    uint32_t *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (!readable) {
        munmap(page, 4096);
    }
    printf("exchanged %d\n", EXCHANGE(0, 1, page + 3));
}

enum { ROUNDS = 20000 };
static volatile uint32_t shared_count;
static __thread uint32_t own_count;

static void *count(void *result)
{
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t old;
        do {
            old = shared_count;
        } while (EXCHANGE(old, old + 1, &shared_count) != 0);
        own_count++;
    }
    *(uint32_t *)result = own_count;
    return NULL;
}

static void threads(int number)
{
    pthread_t started[8];
    uint32_t counts[8] = {0}, sum = 0;

    for (int thread = 0; thread < number; thread++) {
        if (pthread_create(&started[thread], NULL, count, &counts[thread]) != 0) {
            abort();
        }
    }
    for (int thread = 0; thread < number; thread++) {
        pthread_join(started[thread], NULL);
        sum += counts[thread];
    }
    printf("shared %" PRIu32 ", own %" PRIu32 "\n", shared_count, sum);
}
#endif

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int number = argc > 2 ? atoi(argv[2]) : 0;

    if (strcmp(what, "jump") == 0) {
        jump();
    } else if (strcmp(what, "trap") == 0) {
        return trap();
    } else if (strcmp(what, "atomic4") == 0) {
        atomic4(number);
    } else if (strcmp(what, "exchange4") == 0) {
        exchange4(number);
#if defined __arm__
    } else if (strcmp(what, "atomic8") == 0) {
        atomic8(number);
    } else if (strcmp(what, "compared") == 0) {
        compared(number);
    } else if (strcmp(what, "forbidden") == 0) {
        forbidden(number);
    } else if (strcmp(what, "threads") == 0) {
        threads(number);
#endif
#if defined __sparc__
    } else if (strcmp(what, "spill") == 0) {
        spill(memory + number);
    } else if (strcmp(what, "fill") == 0) {
        fill(memory + number);
#endif
#if defined __aarch64__
    } else if (strcmp(what, "stack") == 0) {
        stack(number);
#endif
    } else {
        return EXIT_FAILURE;
    }
    puts("went on");
    return EXIT_SUCCESS;
}
