/* SHA-256, for passwords and random seeds, of input in one piece and in two. */
#include "unit.h"

#include "sha256.h"

void unit_sha256(void)
{
    for (size_t i = 0; i < lengths_count; i++) {
        line("length %zu", lengths[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, lengths[i], (unsigned)lengths[i]);
            unsigned char *result = place(OFFSETS - 1 - offset, SHA256_BLOCK_SIZE);
            size_t first = lengths[i] * offset / OFFSETS;
            SHA256_CTX context;

            sha256_init(&context);
            sha256_update(&context, data, first);
            sha256_update(&context, data + first, lengths[i] - first);
            sha256_final(&context, result);
            bytes(result, SHA256_BLOCK_SIZE);
            release(result);
            release(data);
        }
        end();
    }
}
