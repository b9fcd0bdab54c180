/* SPDX-License-Identifier: MIT */
/* Lua: coroutines, errors that leave by longjmp, hooks, and a function that meets others. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "stress.h"

static int meet_others(lua_State* state) {
  const int round = (int)luaL_checkinteger(state, 1);
  meet(round);
  if (round == 13) return luaL_error(state, "unlucky");
  lua_pushinteger(state, round + rank);
  return 1;
}
static void hook(lua_State* state, lua_Debug* unused) {
  (void)unused;
  lua_gc(state, LUA_GCSTEP, 1);
}

static const char work[] =
    "local producer = coroutine.wrap(function() for i = 0, 39 do coroutine.yield(meet(i % 13)) end end)\n"
    "for i = 0, 39 do assert(producer() == i % 13 + rank) end\n"
    "for i = 1, 10 do\n"
    "  local ok, text = pcall(meet, 13)\n"
    "  assert(not ok and text == 'unlucky')\n"
    "  local keys = setmetatable({}, {__mode = 'k', __gc = function() end})\n"
    "  for j = 1, 200 do keys[{}] = ('x'):rep(j) end\n"
    "  local parts = {}\n"
    "  for word in ('a b c'):gmatch('%a') do parts[#parts + 1] = word .. rank end\n"
    "  assert(table.concat(parts, ' ') == string.format('a%d b%d c%d', rank, rank, rank))\n"
    "  local file = io.tmpfile(); file:write(rank, '\\n'); file:seek('set')\n"
    "  assert(file:read('n') == rank); file:close()\n"
    "end\n"
    "os.setlocale('C'); assert(os.time({year = 2001, month = 9, day = 9, hour = 12}) > 0)\n";

int main(int argc, char** argv) {
  begin(&argc, &argv);
  for (int life = 0; life < 3; ++life) {
    lua_State* state = luaL_newstate();
    luaL_openlibs(state);
    lua_register(state, "meet", meet_others);
    lua_pushinteger(state, rank);
    lua_setglobal(state, "rank");
    lua_sethook(state, hook, LUA_MASKCOUNT, 100);
    if (luaL_dostring(state, work) != LUA_OK) check(0, lua_tostring(state, -1));
    lua_close(state);
  }
  return end();
}
