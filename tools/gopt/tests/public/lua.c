/*
 * Lookups of Lua 5.4.4: src/ltable.c, src/lobject.h.
 * Changes: lines with g_expensive, types without unused members, luaH_getint without the growth
 * of the array part, the tables and batch loops at the end.
 */
/*
 * Copyright (C) 1994-2022 Lua.org, PUC-Rio.
 *
 * Permission is hereby granted, free of charge, to any person obtaining
 * a copy of this software and associated documentation files (the
 * "Software"), to deal in the Software without restriction, including
 * without limitation the rights to use, copy, modify, merge, publish,
 * distribute, sublicense, and/or sell copies of the Software, and to
 * permit persons to whom the Software is furnished to do so, subject to
 * the following conditions:
 *
 * The above copyright notice and this permission notice shall be
 * included in all copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND,
 * EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
 * MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT.
 * IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
 * CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT,
 * TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
 * SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
 */
#include "public.h"

#include <limits.h>

typedef unsigned char lu_byte;
typedef long long lua_Integer;
typedef unsigned long long lua_Unsigned;
typedef struct TString {
  lu_byte tt;
  unsigned int hash;
} TString;
typedef union Value {
  TString *gc;
  lua_Integer i;
} Value;
#define TValuefields  Value value_; lu_byte tt_
typedef struct TValue {
  TValuefields;
} TValue;
typedef union Node {
  struct NodeKey {
    TValuefields;  /* fields for value */
    lu_byte key_tt;  /* key type */
    int next;  /* for chaining */
    Value key_val;  /* key value */
  } u;
  TValue i_val;  /* direct access to node's value as a proper 'TValue' */
} Node;
typedef struct Table {
  lu_byte lsizenode;
  unsigned int alimit;
  TValue *array;
  Node *node;
} Table;
#define LUA_VNUMINT 3
#define LUA_VSHRSTR 4
#define ctb(t) ((t) | 64)
#define lua_assert(c) ((void)0)
#define l_castS2U(i) ((lua_Unsigned)(i))
#define cast_int(i) ((int)(i))
#define gco2ts(o) (o)
#define keytt(node) ((node)->u.key_tt)
#define keyval(node) ((node)->u.key_val)
#define keyisinteger(node) (keytt(node) == LUA_VNUMINT)
#define keyival(node) (keyval(node).i)
#define keyisshrstr(node) (keytt(node) == ctb(LUA_VSHRSTR))
#define keystrval(node) (gco2ts(keyval(node).gc))
#define eqshrstr(a,b) ((a) == (b))
#define gnext(n) ((n)->u.next)
#define gval(n) (&(n)->i_val)
#define gnode(t,i) (&(t)->node[i])
#define sizenode(t) (1 << (t)->lsizenode)
#define lmod(s,size) ((int)((s) & ((size)-1)))
#define hashpow2(t,n) (gnode(t, lmod((n), sizenode(t))))
#define hashstr(t,str) hashpow2(t, (str)->hash)
#define hashmod(t,n) (gnode(t, ((n) % ((sizenode(t)-1)|1))))
static const TValue absentkey;

static Node *hashint (const Table *t, lua_Integer i) {
  lua_Unsigned ui = l_castS2U(i);
  if (ui <= (unsigned int)INT_MAX)
    return hashmod(t, cast_int(ui));
  else
    return hashmod(t, ui);
}

static const TValue *luaH_getint (Table *t, lua_Integer key) {
  if (l_castS2U(key) - 1u < t->alimit)  /* 'key' in [1, t->alimit]? */
    return &t->array[key - 1];
  else {
    Node *n = hashint(t, key);
    g_expensive(n);
    for (;;) {  /* check whether 'key' is somewhere in the chain */
      if (keyisinteger(n) && keyival(n) == key)
        return gval(n);  /* that's it */
      else {
        int nx = gnext(n);
        if (nx == 0) break;
        n += nx;
        g_expensive(n);
      }
    }
    return &absentkey;
  }
}

static const TValue *luaH_getshortstr (Table *t, TString *key) {
  Node *n = hashstr(t, key);
  lua_assert(key->tt == LUA_VSHRSTR);
  g_expensive(n);
  for (;;) {  /* check whether 'key' is somewhere in the chain */
    if (keyisshrstr(n) && eqshrstr(keystrval(n), key))
      return gval(n);  /* that's it */
    else {
      int nx = gnext(n);
      if (nx == 0)
        return &absentkey;  /* not found */
      n += nx;
      g_expensive(n);
    }
  }
}

/* Places each key at its main position, if it is free, then the others into chains. */
static void lua_fill(Table *t, Node *(*main_position)(const Table *, const Node *), const Node *all)
{
    while ((uint32_t)sizenode(t) < entries) {
        t->lsizenode++;
    }
    t->node = take((size_t)sizenode(t) * sizeof *t->node);
    lu_byte *waits = take(entries);
    for (uint32_t entry = 0; entry < entries; entry++) {
        Node *place = main_position(t, &all[entry]);
        waits[entry] = keytt(place) != 0;
        if (!waits[entry]) {
            *place = all[entry];
        }
    }
    Node *unused = t->node;
    for (uint32_t entry = 0; entry < entries; entry++) {
        if (!waits[entry]) {
            continue;
        }
        while (keytt(unused)) {
            unused++;
        }
        Node *place = main_position(t, &all[entry]);
        *unused = all[entry];
        gnext(unused) = gnext(place) ? (int)(place + gnext(place) - unused) : 0;
        gnext(place) = (int)(unused - place);
    }
}

static Node *lua_integer_position(const Table *t, const Node *n)
{
    return hashint(t, keyival(n));
}
static Table integers;
static void lua_integers_build(void)
{
    Node *all = take(entries * sizeof *all);
    for (uint32_t entry = 0; entry < entries; entry++) {
        all[entry].u.value_.i = entry;
        keytt(&all[entry]) = LUA_VNUMINT;
        keyval(&all[entry]).i = key_of(entry);
    }
    lua_fill(&integers, lua_integer_position, all);
}
static uint64_t lua_integers(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const TValue *found = luaH_getint(&integers, keys[i]);
        answers[i] = found == &absentkey ? UINT64_MAX : (uint64_t)found->value_.i;
    }
    return 0;
}

static Node *lua_string_position(const Table *t, const Node *n)
{
    return hashstr(t, keystrval(n));
}
static Table strings;
static TString **names;
static void lua_strings_build(void)
{
    Node *all = take(entries * sizeof *all);
    TString *known = take((entries + entries / 8) * sizeof *known);
    for (uint32_t entry = 0; entry < entries + entries / 8; entry++) {
        known[entry] = (TString){LUA_VSHRSTR, (unsigned int)scramble(entry)};
        if (entry < entries) {
            all[entry].u.value_.i = entry;
            keytt(&all[entry]) = ctb(LUA_VSHRSTR);
            keyval(&all[entry]).gc = &known[entry];
        }
    }
    lua_fill(&strings, lua_string_position, all);
    names = take(queries * sizeof *names);
    for (uint32_t i = 0; i < queries; i++) {
        names[i] = &known[scramble(i) % (entries + entries / 8)];
    }
}
static uint64_t lua_strings(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const TValue *found = luaH_getshortstr(&strings, names[i]);
        answers[i] = found == &absentkey ? UINT64_MAX : (uint64_t)found->value_.i;
    }
    return 0;
}

MAIN(LOOKUP(lua_integers), LOOKUP(lua_strings))
