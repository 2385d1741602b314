/*
 * MFFS with bits that processors before Power ISA 3.0 ignore: MFFSCRNI and MFFSL. Prints FPSCR as each of them reads it, the
 * rounding mode being 1 (towards zero).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned low_word(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (unsigned)bits;
}

int main(void)
{
    double plain, with_mode, light;

    __asm__ volatile("mtfsb1 31");
    __asm__ volatile("mffs %0" : "=f"(plain));
    __asm__ volatile(".machine push\n.machine power9\nmffscrni %0,0\n.machine pop" : "=f"(with_mode));
    __asm__ volatile(".machine push\n.machine power9\nmffsl %0\n.machine pop" : "=f"(light));
    printf("%x %x %x\n", low_word(plain), low_word(with_mode), low_word(light));
    return 0;
}
