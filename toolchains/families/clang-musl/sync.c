/*
 * The __sync functions for ARM without LDREX. They use the kernel's compare-and-exchange at fixed addresses (Linux,
 * Documentation/arch/arm/kernel_user_helpers.rst). For up to 4 bytes, each access is to the aligned word around the
 * value.
 */
#include <stdint.h>

typedef int compare_and_exchange(uint32_t old, uint32_t with, volatile uint32_t *at);
#define EXCHANGED(old, with, at) ((*(compare_and_exchange *)0xffff0fc0)(old, with, at) == 0)
typedef int compare_and_exchange_8(const uint64_t *old, const uint64_t *with, volatile uint64_t *at);
#define EXCHANGED_8(old, with, at) ((*(compare_and_exchange_8 *)0xffff0f60)(old, with, at) == 0)
#define BARRIER() ((*(void (*)(void))0xffff0fa0)())

#define WORD(at) ((volatile uint32_t *)((uintptr_t)(at) & ~(uintptr_t)3))
/* Little-endian: the lowest byte of the word is the first. */
#define SHIFT(at) (((uintptr_t)(at) & 3) * 8)
#define MASK(at, size) ((0xffffffffu >> (32 - (size) * 8)) << SHIFT(at))
#define PLACED(at, size, value) (((uint32_t)(value) << SHIFT(at)) & MASK(at, size))

/* The compiler refuses definitions of its own functions under their names. */
#define NAMED(function, size) __asm__("__sync_" #function "_" #size)

/* `before` is the value in memory, `with` the caller's. */
#define FETCH(function, size, type, value)                                                                             \
    type function##_##size(volatile void *at, type with) NAMED(function, size);                                        \
    type function##_##size(volatile void *at, type with) {                                                             \
        for (;;) {                                                                                                     \
            uint32_t word = *WORD(at);                                                                                 \
            type before = (type)(word >> SHIFT(at));                                                                   \
            if (EXCHANGED(word, (word & ~MASK(at, size)) | PLACED(at, size, value), WORD(at))) return before;          \
        }                                                                                                              \
    }
#define FETCH_8(function, type, value)                                                                                 \
    type function##_8(volatile void *at, type with) NAMED(function, 8);                                                \
    type function##_8(volatile void *at, type with) {                                                                  \
        for (;;) {                                                                                                     \
            uint64_t words = *(volatile uint64_t *)at;                                                                 \
            type before = (type)words;                                                                                 \
            uint64_t after = (uint64_t)(value);                                                                        \
            if (EXCHANGED_8(&words, &after, at)) return before;                                                        \
        }                                                                                                              \
    }
#define UNSIGNED(function, value)                                                                                      \
    FETCH(function, 1, uint8_t, value)                                                                                 \
    FETCH(function, 2, uint16_t, value) FETCH(function, 4, uint32_t, value) FETCH_8(function, uint64_t, value)
#define SIGNED(function, value)                                                                                        \
    FETCH(function, 1, int8_t, value)                                                                                  \
    FETCH(function, 2, int16_t, value) FETCH(function, 4, int32_t, value) FETCH_8(function, int64_t, value)

UNSIGNED(fetch_and_add, before + with)
UNSIGNED(fetch_and_sub, before - with)
UNSIGNED(fetch_and_and, before & with)
UNSIGNED(fetch_and_or, before | with)
UNSIGNED(fetch_and_xor, before ^ with)
UNSIGNED(fetch_and_nand, ~(before & with))
UNSIGNED(fetch_and_umax, before > with ? before : with)
UNSIGNED(fetch_and_umin, before < with ? before : with)
SIGNED(fetch_and_max, before > with ? before : with)
SIGNED(fetch_and_min, before < with ? before : with)
UNSIGNED(lock_test_and_set, with)

#define COMPARE(size, type)                                                                                            \
    type compare_and_swap_##size(volatile void *at, type expected, type with) NAMED(val_compare_and_swap, size);       \
    type compare_and_swap_##size(volatile void *at, type expected, type with) {                                        \
        for (;;) {                                                                                                     \
            uint32_t word = *WORD(at);                                                                                 \
            type before = (type)(word >> SHIFT(at));                                                                   \
            if (before != expected) return before;                                                                     \
            if (EXCHANGED(word, (word & ~MASK(at, size)) | PLACED(at, size, with), WORD(at))) return before;           \
        }                                                                                                              \
    }
COMPARE(1, uint8_t)
COMPARE(2, uint16_t)
COMPARE(4, uint32_t)

uint64_t compare_and_swap_8(volatile void *at, uint64_t expected, uint64_t with) NAMED(val_compare_and_swap, 8);
uint64_t compare_and_swap_8(volatile void *at, uint64_t expected, uint64_t with) {
    for (;;) {
        uint64_t before = *(volatile uint64_t *)at;
        if (before != expected || EXCHANGED_8(&before, &with, at)) return before;
    }
}

void synchronize(void) __asm__("__sync_synchronize");
void synchronize(void) {
    BARRIER();
}
