/* Listpacks: a first entry of 0 to 15 bytes moves all others to every alignment. */
#include "unit.h"

#include <string.h>
#include "entries.h"
#include "listpack.h"

typedef unsigned char *(*new_empty)(void);
typedef unsigned char *(*new_sized)(size_t);

static unsigned char *new_1(void (*function)(void)) { return ((new_empty)function)(); }

static unsigned char *new_2(void (*function)(void)) { return ((new_sized)function)(0); }

/* Since 6.2, lpNew() takes the capacity. */
#define NEW() _Generic(&lpNew, new_empty: new_1, default: new_2)((void (*)(void))lpNew)

static unsigned char *append(unsigned char *list, size_t offset, const void *from, size_t length)
{
    unsigned char *text = place_copy(offset, from, length);

    list = lpAppend(list, text, (uint32_t)length);
    release(text);
    return list;
}

static unsigned char *append_pattern(unsigned char *list, size_t offset, size_t length)
{
    unsigned char *text = place_pattern(offset, length, (unsigned)length);

    list = lpAppend(list, text, (uint32_t)length);
    release(text);
    return list;
}

static void show(unsigned char *list)
{
    bytes(list, lpBytes(list));
    end();
}

/* lpGet() returns an integer as a number, or as text if it is given memory for that. */
static void show_entry(unsigned char *entry, size_t offset)
{
    int64_t count = 0;
    unsigned char *text;

    if (entry == NULL) {
        return;
    }
    text = lpGet(entry, &count, NULL);
    if (text == NULL) {
        unsigned char *room = place(offset, LP_INTBUF_SIZE);

        number(count);
        text = lpGet(entry, &count, room);
        bytes(text, (size_t)count);
        release(room);
    } else {
        bytes(text, (size_t)count);
    }
}

static void read_all(unsigned char *list)
{
    unsigned char *entry = lpFirst(list), *from_end = lpLast(list);
    long count = (long)lpLength(list);

    for (long i = 0; i < count; i++) {
        line("entry %ld", i);
        show_entry(entry, (size_t)i % OFFSETS);
        show_entry(lpSeek(list, i - count), (size_t)i % OFFSETS);
        end();
        entry = entry == NULL ? NULL : lpNext(list, entry);
    }
    for (long i = count - 1; i >= 0; i--) {
        line("backwards %ld", i);
        show_entry(from_end, (size_t)i % OFFSETS);
        end();
        from_end = from_end == NULL ? NULL : lpPrev(list, from_end);
    }
}

static unsigned char *drop(unsigned char *list, long index)
{
    line("delete %ld", index);
    list = lpDelete(list, lpSeek(list, index), NULL);
    show(list);
    return list;
}

static void all_alignments(void)
{
    for (size_t lead = 0; lead < OFFSETS; lead++) {
        unsigned char *list = append_pattern(NEW(), lead, lead);

        line("begin lead %zu", lead);
        show(list);
        for (size_t i = 0; i < INTEGERS; i++) {
            list = append(list, (lead + i) % OFFSETS, integers[i], strlen(integers[i]));
        }
        line("push integers");
        for (size_t i = 0; i < INTEGERS; i++) {
            more(integers[i]);
        }
        show(list);
        read_all(list);
        list = drop(list, 1);
        list = drop(list, -2);
        list = drop(list, 0);
        lpFree(list);
    }
}

static void strings(const char *name, const size_t *of, size_t count)
{
    unsigned char *list = NEW();

    line("begin %s", name);
    show(list);
    for (size_t i = 0; i < count; i++) {
        list = append_pattern(list, i % OFFSETS, of[i]);
    }
    line("push strings");
    for (size_t i = 0; i < count; i++) {
        more_number(of[i]);
    }
    show(list);
    read_all(list);
    lpFree(list);
}

void unit_listpack(void)
{
    all_alignments();
    strings("strings", string_lengths, STRINGS);
    strings("long", long_lengths, LONG_STRINGS);
}
