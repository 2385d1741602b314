/* SHA-1, for scripts and DEBUG DIGEST, of input in one piece and in two. */
#include "unit.h"

#include <sys/types.h>
#include "sha1.h"

void unit_sha1(void)
{
    for (size_t i = 0; i < lengths_count; i++) {
        line("length %zu", lengths[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, lengths[i], (unsigned)lengths[i]);
            unsigned char *result = place(OFFSETS - 1 - offset, 20);
            uint32_t first = (uint32_t)(lengths[i] * offset / OFFSETS);
            SHA1_CTX context;

            SHA1Init(&context);
            SHA1Update(&context, data, first);
            SHA1Update(&context, data + first, (uint32_t)lengths[i] - first);
            SHA1Final(result, &context);
            bytes(result, 20);
            release(result);
            release(data);
        }
        end();
    }
}
