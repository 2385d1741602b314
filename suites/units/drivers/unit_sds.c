/* Strings: made, grown and cut across the lengths at which their header changes. */
#include "unit.h"

#include "sds.h"

static const size_t sizes[] = {0,   1,   2,   7,   8,   15,  30,  31,  32,  33,  62,  63,  64,   65,
                               126, 127, 128, 129, 253, 254, 255, 256, 257, 511, 512, 1023, 65534, 65535, 65536, 65537, 70000};
#define SIZES (sizeof sizes / sizeof *sizes)

typedef sds (*shrink)(sds);
typedef sds (*shrink_for)(sds, int);

static sds shrink_1(void (*function)(void), sds string) { return ((shrink)function)(string); }

static sds shrink_2(void (*function)(void), sds string) { return ((shrink_for)function)(string, 0); }

/* From 6.2 on sdsRemoveFreeSpace() is told whether the string will grow again. */
#define SHRINK(string) \
    _Generic(&sdsRemoveFreeSpace, shrink: shrink_1, default: shrink_2)((void (*)(void))sdsRemoveFreeSpace, string)

/* Length, content, and the NUL that is promised behind it. */
static void show(sds string)
{
    digest(string, sdslen(string));
    number(string[sdslen(string)]);
}

static void made(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        line("new %zu", sizes[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, sizes[i], 0);
            sds string = sdsnewlen(data, sizes[i]);

            show(string);
            sdsfree(string);
            release(data);
        }
        end();
    }
}

/* By as much as leads over the next edge, and by one. */
static void grown(void)
{
    for (size_t i = 0; i + 1 < SIZES; i++) {
        size_t more = sizes[i + 1] - sizes[i];

        line("cat %zu %zu", sizes[i], more);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, sizes[i + 1], 0);
            sds string = sdsnewlen(data, sizes[i]);

            string = sdscatlen(string, data + sizes[i], more);
            show(string);
            string = sdsgrowzero(string, sizes[i + 1] + 3);
            show(string);
            sdsfree(string);
            release(data);
        }
        end();
    }
}

static void cut(void)
{
    for (size_t i = 2; i < SIZES; i++) {
        unsigned char *data = place_pattern(0, sizes[i], 0);
        sds string = sdsnewlen(data, sizes[i]);

        line("range %zu", sizes[i]);
        sdsrange(string, 1, -1);
        show(string);
        string = SHRINK(string);
        show(string);
        string = sdsMakeRoomFor(string, 300);
        show(string);
        sdsrange(string, 0, 0);
        show(string);
        end();
        sdsfree(string);
        release(data);
    }
}

static void compared(void)
{
    for (size_t i = 1; i < SIZES; i++) {
        sds one = sdsgrowzero(sdsempty(), sizes[i]), other = sdsdup(one);

        other[sizes[i] - 1] = (char)200;
        line("compare %zu", sizes[i]);
        number(sdscmp(one, one) == 0);
        number(sdscmp(one, other) < 0);
        number(sdscmp(other, one) > 0);
        end();
        sdsfree(one);
        sdsfree(other);
    }
}

/* A byte less and one more, each by the header alone; and then as much as there is before the first NUL. */
static void trimmed(void)
{
    for (size_t i = 2; i < SIZES; i++) {
        unsigned char *data = place_pattern(i % OFFSETS, sizes[i], 0);
        sds string = sdsnewlen(data, sizes[i]);

        line("trim %zu", sizes[i]);
        sdsIncrLen(string, -1);
        show(string);
        sdsIncrLen(string, 1);
        show(string);
        sdsupdatelen(string);
        show(string);
        end();
        sdsfree(string);
        release(data);
    }
}

void unit_sds(void)
{
    made();
    grown();
    cut();
    compared();
    trimmed();
}
