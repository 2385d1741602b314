/*
 * Loads and stores of C's types at every offset from a 16-byte boundary: a line `NAME OFFSET OUTCOME` for each.
 *
 * OUTCOME: done; refused, by SIGBUS, or by the SIGILL of a compiler that checks alignment itself
 * (-fsanitize=alignment -fsanitize-undefined-trap-on-error).
 */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>

static unsigned char memory[64] __attribute__((aligned(64)));
static sigjmp_buf before_access;

static void on_signal(int number)
{
    (void)number;
    siglongjmp(before_access, 1);
}

/* The pointers come from outside of each function, so that the compiler knows no more of them than their type. */
#define TYPE(name, type)                                                                                      \
    __attribute__((noinline)) static void load_##name(void *address)                                          \
    {                                                                                                         \
        volatile type *typed = address;                                                                       \
        (void)*typed;                                                                                         \
    }                                                                                                         \
    __attribute__((noinline)) static void store_##name(void *address)                                         \
    {                                                                                                         \
        volatile type *typed = address;                                                                       \
        *typed = 1;                                                                                           \
    }
TYPE(half, uint16_t)
TYPE(word, uint32_t)
TYPE(dword, uint64_t)
TYPE(float, float)
TYPE(double, double)

static const struct {
    const char *name;
    void (*perform)(void *);
} accesses[] = {
    {"load-half", load_half},     {"store-half", store_half},     {"load-word", load_word},
    {"store-word", store_word},   {"load-dword", load_dword},     {"store-dword", store_dword},
    {"load-float", load_float},   {"store-float", store_float},   {"load-double", load_double},
    {"store-double", store_double},
};

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};

    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    for (volatile unsigned i = 0; i < sizeof accesses / sizeof *accesses; i++) {
        for (volatile unsigned offset = 0; offset < 16; offset++) {
            volatile int refused = 1;

            if (sigsetjmp(before_access, 1) == 0) {
                accesses[i].perform(memory + offset);
                refused = 0;
            }
            printf("%s %u %s\n", accesses[i].name, offset, refused ? "refused" : "done");
        }
    }
    return 0;
}
