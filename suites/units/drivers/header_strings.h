/*
 * Strings with a header: created, grown and cut across the lengths at which the header changes. The server and its client
 * library each have a copy of these functions, under different names. A file that includes this one defines:
 *
 *     STRING         the type
 *     CALL(name)     a function
 *     TYPE(bits)     the number of a header's type
 *     HEADER(bits)   a header's structure
 *     SHRINK(string) the call that releases unused memory
 */
#include "unit.h"

static const size_t sizes[] = {0,   1,   2,   7,   8,   15,  30,  31,  32,  33,  62,  63,  64,   65,
                               126, 127, 128, 129, 253, 254, 255, 256, 257, 511, 512, 1023, 65534, 65535, 65536, 65537, 70000};
#define SIZES (sizeof sizes / sizeof *sizes)

/* Show the length, the content, and the NUL that must follow it. */
static void show(STRING string)
{
    digest(string, CALL(len)(string));
    number(string[CALL(len)(string)]);
}

static void made(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        line("new %zu", sizes[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, sizes[i], 0);
            STRING string = CALL(newlen)(data, sizes[i]);

            show(string);
            CALL(free)(string);
            release(data);
        }
        end();
    }
}

/* Grow strings to the next size, and by three bytes more. */
static void grown(void)
{
    for (size_t i = 0; i + 1 < SIZES; i++) {
        size_t more = sizes[i + 1] - sizes[i];

        line("cat %zu %zu", sizes[i], more);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, sizes[i + 1], 0);
            STRING string = CALL(newlen)(data, sizes[i]);

            string = CALL(catlen)(string, data + sizes[i], more);
            show(string);
            string = CALL(growzero)(string, sizes[i + 1] + 3);
            show(string);
            CALL(free)(string);
            release(data);
        }
        end();
    }
}

static void cut(void)
{
    for (size_t i = 2; i < SIZES; i++) {
        unsigned char *data = place_pattern(0, sizes[i], 0);
        STRING string = CALL(newlen)(data, sizes[i]);

        line("range %zu", sizes[i]);
        CALL(range)(string, 1, -1);
        show(string);
        string = SHRINK(string);
        show(string);
        string = CALL(MakeRoomFor)(string, 300);
        show(string);
        CALL(range)(string, 0, 0);
        show(string);
        end();
        CALL(free)(string);
        release(data);
    }
}

static void compared(void)
{
    for (size_t i = 1; i < SIZES; i++) {
        STRING one = CALL(growzero)(CALL(empty)(), sizes[i]), other = CALL(dup)(one);

        other[sizes[i] - 1] = (char)200;
        line("compare %zu", sizes[i]);
        number(CALL(cmp)(one, one) == 0);
        number(CALL(cmp)(one, other) < 0);
        number(CALL(cmp)(other, one) > 0);
        end();
        CALL(free)(one);
        CALL(free)(other);
    }
}

/* Remove and add a byte by changing only the header; then set the length to the position of the first NUL. */
static void trimmed(void)
{
    for (size_t i = 2; i < SIZES; i++) {
        unsigned char *data = place_pattern(i % OFFSETS, sizes[i], 0);
        STRING string = CALL(newlen)(data, sizes[i]);

        line("trim %zu", sizes[i]);
        CALL(IncrLen)(string, -1);
        show(string);
        CALL(IncrLen)(string, 1);
        show(string);
        CALL(updatelen)(string);
        show(string);
        end();
        CALL(free)(string);
        release(data);
    }
}

#ifdef HAS_HEADERS
/* The largest values of each header. The driver makes the headers itself, because no string can have 2^64 bytes. */
#define LARGEST(bits) ((bits) == 64 ? SIZE_MAX : (size_t)((UINT64_C(1) << ((bits) % 64)) - 1))
#define HELD(bits)                                                                          \
    do {                                                                                    \
        char memory[64] = {0}, *string = memory + 32;                                       \
        size_t most = LARGEST(bits);                                                        \
                                                                                            \
        line("header %d %d", (bits), (int)(8 * sizeof(size_t)));                            \
        string[-1] = TYPE(bits);                                                            \
        CALL(setlen)(string, most - 9);                                                     \
        CALL(setalloc)(string, most);                                                       \
        unsigned_number(CALL(len)(string));                                                 \
        unsigned_number(CALL(alloc)(string));                                               \
        unsigned_number(CALL(avail)(string));                                               \
        CALL(inclen)(string, 5);                                                            \
        unsigned_number(CALL(len)(string));                                                 \
        number(string[-1]);                                                                 \
        number((long long)sizeof(HEADER(bits)));                                             \
        end();                                                                              \
    } while (0)

static void held(void)
{
    HELD(8);
    HELD(16);
    HELD(32);
    HELD(64);
}
#else
/* Before 3.2, there is only one header, which consists of two ints. */
static void held(void) {}
#endif

static void tested(void)
{
    made();
    grown();
    cut();
    compared();
    trimmed();
    held();
}
