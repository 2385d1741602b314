/* Conversions between numbers and text: string2ll, ll2string, and those of doubles. */
#include "unit.h"

#include <string.h>
#include "util.h"

static const char *const texts[] = {
    "0", "1", "-1", "9", "10", "99", "100", "-0", "+1", "01", " 1", "1 ", "", "-", "--1", "1a", "a", "127", "-128", "255", "256",
    "32767", "-32768", "65535", "8388607", "-8388608", "2147483647", "-2147483648", "2147483648", "4294967295", "4294967296",
    "999999999999999999", "1000000000000000000", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
    "-9223372036854775809", "18446744073709551615", "18446744073709551616", "99999999999999999999", "-99999999999999999999",
    "123456789012345678901234567890", "0x10", "1.0", "1e3"};
#define TEXTS (sizeof texts / sizeof *texts)

static const long long numbers[] = {
    0, 1, -1, 9, 10, 11, 99, 100, 101, 999, 1000, 9999, 10000, 99999, 100000, 999999, 1000000, 9999999, 10000000, 99999999,
    100000000, 999999999, 1000000000, 9999999999, 10000000000, 99999999999, 100000000000, 999999999999, 1000000000000,
    999999999999999999, 1000000000000000000, -9, -10, -99, -100, -101, 2147483647, -2147483647 - 1, 2147483648, 4294967295,
    4294967296, 9223372036854775807LL, -9223372036854775807LL, -9223372036854775807LL - 1};
#define NUMBERS (sizeof numbers / sizeof *numbers)

/* Bits of doubles: 0.1, 1/3, pi, integers around the limits of exactness, the smallest, the largest, infinity. */
static const uint64_t doubles[] = {
    0, 0x8000000000000000, 0x3ff0000000000000, 0xbff0000000000000, 0x3fb999999999999a, 0x3fd5555555555555, 0x400921fb54442d18,
    0x3ff8000000000000, 0x40f86a0000000000, 0x41dfffffffc00000, 0x41e0000000000000, 0x41f0000000000000, 0x433fffffffffffff,
    0x4340000000000000, 0x4330000000000000, 0xc340000000000000, 0x43e0000000000000, 0xc3e0000000000000, 0x4415af1d78b58c40,
    0x0000000000000001, 0x000fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
    0x3e7ad7f29abcaf48, 0x54b249ad2594c37d, 0x0102030405060708, 0x4059000000000001, 0xc05edd2f1a9fbe77};
#define DOUBLES (sizeof doubles / sizeof *doubles)

/* Enough for the text of any 64-bit integer or double, and the NUL. */
#define ROOM 128

void unit_string2ll(void)
{
    for (size_t i = 0; i < TEXTS; i++) {
        line("text %s", texts[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *text = place_copy(offset, texts[i], strlen(texts[i]));
            long long value = 0;

            if (string2ll((const char *)text, strlen(texts[i]), &value)) {
                number(value);
            } else {
                bytes("", 0);
            }
            release(text);
        }
        end();
    }
}

void unit_ll2string(void)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        line("number %lld", numbers[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            char *text = (char *)place(offset, ROOM);

            bytes(text, (size_t)ll2string(text, ROOM, numbers[i]));
            release((unsigned char *)text);
        }
        end();
    }
}

static double from_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static void a_double(uint64_t bits)
{
    line("double %016llx", (unsigned long long)bits);
    for (size_t offset = 0; offset < OFFSETS; offset++) {
        char *text = (char *)place(offset, ROOM);

        bytes(text, (size_t)d2string(text, ROOM, from_bits(bits)));
        release((unsigned char *)text);
    }
    end();
}

void unit_d2string(void)
{
    for (size_t i = 0; i < DOUBLES; i++) {
        a_double(doubles[i]);
    }
    /* Doubles of all magnitudes: the conversion has one power of ten for every 27 of these 2,046 exponents. */
    for (uint64_t exponent = 1; exponent < 2047; exponent += 5) {
        a_double(exponent << 52 | exponent * 0x9e3779b97f4a7c15 >> 12);
    }
}
