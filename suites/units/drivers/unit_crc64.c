/* CRC64 of RDB files and DUMP payloads, from zero and as the continuation of another checksum. */
#include "unit.h"

#include "crc64.h"

void unit_crc64(void)
{
#if __has_include("crcspeed.h")
    crc64_init();
#endif
    for (size_t i = 0; i < lengths_count; i++) {
        for (int goes_on = 0; goes_on <= 1; goes_on++) {
            line("length %zu from %d", lengths[i], goes_on);
            for (size_t offset = 0; offset < OFFSETS; offset++) {
                unsigned char *data = place_pattern(offset, lengths[i], (unsigned)lengths[i]);

                unsigned_number(crc64(goes_on ? 0x0123456789abcdefULL : 0, data, lengths[i]));
                release(data);
            }
            end();
        }
    }
}
