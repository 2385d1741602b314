/* Ziplists: a first entry of 0 to 15 bytes moves all others to every alignment. */
#include "unit.h"

#include <string.h>
#include "entries.h"
#include "ziplist.h"
#include "zmalloc.h"

typedef unsigned char *(*find_entry)(unsigned char *, unsigned char *, unsigned int, unsigned int);
typedef unsigned char *(*find_entry_in)(unsigned char *, unsigned char *, unsigned char *, unsigned int, unsigned int);

static unsigned char *find_1(void (*function)(void), unsigned char *list, unsigned char *from, unsigned char *text, size_t length)
{
    (void)list;
    return ((find_entry)function)(from, text, (unsigned)length, 0);
}

static unsigned char *find_2(void (*function)(void), unsigned char *list, unsigned char *from, unsigned char *text, size_t length)
{
    return ((find_entry_in)function)(list, from, text, (unsigned)length, 0);
}

/* Since 6.2, ziplistFind() also takes the list. */
#define FIND(list, from, text, length) \
    _Generic(&ziplistFind, find_entry: find_1, default: find_2)((void (*)(void))ziplistFind, list, from, text, length)

static unsigned char *push(unsigned char *list, size_t offset, const void *from, size_t length, int where)
{
    unsigned char *text = place_copy(offset, from, length);

    list = ziplistPush(list, text, (unsigned)length, where);
    release(text);
    return list;
}

static unsigned char *push_pattern(unsigned char *list, size_t offset, size_t length, int where)
{
    unsigned char *text = place_pattern(offset, length, (unsigned)length);

    list = ziplistPush(list, text, (unsigned)length, where);
    release(text);
    return list;
}

static void show(unsigned char *list)
{
    bytes(list, ziplistBlobLen(list));
    end();
}

static void show_entry(unsigned char *entry)
{
    unsigned char *text = NULL;
    unsigned int length = 0;
    long long value = 0;

    if (entry == NULL || !ziplistGet(entry, &text, &length, &value)) {
        return;
    }
    if (text != NULL) {
        bytes(text, length);
    } else {
        number(value);
    }
}

static void read_all(unsigned char *list)
{
    unsigned char *entry = ziplistIndex(list, 0);
    int count = (int)ziplistLen(list);

    for (int i = 0; i < count; i++) {
        line("entry %d", i);
        show_entry(entry);
        show_entry(ziplistIndex(list, i - count));
        end();
        entry = entry == NULL ? NULL : ziplistNext(list, entry);
    }
    for (size_t i = 0; i < INTEGERS; i++) {
        line("find %s", integers[i]);
        show_entry(FIND(list, ziplistIndex(list, 0), (unsigned char *)integers[i], strlen(integers[i])));
        end();
    }
}

static unsigned char *drop(unsigned char *list, int index)
{
    unsigned char *entry = ziplistIndex(list, index);

    line("delete %d", index);
    list = ziplistDelete(list, &entry);
    show(list);
    return list;
}

static void all_alignments(void)
{
    for (size_t lead = 0; lead < OFFSETS; lead++) {
        unsigned char *list = push_pattern(ziplistNew(), lead, lead, ZIPLIST_TAIL);

        line("begin lead %zu", lead);
        show(list);
        for (size_t i = 0; i < INTEGERS; i++) {
            list = push(list, (lead + i) % OFFSETS, integers[i], strlen(integers[i]), i % 3 ? ZIPLIST_TAIL : ZIPLIST_HEAD);
        }
        line("push integers");
        for (size_t i = 0; i < INTEGERS; i++) {
            more(integers[i]);
        }
        show(list);
        read_all(list);
        list = drop(list, 1);
        list = drop(list, -2);
        zfree(list);
    }
}

/* If an entry becomes longer than 253 bytes, the next one needs more bytes for that length, and so on down the list. */
static void neighbours(void)
{
    unsigned char *list = ziplistNew();

    line("begin strings");
    show(list);
    for (size_t i = 0; i < STRINGS; i++) {
        line("push tail %zu", string_lengths[i]);
        list = push_pattern(list, i % OFFSETS, string_lengths[i], ZIPLIST_TAIL);
        show(list);
    }
    for (size_t i = 0; i < 6; i++) {
        line("push head %d", 250);
        list = push_pattern(list, i, 250, ZIPLIST_HEAD);
        show(list);
    }
    line("push head %d", 300);
    list = push_pattern(list, 1, 300, ZIPLIST_HEAD);
    show(list);
    list = drop(list, 0);
    list = drop(list, 8);
    zfree(list);
}

static void long_strings(void)
{
    unsigned char *list = ziplistNew();

    line("begin long");
    show(list);
    for (size_t i = 0; i < LONG_STRINGS; i++) {
        list = push_pattern(list, i, long_lengths[i], ZIPLIST_TAIL);
    }
    line("push strings");
    for (size_t i = 0; i < LONG_STRINGS; i++) {
        more_number(long_lengths[i]);
    }
    show(list);
    zfree(list);
}

void unit_ziplist(void)
{
    all_alignments();
    neighbours();
    long_strings();
}
