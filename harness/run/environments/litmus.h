/*
 * The words of the litmus tests in litmus.toml. WORD is the type of a test's accesses, and STORE_BARRIER an instruction
 * of the architecture that orders stores alone. LOAD_FENCE() orders loads behind a branch. The compiler chooses the
 * instructions, and does not reorder them.
 */
#include <pthread.h>
#include <stdint.h>

enum { AT_ONCE = 256, MOST_THREADS = 4, PATIENCE = 3000, RESULTS = 6 };

/* A location with a line of a cache for itself. */
union place {
    uint8_t byte[64];
    uint16_t half[32];
    uint32_t word[16];
    uint64_t dword[8];
} __attribute__((aligned(64)));

struct round {
    union place x, y, z;
    uint64_t result[RESULTS];
};

struct shape {
    const char *name;
    int threads, at_once; /* rounds */
    void (*perform[MOST_THREADS])(struct round *);
    int (*has_outcome)(const struct round *);
};

#define KEEP_ORDER() __asm__ volatile("" : : : "memory")
#define STORE(pointer, value, order) \
    do { \
        KEEP_ORDER(); \
        __atomic_store_n(pointer, value, order); \
        KEEP_ORDER(); \
    } while (0)
#define LOAD(number, pointer, order) \
    do { \
        KEEP_ORDER(); \
        at->result[number] = __atomic_load_n(pointer, order); \
        KEEP_ORDER(); \
    } while (0)
#define AT(place) ((WORD *)&at->place)

#define PUT(place, value) STORE(AT(place), value, __ATOMIC_RELAXED)
#define PUT_RELEASE(place, value) STORE(AT(place), value, __ATOMIC_RELEASE)
#define PUT_SC(place, value) STORE(AT(place), value, __ATOMIC_SEQ_CST)
#define PUT_BYTE(place, index, value) STORE(&at->place.byte[index], value, __ATOMIC_RELAXED)
#define PUT_HALF(place, value) STORE(&at->place.half[0], value, __ATOMIC_RELAXED)
#define PUT_NEXT(place, value) STORE(AT(place) + 1, value, __ATOMIC_RELAXED)
#define GET(number, place) LOAD(number, AT(place), __ATOMIC_RELAXED)
#define GET_ACQUIRE(number, place) LOAD(number, AT(place), __ATOMIC_ACQUIRE)
#define GET_SC(number, place) LOAD(number, AT(place), __ATOMIC_SEQ_CST)
#define GET_HALF(number, place) LOAD(number, &at->place.half[0], __ATOMIC_RELAXED)
#define GET_BYTE(number, place, index) LOAD(number, &at->place.byte[index], __ATOMIC_RELAXED)
#define GET_NEXT(number, place) LOAD(number, AT(place) + 1, __ATOMIC_RELAXED)
/*
 * Through a pointer that comes from memory; and two loads, the second at an address that depends on the first: in a
 * register, in one behind a branch, or by memory.
 */
#define GET_THROUGH(number, place) \
    do { \
        WORD *volatile pointer = AT(place); \
        LOAD(number, pointer, __ATOMIC_RELAXED); \
    } while (0)
#define CHAIN(first, from, second, place) CHAIN_WITH(first, from, second, place, (void)0)
#define CHAIN_BRANCH(first, from, second, place) CHAIN_WITH(first, from, second, place, BRANCH(first))
#define CHAIN_MEMORY(first, from, second, place) \
    do { \
        LOAD(first, AT(from), __ATOMIC_RELAXED); \
        LOAD(second, AT(place) + R(first), __ATOMIC_RELAXED); \
    } while (0)
#define CHAIN_WITH(first, from, second, place, between) \
    do { \
        KEEP_ORDER(); \
        WORD value = __atomic_load_n(AT(from), __ATOMIC_RELAXED); \
        at->result[first] = value; \
        between; \
        at->result[second] = __atomic_load_n(AT(place) + value, __ATOMIC_RELAXED); \
        KEEP_ORDER(); \
    } while (0)
/* A branch that depends on a result. */
#define BRANCH(number) \
    do { \
        if (R(number)) { \
            __asm__ volatile("nop"); \
        } \
    } while (0)
#define EXCHANGE(number, place, value) (at->result[number] = __atomic_exchange_n(AT(place), value, __ATOMIC_RELAXED))
#define EXCHANGE_ACQUIRE(number, place, value) \
    (at->result[number] = __atomic_exchange_n(AT(place), value, __ATOMIC_ACQUIRE))
#define EXCHANGE_RELEASE(number, place, value) \
    (at->result[number] = __atomic_exchange_n(AT(place), value, __ATOMIC_RELEASE))
#define FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define RELEASE_FENCE() __atomic_thread_fence(__ATOMIC_RELEASE)
#define ACQUIRE_FENCE() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define STORE_FENCE() __asm__ volatile(STORE_BARRIER : : : "memory")

/* In outcomes: a result, the last value of a location, and the half whose second byte alone is 1. */
#define R(number) (at->result[number])
#define LAST(place) (*(const WORD *)&at->place)
#define ONES ((WORD)-1)
#define SECOND_BYTE (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0x100 : 1)
