/* Entries for the encoded lists: integers at the limits of every encoding, and strings. */
#ifndef PLUMBLINE_ENTRIES_H
#define PLUMBLINE_ENTRIES_H

static const char *const integers[] = {
    "0", "1", "12", "13", "-1", "63", "64", "127", "128", "-128", "-129", "255", "256", "4095", "4096", "-4096", "-4097", "32767",
    "32768", "-32768", "-32769", "8388607", "8388608", "-8388608", "-8388609", "2147483647", "2147483648", "-2147483648",
    "-2147483649", "1234567890123", "9223372036854775807", "-9223372036854775808",
    /* These look like integers, but are not stored as such. */
    "9223372036854775808", "-0", "00", "+7", "1e5", "12345678901234567890123"};
#define INTEGERS (sizeof integers / sizeof *integers)

/* Around the lengths at which the header of the string or of its neighbour grows. */
static const size_t string_lengths[] = {0, 1, 2, 3, 31, 62, 63, 64, 65, 127, 128, 250, 251, 252, 253, 254, 255, 256, 300};
#define STRINGS (sizeof string_lengths / sizeof *string_lengths)
static const size_t long_lengths[] = {4095, 4096, 4097, 16383, 16384, 66000};
#define LONG_STRINGS (sizeof long_lengths / sizeof *long_lengths)

#endif
