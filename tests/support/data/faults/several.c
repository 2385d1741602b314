/* Moves several words from a misaligned address, again and again. */
#include <stdint.h>

int main(void)
{
    static uint64_t words[8];
    const char *misaligned = (const char *)words + 1;

    for (int i = 0; i < 1000; i++) {
        __asm__ volatile("ldmia %0, {r4, r5, r6, r8}" : : "r"(misaligned) : "r4", "r5", "r6", "r8", "memory");
    }
    for (int i = 0; i < 1000; i++) {
        __asm__ volatile("vldmia %0, {d0, d1}" : : "r"(misaligned) : "d0", "d1", "memory");
    }
    return 0;
}
