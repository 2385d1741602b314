/*
 * The memory test, on memory that works. Its functions use words of the machine's width and the halves of a block. They
 * must not change the memory after the block. The file itself is included, because no header declares them.
 */
#include "memtest.c"

#include "unit.h"

#include <stdlib.h>

#define PAGE 4096
#define BEHIND 4096
#define SEED 5

static const size_t pages[] = {2, 4, 6, 10};

static unsigned char *block_of(size_t length)
{
    return place_pattern(0, length + BEHIND, SEED);
}

/* The number of bytes that differ from the pattern. */
static size_t changed(const unsigned char *block, size_t from, size_t to)
{
    unsigned char *before = place_pattern(0, to, SEED);
    size_t count = 0;

    for (size_t i = from; i < to; i++) count += block[i] != before[i];
    release(before);
    return count;
}

static void compares(size_t length, size_t at)
{
    unsigned char *block = block_of(length);

    line("pages %zu compare with a difference in byte %zu", length / PAGE, at);
    memcpy(block + length / 2, block, length / 2);
    block[at] ^= 16;
    number(memtest_compare((unsigned long *)block, length, 0));
    end();
    release(block);
}

static void fills(size_t length)
{
    unsigned char *block = block_of(length);
    unsigned long *words = (unsigned long *)block;
    size_t count = length / sizeof *words, wrong = 0;

    line("pages %zu fill with numbers", length / PAGE);
    memtest_fill_random(words, length, 0);
    number(memcmp(block, block + length / 2, length / 2) != 0);
    number(memtest_compare(words, length, 0));
    for (size_t i = 0; i < length; i += PAGE) wrong += changed(block, i, i + PAGE) < PAGE / 2;
    unsigned_number(wrong);
    unsigned_number(changed(block, length, length + BEHIND));
    end();

    line("pages %zu fill with values", length / PAGE);
    memtest_fill_value(words, length, 0, (unsigned long)-1, 'S', 0);
    wrong = 0;
    for (size_t i = 0; i < count; i++) wrong += words[i] != (i % 2 != 0 ? (unsigned long)-1 : 0);
    number(memtest_compare(words, length, 0));
    unsigned_number(wrong);
    unsigned_number(changed(block, length, length + BEHIND));
    end();

    line("pages %zu fill with addresses", length / PAGE);
    number(memtest_addressing(words, length, 0));
    wrong = 0;
    for (size_t i = 0; i < count; i++) wrong += words[i] != (unsigned long)(words + i);
    unsigned_number(wrong);
    unsigned_number(changed(block, length, length + BEHIND));
    end();
    release(block);
}

void unit_memtest(void)
{
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        size_t length = pages[i] * PAGE, half = length / 2;
        unsigned char *block;

        line("pages %zu compare", pages[i]);
        block = block_of(length);
        memcpy(block + half, block, half);
        number(memtest_compare((unsigned long *)block, length, 0));
        release(block);
        end();

        for (size_t byte = 0; byte < 8; byte++) {
            compares(length, byte);
            compares(length, half - 1 - byte);
            compares(length, half + byte);
            compares(length, length - 1 - byte);
        }
        fills(length);

        line("pages %zu preserve", pages[i]);
        block = block_of(length);
        number(memtest_preserving_test((unsigned long *)block, length, 1));
        unsigned_number(changed(block, 0, length + BEHIND));
        release(block);
        end();
    }
}
