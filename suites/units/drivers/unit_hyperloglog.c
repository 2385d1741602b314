/* MurmurHash64A of HyperLogLog's elements. No header of the server declares it. */
#include "unit.h"

uint64_t MurmurHash64A(const void *key, int len, unsigned int seed);

/* The seed in hyperloglog.c. */
#define SEED 0xadc83b19U

void unit_murmurhash64a(void)
{
    for (size_t i = 0; i < lengths_count; i++) {
        line("length %zu", lengths[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, lengths[i], (unsigned)lengths[i]);

            unsigned_number(MurmurHash64A(data, (int)lengths[i], SEED));
            release(data);
        }
        end();
    }
}
