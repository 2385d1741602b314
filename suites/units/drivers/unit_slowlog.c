/* The entries of the slow log, up to arguments whose length does not fit 32 bits. The file itself is included. */
#include "slowlog.c"

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

static void logged(client *caller, size_t length)
{
    void *room = malloc(length + 256);

    free(room);
    if (room == NULL) {
        line("no room for %zu", length);
        end();
        return;
    }
    /* Memory that is never written takes no space. */
    robj *argument = createObject(OBJ_STRING, sdsnewlen(SDS_NOINIT, length));
    slowlogEntry *entry;

    memset(argument->ptr, 'a', length < 256 ? length : 256);
    entry = slowlogCreateEntry(caller, &argument, 1, (1LL << 40) + 1);
    line("argument of %zu", length);
    unsigned_number(sdslen(entry->argv[0]->ptr));
    bytes(entry->argv[0]->ptr, sdslen(entry->argv[0]->ptr));
    number(entry->duration);
    end();
    slowlogFreeEntry(entry);
    decrRefCount(argument);
}

void unit_slowlog(void)
{
    static const size_t short_of[] = {1, 127, 128, 129, 130, 1000, 65535, 65536, 65664, 1 << 24};
    client *caller = zcalloc(sizeof *caller);

    caller->peerid = sdsnew("somebody");
    for (size_t i = 0; i < sizeof short_of / sizeof *short_of; i++) logged(caller, short_of[i]);
#if SIZE_MAX > 0xFFFFFFFFU
    logged(caller, ((size_t)1 << 31) + 1);
    logged(caller, ((size_t)1 << 32) + 1);
    logged(caller, ((size_t)1 << 32) + 128 + 77);
#endif
}
