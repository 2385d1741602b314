/* Zipmaps, the encoding of hashes before Redis 2.6. Every release must still read them, and most can write them. */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include "zipmap.h"
#include "zmalloc.h"

static const unsigned value_lengths[] = {0, 1, 3, 15, 16, 252, 253, 254, 255, 256, 300};
#define MANY 258
#define VALUES (sizeof value_lengths / sizeof *value_lengths)

static unsigned char *set(unsigned char *map, size_t offset, const char *key, unsigned length)
{
    unsigned char *name = place_copy(offset, key, strlen(key));
    unsigned char *value = place_pattern(OFFSETS - 1 - offset, length, length);
    int update = 2;

    line("set %s %u", key, length);
    map = zipmapSet(map, name, (unsigned)strlen(key), value, length, &update);
    number(update);
    bytes(map, zipmapBlobLen(map));
    end();
    release(value);
    release(name);
    return map;
}

static void get(unsigned char *map, size_t offset, const char *key)
{
    unsigned char *name = place_copy(offset, key, strlen(key));
    unsigned char *value = NULL;
    unsigned length = 0;

    line("get %s", key);
    if (zipmapGet(map, name, (unsigned)strlen(key), &value, &length)) {
        bytes(value, length);
    }
    end();
    release(name);
}

static unsigned char *drop(unsigned char *map, size_t offset, const char *key)
{
    unsigned char *name = place_copy(offset, key, strlen(key));
    int deleted = 2;

    line("delete %s", key);
    number(zipmapExists(map, name, (unsigned)strlen(key)));
    map = zipmapDel(map, name, (unsigned)strlen(key), &deleted);
    number(deleted);
    number(zipmapExists(map, name, (unsigned)strlen(key)));
    end();
    release(name);
    return map;
}

static void walk(unsigned char *map)
{
    unsigned char *at = zipmapRewind(map), *key, *value;
    unsigned key_length, value_length;

    line("walk %u", zipmapLen(map));
    while ((at = zipmapNext(at, &key, &key_length, &value, &value_length)) != NULL) {
        bytes(key, key_length);
        bytes(value, value_length);
    }
    end();
}

/* More pairs than a byte can count, and then fewer. */
static void many(void)
{
    unsigned char *map = zipmapNew();
    char key[32];

    line("begin many");
    bytes(map, zipmapBlobLen(map));
    end();
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "k%u", i);
        map = set(map, i % OFFSETS, key, 1);
    }
    walk(map);
    for (unsigned i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "k%u", i * 7);
        map = drop(map, i, key);
    }
    walk(map);
    zfree(map);
}

void unit_zipmap(void)
{
    for (size_t lead = 0; lead < OFFSETS; lead++) {
        unsigned char *map = zipmapNew();
        char key[32], first[OFFSETS + 1] = "";

        memset(first, 'k', lead + 1);
        first[lead] = '\0';
        line("begin lead %zu", lead);
        bytes(map, zipmapBlobLen(map));
        end();
        /* An empty key would be valid, but it cannot be a word of a line. */
        map = set(map, lead, lead ? first : "0", 3);
        for (size_t i = 0; i < VALUES; i++) {
            snprintf(key, sizeof key, "key%zu", i * 999);
            map = set(map, (lead + i) % OFFSETS, key, value_lengths[i]);
        }
        map = set(map, lead, "key0", 260);
        map = set(map, lead, "key999", 2);
        for (size_t i = 0; i < VALUES; i++) {
            snprintf(key, sizeof key, "key%zu", i * 999);
            get(map, (lead + i) % OFFSETS, key);
        }
        get(map, lead, "nothing");
        walk(map);
        /* So much shorter that the space after it is released. */
        map = set(map, lead, "key0", 3);
        map = drop(map, lead, "key999");
        map = drop(map, lead, "nothing");
        walk(map);
        zfree(map);
    }
    many();
}
