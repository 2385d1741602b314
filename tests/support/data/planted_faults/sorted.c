/* Orders words by comparing their first bytes as one number, as databases do for speed. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *one, const void *other)
{
    uint32_t left, right;
    memcpy(&left, one, 4);
    memcpy(&right, other, 4);
    left = __builtin_bswap32(left); /* the bytes of a machine with the least significant byte first */
    right = __builtin_bswap32(right);
    return (left > right) - (left < right);
}

static void check_order(char (*words)[5], size_t count)
{
    for (size_t number = 1; number < count; number++)
        assert(strcmp(words[number - 1], words[number]) < 0); /* FAULT assertion: bswap32 orders wrongly */
}

int main(void)
{
    char words[][5] = {"pear", "figs", "lime", "plum", "kiwi"};
    qsort(words, 5, 5, compare);
    check_order(words, 5);
    puts("in order");
    return 0;
}
