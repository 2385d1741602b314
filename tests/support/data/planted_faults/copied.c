/* Copies a record whose length the file stores in two bytes, into a number of the native width. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static char target[64];

static size_t length_of(const unsigned char *record)
{
    size_t length = 0;
    memcpy(&length, record, 2); /* the two low bytes, where the least significant byte comes first */
    return length;
}

static void copy_record(const unsigned char *record)
{
    memcpy(target, record + 2, length_of(record)); /* FAULT SIGSEGV in libc: the length is huge */
}

int main(void)
{
    static unsigned char record[66];
    const uint16_t length = 24;
    memcpy(record, &length, 2);
    copy_record(record);
    printf("%u bytes\n", (unsigned)length_of(record));
    return 0;
}
