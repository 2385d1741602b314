/* MessagePack, as scripts write and read it: numbers of every width after a string of 0 to 15 bytes. */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include "../deps/lua/src/lua.h"
#include "../deps/lua/src/lauxlib.h"

int luaopen_cmsgpack(lua_State *lua);

static const double numbers[] = {
    0, 1, -1, 127, 128, 255, 256, 65535, 65536, 4294967295.0, 4294967296.0, 1099511627776.0, 9007199254740992.0, -32, -33, -128,
    -129, -32768, -32769, -2147483648.0, -2147483649.0, -1e15, 0.5, 0.1, 1.5, 3.141592653589793, 1e300, -2.5e-10, 16777217.5};
#define NUMBERS (sizeof numbers / sizeof *numbers)

static uint64_t bits_of(double number)
{
    uint64_t bits;

    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* Push a function of the library, which is a global in all releases. */
static void function(lua_State *lua, const char *name)
{
    lua_getglobal(lua, "cmsgpack");
    lua_getfield(lua, -1, name);
    lua_remove(lua, -2);
}

static void pack_and_unpack(lua_State *lua, size_t lead)
{
    unsigned char *text = place_pattern(lead, lead, (unsigned)lead);
    size_t length = 0;
    const char *packed;
    char word[24];

    line("lead %zu", lead);
    function(lua, "pack");
    lua_pushlstring(lua, (const char *)text, lead);
    for (size_t i = 0; i < NUMBERS; i++) {
        snprintf(word, sizeof word, "%016llx", (unsigned long long)bits_of(numbers[i]));
        more(word);
        lua_pushnumber(lua, numbers[i]);
    }
    lua_call(lua, NUMBERS + 1, 1);
    packed = lua_tolstring(lua, -1, &length);
    bytes(packed, length);

    function(lua, "unpack");
    lua_insert(lua, -2);
    lua_call(lua, 1, LUA_MULTRET);
    for (int i = 2; i <= lua_gettop(lua); i++) {
        unsigned_number(bits_of(lua_tonumber(lua, i)));
    }
    end();
    lua_settop(lua, 0);
    release(text);
}

void unit_cmsgpack(void)
{
    lua_State *lua = luaL_newstate();

    luaL_checkstack(lua, NUMBERS * 2 + 8, "numbers");
    lua_pushcfunction(lua, luaopen_cmsgpack);
    lua_call(lua, 0, 0);
    for (size_t lead = 0; lead < OFFSETS; lead++) {
        pack_and_unpack(lua, lead);
    }
    lua_close(lua);
}
