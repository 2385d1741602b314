/* Keeps 64-bit counters behind names in an arena, whose allocations have odd sizes by mistake. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned char arena[256] __attribute__((aligned(16)));
static size_t used;

static void *reserve(size_t size)
{
    void *place = arena + used;
    used += size | 1;
    return place;
}

static void count(const char *name, uint64_t value)
{
    char *kept = reserve(strlen(name) + 1);
    uint64_t *counter = reserve(sizeof *counter);
    strcpy(kept, name);
    *counter = value; /* FAULT misaligned store: names have any length */
}

int main(void)
{
    count("reads", 3);
    count("writes", 4);
    printf("%zu bytes\n", used);
    return 0;
}
