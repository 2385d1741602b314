/*
 * Measures the cost of an access. Performs an access of a generated table (struct access accesses[], by
 * harness/run/canary.py) many times, on a machine whose clock counts instructions
 * (harness/workflows/measure/fixup_cost_run.py).
 *
 *   accesses NAME OFFSET COUNT ROUNDS    the access at OFFSET from a 16-byte boundary, COUNT times in each round
 *
 * Prints `NOTHING ALIGNED COPIED MISALIGNED`: the nanoseconds of this process for COUNT calls of an empty function, the
 * access at the boundary, memcpy of the same bytes from or to OFFSET, and the access at OFFSET. The smallest number of
 * all rounds counts, because clock ticks only add time. An additional first round warms the caches.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void perform(void *address, void *value);

static unsigned char memory[64] __attribute__((aligned(16)));
static unsigned char value[16] __attribute__((aligned(16)));

static __attribute__((noinline)) void perform_nothing(void *address, void *buffer)
{
    __asm__ volatile("" : : "r"(address), "r"(buffer) : "memory");
}

/* A load and a store in portable C, of known size, at an unknown address, to or from a variable. */
#define COPIES(SIZE)                                                                                                    \
    static __attribute__((noinline)) void load_##SIZE(void *address, void *buffer)                                      \
    {                                                                                                                   \
        memcpy(__builtin_assume_aligned(buffer, 16), address, SIZE);                                                    \
    }                                                                                                                   \
    static __attribute__((noinline)) void store_##SIZE(void *address, void *buffer)                                     \
    {                                                                                                                   \
        memcpy(address, __builtin_assume_aligned(buffer, 16), SIZE);                                                    \
    }
COPIES(2)
COPIES(4)
COPIES(8)
COPIES(16)

static perform *copy_of(const struct access *access)
{
    static perform *const copies[][2] = {{load_2, store_2}, {load_4, store_4}, {load_8, store_8}, {load_16, store_16}};
    int row = access->size == 2 ? 0 : access->size == 4 ? 1 : access->size == 8 ? 2 : 3;

    return copies[row][access->is_store];
}

static int64_t nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Nanoseconds of COUNT calls. The function comes from a table, so that the compiler cannot inline it. */
static int64_t time_of(perform *volatile function, void *address, long count)
{
    perform *chosen = function;
    int64_t started = nanoseconds();

    for (long i = 0; i < count; i++) {
        chosen(address, value);
    }
    return nanoseconds() - started;
}

static int measure(const struct access *access, int offset, long count, long rounds)
{
    void *aligned = memory + 16, *misaligned = memory + 16 + offset;
    const struct {
        perform *function;
        void *address;
    } kinds[] = {{perform_nothing, aligned}, {access->perform, aligned}, {copy_of(access), misaligned},
                 {access->perform, misaligned}};
    int64_t least[sizeof kinds / sizeof *kinds];

    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        least[kind] = INT64_MAX;
        for (long round = 0; round <= rounds; round++) {
            int64_t taken = time_of(kinds[kind].function, kinds[kind].address, count);
            if (round && taken < least[kind]) {
                least[kind] = taken;
            }
        }
    }
    printf("%lld %lld %lld %lld\n", (long long)least[0], (long long)least[1], (long long)least[2], (long long)least[3]);
    return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    int offset = argc == 5 ? atoi(argv[2]) : -1;

    for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++) {
        if (argc == 5 && strcmp(accesses[i].name, argv[1]) == 0 && offset >= 0 && offset < 16) {
            return measure(&accesses[i], offset, atol(argv[3]), atol(argv[4]));
        }
    }
    fprintf(stderr, "usage: accesses NAME OFFSET COUNT ROUNDS (OFFSET 0 to 15)\n");
    return EXIT_FAILURE;
}
