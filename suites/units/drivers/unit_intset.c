/* Intsets: each value is added, in three orders, then found, read and removed. The blob is stored in RDB files. */
#include "unit.h"

#include "intset.h"
#include "zmalloc.h"

/* The limits of each width: an intset grows wider with its values, and its lowest value may be the one that needs it. */
static const int64_t edges[] = {0, 5, -3, 127, 128, -129, 255, 32767, -32768, 5, 32768, -32769, 65535, 8388608, 2147483647,
                                -2147483647 - 1, 2147483648LL, -2147483649LL, 4294967296LL, 1234567890123456789LL,
                                9223372036854775807LL, -9223372036854775807LL - 1};
static const int64_t sinking[] = {3, 2, 1, -40000, -39999, 7, -5000000000LL, -1, 0};
static const int64_t many = 120;

static intset *add(intset *set, int64_t value)
{
    uint8_t added = 2;

    line("add %lld", (long long)value);
    set = intsetAdd(set, value, &added);
    number(added);
    bytes(set, intsetBlobLen(set));
    end();
    return set;
}

static intset *drop(intset *set, int64_t value)
{
    int removed = 2;

    line("remove %lld", (long long)value);
    set = intsetRemove(set, value, &removed);
    number(removed);
    bytes(set, intsetBlobLen(set));
    end();
    return set;
}

static void read_all(intset *set)
{
    for (uint32_t i = 0; i <= intsetLen(set); i++) {
        int64_t value = 0;

        line("get %lu", (unsigned long)i);
        if (intsetGet(set, i, &value)) {
            number(value);
            number(intsetFind(set, value));
            number(intsetFind(set, (int64_t)((uint64_t)value ^ 0x40)));
        }
        end();
    }
}

static intset *begin(const char *name)
{
    intset *set = intsetNew();

    line("begin %s", name);
    bytes(set, intsetBlobLen(set));
    end();
    return set;
}

void unit_intset(void)
{
    intset *set = begin("edges");

    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        set = add(set, edges[i]);
        read_all(set);
    }
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i += 2) {
        set = drop(set, edges[i]);
    }
    read_all(set);
    zfree(set);

    set = begin("sinking");
    for (size_t i = 0; i < sizeof sinking / sizeof *sinking; i++) {
        set = add(set, sinking[i]);
    }
    read_all(set);
    zfree(set);

    set = begin("many");
    for (int64_t i = 0; i < many; i++) {
        set = add(set, (i * 7919 % many - many / 2) * 1000003);
    }
    read_all(set);
    zfree(set);
}
