/*
 * `units NAME` runs one unit and ends with the line `> end NAME`. The exit status is 0 if the unit ran to its end, and 4
 * for an unknown name. The table is generated: it contains only the units that the server has.
 */
/* For posix_memalign: old makefiles request plain C99. */
#define _POSIX_C_SOURCE 200809L

#include "unit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    void (*run)(void);
};

extern const struct unit units[];

/*
 * Makes the data start on a page of their own. On SPARC, the procedure linkage table is code among the data, and an
 * emulator faults at each write to a page that contains translated code: on 32 bits, a unit took ten times as long.
 */
__attribute__((aligned(8192), used)) static char first_of_data[1] = {1};

const size_t lengths[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,  13,  14,  15,  16,  17,  18,  19,  20, 21,
                          22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34,  35,  36,  37,  38,  39,  40,  41,  42, 43,
                          44, 45, 46, 47, 48, 55, 56, 57, 63, 64, 65, 66, 119, 120, 127, 128, 129, 255, 256, 257, 1023, 1025};
const size_t lengths_count = sizeof lengths / sizeof *lengths;

unsigned char *place(size_t offset, size_t length)
{
    void *block;

    if (posix_memalign(&block, BOUNDARY, offset + length) != 0) {
        fprintf(stderr, "no memory\n");
        exit(3);
    }
    return (unsigned char *)block + offset;
}

void release(unsigned char *placed)
{
    free(placed - (uintptr_t)placed % BOUNDARY);
}

void fill(unsigned char *to, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        to[i] = (unsigned char)(i * 151 + (i >> 8) * 29 + seed * 89 + 7);
    }
}

unsigned char *place_pattern(size_t offset, size_t length, unsigned seed)
{
    unsigned char *placed = place(offset, length);

    fill(placed, length, seed);
    return placed;
}

unsigned char *place_copy(size_t offset, const void *from, size_t length)
{
    unsigned char *placed = place(offset, length);

    memcpy(placed, from, length);
    return placed;
}

/* Whether the key of the current line is still open. */
static int in_key;

void line(const char *format, ...)
{
    va_list arguments;

    /* No line of the server or of a detector begins like this. */
    printf("> ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    in_key = 1;
}

void more(const char *word) { printf(" %s", word); }

void more_number(size_t number) { printf(" %zu", number); }

static void value(void)
{
    fputs(in_key ? ": " : " ", stdout);
    in_key = 0;
}

void number(long long is)
{
    value();
    printf("%lld", is);
}

void unsigned_number(unsigned long long is)
{
    value();
    printf("%llu", is);
}

void bytes(const void *from, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *byte = from;

    value();
    putchar('x');
    for (size_t i = 0; i < length; i++) {
        putchar(digits[byte[i] >> 4]);
        putchar(digits[byte[i] & 15]);
    }
}

/* Length and CRC-32 (ISO 3309, reflected) of a value that is too long to show. Python's library computes it in C. */
void digest(const void *from, size_t length)
{
    static uint32_t rests[256];
    const unsigned char *byte = from;
    uint32_t crc = 0xFFFFFFFFU;

    for (uint32_t i = 0; rests[255] == 0 && i < 256; i++) {
        uint32_t rest = i;
        for (int bit = 0; bit < 8; bit++) {
            rest = rest >> 1 ^ (0xEDB88320U & -(rest & 1));
        }
        rests[i] = rest;
    }
    for (size_t i = 0; i < length; i++) {
        crc = crc >> 8 ^ rests[(crc ^ byte[i]) & 255];
    }
    value();
    printf("%zu/%08lx", length, (unsigned long)~crc & 0xFFFFFFFFU);
}

void end(void)
{
    puts(in_key ? ":" : "");
    in_key = 0;
}

int main(int argc, char **argv)
{
    /* Whole lines, so that a detector's messages come between them and a crash loses no complete line. */
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    for (const struct unit *unit = units; argc == 2 && unit->name != NULL; unit++) {
        if (strcmp(unit->name, argv[1]) == 0) {
            unit->run();
            printf("> end %s\n", unit->name);
            return 0;
        }
    }
    fprintf(stderr, "usage: units NAME, one of:\n");
    for (const struct unit *unit = units; unit->name != NULL; unit++) {
        fprintf(stderr, "  %s\n", unit->name);
    }
    return 4;
}
