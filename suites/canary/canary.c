/*
 * One access of a named kind at a given offset from a 16-byte boundary. Exit status 0 when the access was done and
 * moved the right bytes, 3 when it moved wrong ones, 4 when this program has no such access; else the signal.
 *
 * The accesses are assembly, because a compiler that sees a misaligned object may emit byte accesses instead.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char memory[64] __attribute__((aligned(16)));

struct access {
    const char *name;
    int size; /* bytes moved */
    int is_store;
    void (*perform)(void *address, void *value); /* load: address -> value; store: value -> address */
};

#define ACCESS(function, ...) \
    static void function(void *address, void *value) { __VA_ARGS__ }

#if defined(__arm__)
__asm__(".fpu vfp\n");
#define LOAD(function, type, instruction) \
    ACCESS(function, uint32_t word; __asm__ volatile(instruction " %0, [%1]" : "=r"(word) : "r"(address) : "memory"); \
           type narrow = (type)word; memcpy(value, &narrow, sizeof narrow);)
#define STORE(function, type, instruction) \
    ACCESS(function, type narrow; memcpy(&narrow, value, sizeof narrow); uint32_t word = narrow; \
           __asm__ volatile(instruction " %0, [%1]" : : "r"(word), "r"(address) : "memory");)
LOAD(load_halfword, uint16_t, "ldrh")
STORE(store_halfword, uint16_t, "strh")
LOAD(load_word, uint32_t, "ldr")
STORE(store_word, uint32_t, "str")
#define TWO_REGISTERS(function_load, function_store, load, store) \
    ACCESS(function_load, register uint32_t low __asm__("r2"); register uint32_t high __asm__("r3"); \
           __asm__ volatile(load : "=r"(low), "=r"(high) : "r"(address) : "memory"); \
           uint32_t pair[2] = {low, high}; memcpy(value, pair, 8);) \
    ACCESS(function_store, uint32_t pair[2]; memcpy(pair, value, 8); \
           register uint32_t low __asm__("r2") = pair[0]; register uint32_t high __asm__("r3") = pair[1]; \
           __asm__ volatile(store : : "r"(low), "r"(high), "r"(address) : "memory");)
TWO_REGISTERS(load_doubleword, store_doubleword, "ldrd %0, %1, [%2]", "strd %0, %1, [%2]")
TWO_REGISTERS(load_multiple, store_multiple, "ldmia %2, {%0, %1}", "stmia %2, {%0, %1}")
ACCESS(load_vfp, __asm__ volatile("vldr d0, [%0]\n\tvstr d0, [%1]" : : "r"(address), "r"(value) : "memory");)
ACCESS(store_vfp, __asm__ volatile("vldr d0, [%1]\n\tvstr d0, [%0]" : : "r"(address), "r"(value) : "memory");)
#if __ARM_ARCH >= 6
LOAD(load_exclusive, uint32_t, "ldrex")
/* STREX alone: without a reservation it may fail, but the address is checked either way on the machines imitated here. */
ACCESS(store_exclusive, uint32_t word, failed, scratch; memcpy(&word, value, 4);
       __asm__ volatile("1: ldrex %1, [%3]\n\tstrex %0, %2, [%3]\n\tcmp %0, #0\n\tbne 1b"
                        : "=&r"(failed), "=&r"(scratch) : "r"(word), "r"(address) : "memory", "cc");)
#endif
#elif defined(__aarch64__)
#define LOAD(function, type, instruction, width) \
    ACCESS(function, uint64_t word; __asm__ volatile(instruction " %" width "0, [%1]" : "=r"(word) : "r"(address) : "memory"); \
           type narrow = (type)word; memcpy(value, &narrow, sizeof narrow);)
#define STORE(function, type, instruction, width) \
    ACCESS(function, type narrow; memcpy(&narrow, value, sizeof narrow); uint64_t word = narrow; \
           __asm__ volatile(instruction " %" width "0, [%1]" : : "r"(word), "r"(address) : "memory");)
LOAD(load_halfword, uint16_t, "ldrh", "w")
STORE(store_halfword, uint16_t, "strh", "w")
LOAD(load_word, uint32_t, "ldr", "w")
STORE(store_word, uint32_t, "str", "w")
LOAD(load_doubleword, uint64_t, "ldr", "x")
STORE(store_doubleword, uint64_t, "str", "x")
LOAD(load_acquire, uint64_t, "ldar", "x")
STORE(store_release, uint64_t, "stlr", "x")
LOAD(load_exclusive, uint64_t, "ldxr", "x")
ACCESS(store_exclusive, uint64_t word, scratch; uint32_t failed; memcpy(&word, value, 8);
       __asm__ volatile("1: ldxr %1, [%3]\n\tstxr %w0, %2, [%3]\n\tcbnz %w0, 1b"
                        : "=&r"(failed), "=&r"(scratch) : "r"(word), "r"(address) : "memory");)
ACCESS(load_pair, uint64_t low; uint64_t high;
       __asm__ volatile("ldp %0, %1, [%2]" : "=&r"(low), "=&r"(high) : "r"(address) : "memory");
       memcpy(value, &low, 8); memcpy((char *)value + 8, &high, 8);)
ACCESS(store_pair, uint64_t low; uint64_t high; memcpy(&low, value, 8); memcpy(&high, (char *)value + 8, 8);
       __asm__ volatile("stp %0, %1, [%2]" : : "r"(low), "r"(high), "r"(address) : "memory");)
#elif defined(__sparc__)
#define LOAD(function, type, instruction) \
    ACCESS(function, unsigned long word; __asm__ volatile(instruction " [%1], %0" : "=r"(word) : "r"(address) : "memory"); \
           type narrow = (type)word; memcpy(value, &narrow, sizeof narrow);)
#define STORE(function, type, instruction) \
    ACCESS(function, type narrow; memcpy(&narrow, value, sizeof narrow); unsigned long word = narrow; \
           __asm__ volatile(instruction " %0, [%1]" : : "r"(word), "r"(address) : "memory");)
LOAD(load_halfword, uint16_t, "lduh")
STORE(store_halfword, uint16_t, "sth")
LOAD(load_word, uint32_t, "ld")
STORE(store_word, uint32_t, "st")
/* A 32-bit program's registers keep 64 bits only between traps: load, and store aligned, in one breath. */
ACCESS(load_doubleword, __asm__ volatile("ldx [%0], %%g1\n\tstx %%g1, [%1]" : : "r"(address), "r"(value) : "g1", "memory");)
ACCESS(store_doubleword, __asm__ volatile("ldx [%1], %%g1\n\tstx %%g1, [%0]" : : "r"(address), "r"(value) : "g1", "memory");)
ACCESS(load_float, __asm__ volatile("ld [%0], %%f0\n\tst %%f0, [%1]" : : "r"(address), "r"(value) : "f0", "memory");)
ACCESS(store_float, __asm__ volatile("ld [%1], %%f0\n\tst %%f0, [%0]" : : "r"(address), "r"(value) : "f0", "memory");)
ACCESS(load_double, __asm__ volatile("ldd [%0], %%f0\n\tstd %%f0, [%1]" : : "r"(address), "r"(value) : "f0", "f1", "memory");)
ACCESS(store_double, __asm__ volatile("ldd [%1], %%f0\n\tstd %%f0, [%0]" : : "r"(address), "r"(value) : "f0", "f1", "memory");)
ACCESS(compare_and_swap, uint32_t expected; memcpy(&expected, address, 4); uint32_t word; memcpy(&word, value, 4);
       __asm__ volatile("cas [%1], %2, %0" : "+r"(word) : "r"(address), "r"(expected) : "memory");)
#else
#define LOAD(function, type) \
    ACCESS(function, volatile type *from = address; __asm__("" : "+r"(from)); type narrow = *from; memcpy(value, &narrow, sizeof narrow);)
#define STORE(function, type) \
    ACCESS(function, volatile type *to = address; __asm__("" : "+r"(to)); type narrow; memcpy(&narrow, value, sizeof narrow); *to = narrow;)
LOAD(load_halfword, uint16_t)
STORE(store_halfword, uint16_t)
LOAD(load_word, uint32_t)
STORE(store_word, uint32_t)
LOAD(load_doubleword, uint64_t)
STORE(store_doubleword, uint64_t)
#endif

static const struct access accesses[] = {
    {"load-halfword", 2, 0, load_halfword},
    {"store-halfword", 2, 1, store_halfword},
    {"load-word", 4, 0, load_word},
    {"store-word", 4, 1, store_word},
    {"load-doubleword", 8, 0, load_doubleword},
    {"store-doubleword", 8, 1, store_doubleword},
#if defined(__arm__)
    {"load-multiple", 8, 0, load_multiple},
    {"store-multiple", 8, 1, store_multiple},
    {"load-vfp", 8, 0, load_vfp},
    {"store-vfp", 8, 1, store_vfp},
#if __ARM_ARCH >= 6
    {"load-exclusive", 4, 0, load_exclusive},
    {"store-exclusive", 4, 1, store_exclusive},
#endif
#elif defined(__aarch64__)
    {"load-acquire", 8, 0, load_acquire},
    {"store-release", 8, 1, store_release},
    {"load-exclusive", 8, 0, load_exclusive},
    {"store-exclusive", 8, 1, store_exclusive},
    {"load-pair", 16, 0, load_pair},
    {"store-pair", 16, 1, store_pair},
#elif defined(__sparc__)
    {"load-float", 4, 0, load_float},
    {"store-float", 4, 1, store_float},
    {"load-double", 8, 0, load_double},
    {"store-double", 8, 1, store_double},
    {"compare-and-swap", 4, 1, compare_and_swap},
#endif
};

int main(int argc, char **argv)
{
    static unsigned char value[16] __attribute__((aligned(16)));
    int offset = argc == 3 ? atoi(argv[2]) : -1;

    if (offset < 0 || offset > 15) {
        fprintf(stderr, "usage: canary ACCESS OFFSET (0 to 15)\n");
        return 4;
    }
    for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++) {
        const struct access *access = &accesses[i];

        if (strcmp(access->name, argv[1]) != 0) {
            continue;
        }
        for (size_t j = 0; j < sizeof memory; j++) {
            memory[j] = (unsigned char)(j * 37 + 11);
        }
        for (size_t j = 0; j < sizeof value; j++) {
            value[j] = (unsigned char)(j * 53 + 7);
        }
        access->perform(memory + 16 + offset, value);
        for (int j = 0; j < access->size; j++) {
            unsigned char expected = access->is_store ? (unsigned char)(j * 53 + 7)
                                                      : (unsigned char)((16 + offset + j) * 37 + 11);
            unsigned char actual = access->is_store ? memory[16 + offset + j] : value[j];

            if (actual != expected) {
                printf("byte %d is %02x, expected %02x\n", j, actual, expected);
                return 3;
            }
        }
        return 0;
    }
    fprintf(stderr, "no access '%s' on this machine\n", argv[1]);
    return 4;
}
