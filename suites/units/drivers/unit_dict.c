/* The hash functions that dictionaries used before SipHash: MurmurHash2, and Bernstein's on lower-case letters. */
#include "unit.h"

#include "dict.h"

#define SEED 5381

void unit_murmurhash2(void)
{
    dictSetHashFunctionSeed(SEED);
    for (size_t i = 0; i < lengths_count; i++) {
        line("length %zu", lengths[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, lengths[i], (unsigned)lengths[i]);

            unsigned_number(dictGenHashFunction(data, (int)lengths[i]));
            release(data);
        }
        end();
    }
}

void unit_casehash(void)
{
    dictSetHashFunctionSeed(SEED);
    for (size_t i = 0; i < lengths_count; i++) {
        line("length %zu", lengths[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, lengths[i], (unsigned)lengths[i]);

            unsigned_number(dictGenCaseHashFunction(data, (int)lengths[i]));
            release(data);
        }
        end();
    }
}
