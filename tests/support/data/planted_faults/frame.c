/* Reads frames of a stream: a type of one byte, then a length and a checksum of four bytes each. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct frame {
    unsigned char type;
    uint32_t length, checksum;
};

static const unsigned char *read_frame(const unsigned char *at, struct frame *into)
{
    into->type = *at++;
    into->length = *(const uint32_t *)at; /* FAULT misaligned load: at is odd */
    into->checksum = *(const uint32_t *)(at + 4);
    return at + 8 + into->length % 16; /* FAULT or here: the compiler may load where it uses */
}

int main(void)
{
    static unsigned char stream[64] __attribute__((aligned(8)));
    const unsigned char *at = stream;
    struct frame frame;
    memset(stream, 4, sizeof stream);
    while (at < stream + 32)
        at = read_frame(at, &frame);
    printf("last checksum %x\n", (unsigned)frame.checksum);
    return 0;
}
