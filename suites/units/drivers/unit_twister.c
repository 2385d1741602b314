/* The 64-bit Mersenne Twister, with seeds of every width. */
#include "mt19937-64.h"

#include "unit.h"

#include <string.h>

/* Enough numbers that the generator renews its state of 312 twice. */
#define NUMBERS (2 * 312 + 16)

static void numbers(void)
{
    for (int i = 0; i < NUMBERS; i++) unsigned_number(genrand64_int64());
    end();
}

static void real(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    unsigned_number(bits);
}

void unit_twister(void)
{
    static const unsigned long long seeds[] = {0, 1, 5489, 1ULL << 31, (1ULL << 32) + 1, 0xfedcba9876543210ULL};
    unsigned long long keys[] = {0x12345ULL, 0x23456ULL, 0x34567ULL, 0x45678ULL};

    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        line("numbers of %llu", seeds[i]);
        init_genrand64(seeds[i]);
        numbers();
        line("forms of %llu", seeds[i]);
        init_genrand64(seeds[i]);
        for (int j = 0; j < 20; j++) {
            number(genrand64_int63());
            real(genrand64_real2());
            real(genrand64_real3());
        }
        end();
    }
    line("numbers of keys");
    init_by_array64(keys, sizeof keys / sizeof *keys);
    numbers();
}
