/* BITCOUNT's and BITPOS' inner loops. The file itself is included: what they return differs from release to release. */
/* First of all, because of what it asks of the C library. */
#include "bitops.c"

#include "unit.h"

void unit_popcount(void)
{
    for (size_t i = 0; i < lengths_count; i++) {
        line("length %zu", lengths[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, lengths[i], (unsigned)lengths[i]);

            number((long long)FAMILY(Popcount)(data, (long)lengths[i]));
            release(data);
        }
        end();
    }
}

/* All bytes alike but one bit somewhere: the loop has to pass whole words, and then look into one. */
void unit_bitpos(void)
{
    for (size_t i = 1; i < lengths_count; i++) {
        for (int bit = 0; bit <= 1; bit++) {
            for (size_t step = 0; step < 4; step++) {
                size_t other = (lengths[i] * 8 - 1) * step / 3;

                line("length %zu bit %d at %zu", lengths[i], bit, other);
                for (size_t offset = 0; offset < OFFSETS; offset++) {
                    unsigned char *data = place(offset, lengths[i]);

                    memset(data, bit ? 0 : 255, lengths[i]);
                    data[other / 8] ^= (unsigned char)(128 >> other % 8);
                    number((long long)FAMILY(Bitpos)(data, lengths[i], bit));
                    release(data);
                }
                end();
            }
        }
    }
}
