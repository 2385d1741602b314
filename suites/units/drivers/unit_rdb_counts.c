/* The numbers of keys that the check of an RDB file prints, up to the largest long. The file itself is included. */
#if __has_include("redis-check-rdb.c")
#include "redis-check-rdb.c"
#else
#include "valkey-check-rdb.c"
#endif

#include "unit.h"

#include <stdio.h>
#include <unistd.h>

static void told(unsigned long keys, unsigned long expires, unsigned long expired)
{
    char text[4096];
    int ends[2], out;
    ssize_t length;

    line("counts %lu %lu %lu", keys, expires, expired);
    rdbstate.keys = keys;
    rdbstate.expires = expires;
    rdbstate.already_expired = expired;
    fflush(stdout);
    if (pipe(ends) != 0 || (out = dup(1)) < 0 || dup2(ends[1], 1) < 0) exit(3);
    rdbShowGenericInfo();
    fflush(stdout);
    dup2(out, 1);
    close(out);
    close(ends[1]);
    length = read(ends[0], text, sizeof text);
    close(ends[0]);
    bytes(text, length > 0 ? (size_t)length : 0);
    end();
}

void unit_rdb_counts(void)
{
    const unsigned long most = (unsigned long)-1;

    told(0, 1, 2);
    told(0x7fffffff, 0x80000000, 0xffffffff);
    told(most, most / 2 + 1, most / 3);
    told(most / 5, most - 1, most / 2);
}
