/*
 * The macros that store numbers in little-endian order, on 2, 4 and 8 aligned bytes. In some releases they accept any
 * pointer. In others the caller has to align it: callers that do not are tested with their own file, such as ziplist.c.
 */
#include "unit.h"

#include <string.h>
#include "endianconv.h"

/* On a little-endian machine, the macros expand to nothing. */
static void reverse(int size, void *at)
{
    (void)at;
    switch (size) {
    case 2: memrev16ifbe(at); break;
    case 4: memrev32ifbe(at); break;
    case 8: memrev64ifbe(at); break;
    }
}

void unit_endianconv(void)
{
    for (int size = 2; size <= 8; size *= 2) {
        line("size %d", size);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset * (size_t)size % BOUNDARY, (size_t)size, 3);

            reverse(size, data);
            bytes(data, (size_t)size);
            release(data);
        }
        end();
    }
    line("value 2");
    unsigned_number(intrev16ifbe((uint16_t)0x0102));
    end();
    line("value 4");
    unsigned_number(intrev32ifbe((uint32_t)0x01020304));
    end();
    line("value 8");
    unsigned_number(intrev64ifbe((uint64_t)0x0102030405060708ULL));
    end();
}
