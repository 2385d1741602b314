/* SipHash-1-2 of keys, and the variant that ignores case. No header of the server declares them. */
#include "unit.h"

uint64_t siphash(const uint8_t *in, const size_t inlen, const uint8_t *k);
uint64_t siphash_nocase(const uint8_t *in, const size_t inlen, const uint8_t *k);

static void hash_all(uint64_t (*hash)(const uint8_t *, size_t, const uint8_t *))
{
    for (size_t i = 0; i < lengths_count; i++) {
        line("length %zu", lengths[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, lengths[i], (unsigned)lengths[i]);
            /* The key is an array of bytes, and may have any alignment, too. */
            unsigned char *key = place_pattern((offset * 5) % OFFSETS, 16, 1);

            unsigned_number(hash(data, lengths[i], key));
            release(key);
            release(data);
        }
        end();
    }
}

void unit_siphash(void) { hash_all(siphash); }

void unit_siphash_nocase(void) { hash_all(siphash_nocase); }
