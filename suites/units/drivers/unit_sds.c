/* The server's strings. */
#include "sds.h"

#define STRING sds
#define CALL(name) sds##name
#define TYPE(bits) SDS_TYPE_##bits
#define HEADER(bits) struct sdshdr##bits
#ifdef SDS_TYPE_64
#define HAS_HEADERS
#endif

typedef sds (*shrink)(sds);
typedef sds (*shrink_for)(sds, int);

static sds shrink_1(void (*function)(void), sds string) { return ((shrink)function)(string); }

static sds shrink_2(void (*function)(void), sds string) { return ((shrink_for)function)(string, 0); }

/* Since 6.2, sdsRemoveFreeSpace() takes whether the string will grow again. */
#define SHRINK(string) \
    _Generic(&sdsRemoveFreeSpace, shrink: shrink_1, default: shrink_2)((void (*)(void))sdsRemoveFreeSpace, string)

#include "header_strings.h"

void unit_sds(void)
{
    tested();
}
