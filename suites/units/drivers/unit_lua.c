/* Lua's strings: each is hashed when it is created. */
#include "unit.h"

#include "../deps/lua/src/lua.h"
#include "../deps/lua/src/lauxlib.h"

void unit_lua(void)
{
    lua_State *lua = luaL_newstate();

    for (size_t i = 0; i < lengths_count; i++) {
        line("length %zu", lengths[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            unsigned char *data = place_pattern(offset, lengths[i], (unsigned)lengths[i]);
            size_t length = 0;
            const char *text;

            lua_pushlstring(lua, (const char *)data, lengths[i]);
            text = lua_tolstring(lua, -1, &length);
            digest(text, length);
            lua_pop(lua, 1);
            release(data);
        }
        end();
    }
    lua_close(lua);
}
