/* CRC16 of keys, which determines their slots in a cluster. */
#include "unit.h"

uint16_t crc16(const char *buf, int len);

void unit_crc16(void)
{
    for (size_t i = 0; i < lengths_count; i++) {
        line("length %zu", lengths[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, lengths[i], (unsigned)lengths[i]);

            unsigned_number(crc16((const char *)data, (int)lengths[i]));
            release(data);
        }
        end();
    }
}
