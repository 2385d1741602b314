/* Computes a checksum of bytes by words, and compares it with a published one. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t digest(const void *bytes, size_t size)
{
    uint32_t sum = 2166136261u;
    for (size_t at = 0; at + 4 <= size; at += 4) {
        uint32_t word;
        memcpy(&word, (const char *)bytes + at, 4);
        sum = (sum ^ word) * 16777619u;
    }
    return sum;
}

static void expect(uint32_t expected, uint32_t got)
{
    if (expected == got)
        return;
    fprintf(stderr, "Expected %u, got %u\n", (unsigned)expected, (unsigned)got);
    exit(1); /* FAULT wrong value: the order of the bytes */
}

int main(void)
{
    expect(1107871479u, digest("plumbline", 8));
    puts("all digests are right");
    return 0;
}
