/* Merge two ziplists, of which either is the longer, and make one with more entries than its count can represent. */
#include "unit.h"

#include "entries.h"
#include "ziplist.h"
#include "zmalloc.h"

#define HALF 33000
#define COUNTABLE 65534

/* A list of patterns with these lengths. */
static unsigned char *filled(const size_t *of, size_t count)
{
    unsigned char *list = ziplistNew();

    for (size_t i = 0; i < count; i++) {
        unsigned char *text = place_pattern(i % OFFSETS, of[i], (unsigned)of[i]);

        list = ziplistPush(list, text, (unsigned)of[i], ZIPLIST_TAIL);
        release(text);
    }
    return list;
}

static void merge(size_t first, size_t second)
{
    unsigned char *one = filled(string_lengths, first), *other = filled(string_lengths + STRINGS - second, second);
    unsigned char *list;

    line("merge");
    for (size_t i = 0; i < first; i++) {
        more_number(string_lengths[i]);
    }
    for (size_t i = STRINGS - second; i < STRINGS; i++) {
        more_number(string_lengths[i]);
    }
    list = ziplistMerge(&one, &other);
    bytes(list, ziplistBlobLen(list));
    number((one == list) + (other == list));
    number((one == NULL) + (other == NULL));
    end();
    zfree(list);
}

static void refused(void)
{
    unsigned char *list = ziplistNew(), *nothing = NULL;

    line("refused");
    number(ziplistMerge(&list, &list) == NULL);
    number(ziplistMerge(&list, &nothing) == NULL);
    number(ziplistMerge(&nothing, &list) == NULL);
    number(ziplistMerge(NULL, &list) == NULL);
    number(ziplistMerge(&list, NULL) == NULL);
    end();
    zfree(list);
}

static unsigned char *numbered(size_t count)
{
    unsigned char *list = ziplistNew();

    for (size_t i = 0; i < count; i++) {
        list = ziplistPush(list, (unsigned char *)"7", 1, ZIPLIST_TAIL);
    }
    return list;
}

static void show_count(const char *what, unsigned char *list)
{
    line("%s", what);
    number((long long)ziplistLen(list));
    digest(list, ziplistBlobLen(list));
    end();
}

static void beyond_16_bits(void)
{
    unsigned char *one = numbered(HALF), *other = numbered(HALF), *list = ziplistMerge(&one, &other);

    show_count("sevens 66000 counted never", list);
    list = ziplistDeleteRange(list, 0, 2 * HALF - COUNTABLE);
    show_count("sevens 65534 counted again", list);
    list = ziplistPush(list, (unsigned char *)"7", 1, ZIPLIST_TAIL);
    show_count("sevens 65535 counted never", list);
    zfree(list);
}

void unit_ziplist_merge(void)
{
    /* The second is never empty: no server does that, and the offset of the last entry would be that of the end. */
    merge(0, STRINGS);
    for (size_t few = 1; few < 6; few++) {
        merge(few, STRINGS);
        merge(STRINGS, few);
        merge(few + 7, 5);
    }
    refused();
    beyond_16_bits();
}
