/* The integrity checks of containers from dumps and files: intact ones, and copies with changed or missing bytes. */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include "intset.h"
#include "listpack.h"
#include "ziplist.h"
#include "zipmap.h"
#include "zmalloc.h"

#define LARGEST 256

typedef int (*check)(unsigned char *blob, size_t size, int deep);

/* More entries than any container here has: a check that visits as many goes round in circles. */
static const int too_many = LARGEST;
static int visited;

static int visit(void) { return ++visited < too_many; }

/* Since 7.0, the visitor of a ziplist also receives the count. */
typedef int (*visit_2)(unsigned char *, void *);

static int visit_entry(unsigned char *entry, void *data)
{
    (void)entry, (void)data;
    return visit();
}

static int visit_counted(unsigned char *entry, unsigned int count, void *data)
{
    (void)entry, (void)count, (void)data;
    return visit();
}

#define VISITOR _Generic((ziplistValidateEntryCB)NULL, visit_2: visit_entry, default: visit_counted)

static int check_intset(unsigned char *blob, size_t size, int deep) { return intsetValidateIntegrity(blob, size, deep); }

static int check_zipmap(unsigned char *blob, size_t size, int deep) { return zipmapValidateIntegrity(blob, size, deep); }

static int check_ziplist(unsigned char *blob, size_t size, int deep)
{
    return ziplistValidateIntegrity(blob, size, deep, VISITOR, NULL);
}

/* Since 7.0, the check of a listpack takes a visitor. The newest releases have no shallow check. */
typedef int (*check_3)(unsigned char *, size_t, int);
typedef int (*check_entry)(unsigned char *, unsigned int, void *);
typedef int (*check_5)(unsigned char *, size_t, int, check_entry, void *);
typedef int (*check_4)(unsigned char *, size_t, check_entry, void *);

static int listpack_3(void (*function)(void), unsigned char *blob, size_t size, int deep)
{
    return ((check_3)function)(blob, size, deep);
}

static int listpack_5(void (*function)(void), unsigned char *blob, size_t size, int deep)
{
    return ((check_5)function)(blob, size, deep, NULL, NULL);
}

static int listpack_4(void (*function)(void), unsigned char *blob, size_t size, int deep)
{
    (void)deep;
    return ((check_4)function)(blob, size, NULL, NULL);
}

#define SHALLOW_LISTPACK _Generic(&lpValidateIntegrity, check_3: 1, check_5: 1, default: 0)

static int check_listpack(unsigned char *blob, size_t size, int deep)
{
    return _Generic(&lpValidateIntegrity, check_3: listpack_3, check_5: listpack_5, default: listpack_4)(
        (void (*)(void))lpValidateIntegrity, blob, size, deep);
}

/* The answer for each place: the server's 1 or 0, or 2 if the check went round in circles. */
static void ask(const char *how, check of, const unsigned char *blob, size_t size)
{
    static char text[2 * LARGEST + 2] = "x";

    for (size_t i = 0; i < size; i++) {
        snprintf(text + 1 + 2 * i, 3, "%02x", blob[i]);
    }
    text[1 + 2 * size] = '\0';
    line("%s", how);
    more(text);
    for (size_t offset = 0; offset < OFFSETS; offset++) {
        /* Only places where an allocator puts blocks: servers check no others, and read words there. */
        unsigned char *placed = place_copy(offset * 8 % BOUNDARY, blob, size);
        int answer;

        visited = 0;
        answer = of(placed, size, strcmp(how, "deep") == 0);
        number(visited >= too_many ? 2 : answer);
        release(placed);
    }
    end();
}

static void ask_both(check of, const unsigned char *blob, size_t size)
{
    if (of != check_listpack || SHALLOW_LISTPACK) {
        ask("shallow", of, blob, size);
    }
    ask("deep", of, blob, size);
}

static void damage(check of, const unsigned char *blob, size_t size)
{
    unsigned char other[LARGEST];

    ask_both(of, blob, size);
    for (size_t at = 0; at < size; at++) {
        const unsigned char substitutes[] = {0, 1, 0x80, 0xfe, 0xff, blob[at] ^ 0x80, blob[at] + 1, blob[at] - 1};

        for (size_t i = 0; i < sizeof substitutes; i++) {
            memcpy(other, blob, size);
            other[at] = substitutes[i];
            if (other[at] != blob[at]) {
                ask_both(of, other, size);
            }
        }
    }
    for (size_t length = 0; length < size; length++) {
        ask_both(of, blob, length);
    }
}

/* Cut the container at every length, and correct its head: the total size, and a count of 65535, which means unknown. */
static void cut(check of, const unsigned char *blob, size_t size, size_t head, size_t count_at)
{
    unsigned char other[LARGEST];

    for (size_t length = head + 2; length <= size; length++) {
        memcpy(other, blob, length);
        memset(other, 0, 4);
        other[0] = (unsigned char)length;
        memset(other + count_at, 0xff, 2);
        other[length - 1] = 0xff;
        ask_both(of, other, length);
    }
}

void unit_intset_integrity(void)
{
    static const int64_t values[] = {-7, 5, 300, 70000, -5000000000LL, 5000000000LL};
    intset *set = intsetNew();

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        unsigned char wrapped[LARGEST];
        size_t size;

        set = intsetAdd(set, values[i], NULL);
        size = intsetBlobLen(set);
        damage(check_intset, (unsigned char *)set, size);
        /* So many more entries that their size wraps in 32 bits. The deep check would then read all of them. */
        memcpy(wrapped, set, size);
        wrapped[7] |= wrapped[0] == 2 ? 0x80 : wrapped[0] == 4 ? 0x40 : 0x20;
        ask("shallow", check_intset, wrapped, size);
        /* The same number twice: it is in order, but it is not a set. */
        for (size_t at = 8 + wrapped[0]; at < size; at += wrapped[0]) {
            memcpy(wrapped, set, size);
            memcpy(wrapped + at, wrapped + at - wrapped[0], wrapped[0]);
            ask_both(check_intset, wrapped, size);
        }
    }
    zfree(set);
}

/* No entry here ends with 0 or 128, which could be read as part of the length after it. */
static unsigned char *place_text(size_t length)
{
    unsigned char *text = place(0, length);

    memset(text, 'p', length);
    return text;
}

static const char *const small[] = {"text", "5", "-100", "3000", "70000", "-9000000", "-5000000000", "z"};
#define SMALL (sizeof small / sizeof *small)

void unit_ziplist_integrity(void)
{
    /* Lengths in four bytes: 3, and numbers so large that 32-bit pointers wrap, back to the start of the entry. */
    static const unsigned char wide[] = {20, 0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0x80, 0, 0, 0, 3, 'a', 'b', 'c', 0xff};
    unsigned char *list = ziplistNew(), *text = place_text(70), wrapped[sizeof wide];

    for (size_t i = 0; i < SMALL; i++) {
        list = ziplistPush(list, (unsigned char *)small[i], (unsigned)strlen(small[i]), ZIPLIST_TAIL);
    }
    list = ziplistPush(list, text, 70, ZIPLIST_TAIL);
    list = ziplistPush(list, text, 3, ZIPLIST_TAIL);
    damage(check_ziplist, list, ziplistBlobLen(list));
    cut(check_ziplist, list, ziplistBlobLen(list), 10, 8);
    memcpy(wrapped, wide, sizeof wide);
    damage(check_ziplist, wide, sizeof wide);
    for (unsigned i = 0; i < 16; i++) {
        memcpy(wrapped + 12, "\xff\xff\xff", 3);
        wrapped[15] = (unsigned char)(0xf0 + i);
        ask_both(check_ziplist, wrapped, sizeof wide);
    }
    release(text);
    zfree(list);
}

void unit_listpack_integrity(void)
{
    static const unsigned char wide[] = {16, 0, 0, 0, 1, 0, 0xf0, 3, 0, 0, 0, 'a', 'b', 'c', 8, 0xff};
    unsigned char *list = lpNew(0), *text = place_text(130), wrapped[sizeof wide];

    for (size_t i = 0; i < SMALL; i++) {
        list = lpAppend(list, (unsigned char *)small[i], (uint32_t)strlen(small[i]));
    }
    list = lpAppend(list, text, 130);
    list = lpAppend(list, text, 3);
    damage(check_listpack, list, lpBytes(list));
    cut(check_listpack, list, lpBytes(list), 6, 4);
    damage(check_listpack, wide, sizeof wide);
    memcpy(wrapped, wide, sizeof wide);
    for (unsigned i = 0; i < 16; i++) {
        wrapped[7] = (unsigned char)(0xf0 + i);
        memcpy(wrapped + 8, "\xff\xff\xff", 3);
        ask_both(check_listpack, wrapped, sizeof wide);
    }
    release(text);
    lpFree(list);
}

/* Handmade, because the newest releases only read them: two pairs with free space after the second; a long value. */
void unit_zipmap_integrity(void)
{
    static const unsigned char two[] = {2, 1, 'k', 3, 0, 'a', 'b', 'c', 2, 'k', '2', 1, 2, 'v', '.', '.', 0xff};
    static const unsigned char wide[] = {1, 0xfe, 2, 0, 0, 0, 'k', 'w', 0xfe, 3, 0, 0, 0, 1, 'a', 'b', 'c', '.', 0xff};

    damage(check_zipmap, two, sizeof two);
    damage(check_zipmap, wide, sizeof wide);
}
