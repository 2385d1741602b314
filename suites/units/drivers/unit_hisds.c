/* The strings of hiredis, the client library that sentinels are linked with. */
#include "../deps/hiredis/sds.h"

#define STRING hisds
#define CALL(name) hi_sds##name
#define TYPE(bits) HI_SDS_TYPE_##bits
#define HEADER(bits) struct hisdshdr##bits
#define HAS_HEADERS
#define SHRINK(string) hi_sdsRemoveFreeSpace(string)
#include "header_strings.h"

void unit_hisds(void)
{
    tested();
}
