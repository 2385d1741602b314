/* Random pairs of a ziplist: each must be in the list, and distinct ones must come in the order of the list. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>
#include "entries.h"
#include "ziplist.h"
#include "zmalloc.h"

#define DRAWS 60

static void show(const ziplistEntry *entry)
{
    if (entry->sval != NULL) {
        bytes(entry->sval, entry->slen);
    } else {
        number(entry->lval);
    }
}

static void show_draws(const ziplistEntry *keys, const ziplistEntry *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        show(keys + i);
        if (values != NULL) {
            show(values + i);
        }
    }
    end();
}

static unsigned char *filled(size_t lead)
{
    unsigned char *list = ziplistNew();

    for (size_t i = 0; i < INTEGERS; i++) {
        unsigned char *value = place_pattern(lead, i ? i : lead, (unsigned)i);

        list = ziplistPush(list, (unsigned char *)integers[i], (unsigned)strlen(integers[i]), ZIPLIST_TAIL);
        list = ziplistPush(list, value, (unsigned)(i ? i : lead), ZIPLIST_TAIL);
        release(value);
    }
    line("pairs %zu", lead);
    for (size_t i = 0; i < INTEGERS; i++) {
        more(integers[i]);
    }
    bytes(list, ziplistBlobLen(list));
    end();
    return list;
}

void unit_ziplist_pairs(void)
{
    static const unsigned counts[] = {1, 2, 7, INTEGERS - 1, INTEGERS, DRAWS};
    ziplistEntry keys[DRAWS], values[DRAWS];

    for (size_t lead = 0; lead < OFFSETS; lead++) {
        unsigned char *list = filled(lead);

        for (unsigned i = 0; i < DRAWS; i++) {
            line("draw 1");
            ziplistRandomPair(list, INTEGERS, keys, values);
            show_draws(keys, values, 1);
        }
        line("draw 1 keys");
        ziplistRandomPair(list, INTEGERS, keys, NULL);
        show_draws(keys, NULL, 1);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            line("draw %u", counts[i]);
            ziplistRandomPairs(list, counts[i], keys, values);
            show_draws(keys, values, counts[i]);
            line("draw %u keys", counts[i]);
            ziplistRandomPairs(list, counts[i], keys, NULL);
            show_draws(keys, NULL, counts[i]);
            line("distinct %u", counts[i]);
            show_draws(keys, values, ziplistRandomPairsUnique(list, counts[i], keys, values));
            line("distinct %u keys", counts[i]);
            show_draws(keys, NULL, ziplistRandomPairsUnique(list, counts[i], keys, NULL));
        }
        line("room %zu", ziplistBlobLen(list));
        number(ziplistSafeToAdd(list, 0));
        number(ziplistSafeToAdd(list, ((size_t)1 << 30) - ziplistBlobLen(list)));
        number(ziplistSafeToAdd(list, ((size_t)1 << 30) - ziplistBlobLen(list) + 1));
        number(ziplistSafeToAdd(NULL, (size_t)1 << 30));
        number(ziplistSafeToAdd(NULL, ((size_t)1 << 30) + 1));
        end();
        zfree(list);
    }
}
