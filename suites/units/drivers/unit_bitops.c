/* The inner loops of BITCOUNT and BITPOS. The file itself is included: their return types differ between releases. */
/* It comes first because it defines feature macros of the C library. */
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

/* All bytes are alike except for one bit: the loop must skip whole words, and then search one. */
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
