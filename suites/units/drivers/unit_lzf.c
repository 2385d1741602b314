/* LZF, which compresses strings in RDB files and the inner nodes of quicklists: packed and unpacked bytes. */
#include "unit.h"

#include <string.h>
#include "lzf.h"

/* Servers do not compress strings of 20 bytes or less (rdbSaveRawString). */
#define SHORTEST 21

/* Text that repeats every `period` bytes, except for one byte in seven. */
static void repeat(unsigned char *to, size_t length, size_t period)
{
    for (size_t i = 0; i < length; i++) {
        to[i] = (unsigned char)(i % period * 31 + (i % 7 == 6 ? i >> 3 : 0));
    }
}

void unit_lzf(void)
{
    static const size_t periods[] = {1, 3, 16, 300};

    for (size_t i = 0; i < lengths_count; i++) {
        if (lengths[i] < SHORTEST) {
            continue;
        }
        for (size_t p = 0; p < sizeof periods / sizeof *periods; p++) {
            /* Enough even if nothing repeats: one more byte for every 32, and a reserve. */
            size_t room = lengths[i] + lengths[i] / 16 + 64;

            line("length %zu period %zu", lengths[i], periods[p]);
            for (size_t offset = 0; offset < OFFSETS; offset++) {
                unsigned char *data = place(offset, lengths[i]);
                unsigned char *packed = place((offset * 7 + 3) % OFFSETS, room);
                unsigned char *again = place(OFFSETS - 1 - offset, lengths[i]);
                size_t size, length;

                repeat(data, lengths[i], periods[p]);
                memset(again, 0, lengths[i]);
                size = lzf_compress(data, (unsigned)lengths[i], packed, (unsigned)room);
                bytes(packed, size);
                length = lzf_decompress(packed, (unsigned)size, again, (unsigned)lengths[i]);
                digest(again, length);
                release(again);
                release(packed);
                release(data);
            }
            end();
        }
    }
}
