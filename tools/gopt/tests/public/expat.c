/*
 * Lookups of Expat 2.5.0: lib/xmlparse.c.
 * Changes: lines with g_expensive, types without unused members, lookup without the creation of
 * entries, the tables and batch loops at the end.
 */
/*
 * Copyright (c) 1998-2000 Thai Open Source Software Center Ltd and Clark Cooper
 * Copyright (c) 2001-2022 Expat maintainers
 *
 * Permission is hereby granted, free of charge, to any person obtaining
 * a copy of this software and associated documentation files (the
 * "Software"), to deal in the Software without restriction, including
 * without limitation the rights to use, copy, modify, merge, publish,
 * distribute, sublicense, and/or sell copies of the Software, and to
 * permit persons to whom the Software is furnished to do so, subject to
 * the following conditions:
 *
 * The above copyright notice and this permission notice shall be included
 * in all copies or substantial portions of the Software.
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

#define FASTCALL
typedef char XML_Char;
typedef unsigned char XML_Bool;
#define XML_TRUE ((XML_Bool)1)
#define XML_FALSE ((XML_Bool)0)
typedef void *XML_Parser;

typedef const XML_Char *KEY;

typedef struct {
  KEY name;
} NAMED;

typedef struct {
  NAMED **v;
  unsigned char power;
  size_t size;
  size_t used;
} HASH_TABLE;

#define SECOND_HASH(hash, mask, power)                                         \
  ((((hash) & ~(mask)) >> ((power)-1)) & ((mask) >> 2))
#define PROBE_STEP(hash, mask, power)                                          \
  ((unsigned char)((SECOND_HASH(hash, mask, power)) | 1))

static XML_Bool FASTCALL
keyeq(KEY s1, KEY s2) {
  for (; *s1 == *s2; s1++, s2++)
    if (*s1 == 0)
      return XML_TRUE;
  return XML_FALSE;
}

static unsigned long
hash(XML_Parser parser, KEY s) {
  uint64_t h = (uintptr_t)parser;
  for (; *s; s++)
    h = scramble(h ^ (unsigned char)*s);
  return (unsigned long)h;
}

static NAMED *
lookup(XML_Parser parser, HASH_TABLE *table, KEY name, size_t createSize) {
  size_t i;
  if (table->size == 0) {
    return NULL;
  } else {
    unsigned long h = hash(parser, name);
    unsigned long mask = (unsigned long)table->size - 1;
    unsigned char step = 0;
    i = h & mask;
    g_expensive(&table->v[i]);
    while (table->v[i]) {
      g_expensive(table->v[i]);
      g_expensive(table->v[i]->name);
      if (keyeq(name, table->v[i]->name))
        return table->v[i];
      if (! step)
        step = PROBE_STEP(h, mask, table->power);
      i < step ? (i += table->size - step) : (i -= step);
      g_expensive(&table->v[i]);
    }
  }
  return NULL;
}

static HASH_TABLE elements;
static XML_Char (*texts)[12];
static void expat_lookup_build(void)
{
    while (elements.power < 6 || (1ull << (elements.power - 1)) <= entries) {
        elements.power++;
    }
    elements.size = (size_t)1 << elements.power;
    elements.v = take(elements.size * sizeof *elements.v);
    for (uint32_t entry = 0; entry < entries; entry++) {
        XML_Char *name = take(12);
        NAMED *named = take(sizeof *named);
        sprintf(name, "%08x", (unsigned)key_of(entry));
        named->name = name;
        const unsigned long h = hash(NULL, name), mask = (unsigned long)elements.size - 1;
        size_t i = h & mask;
        while (elements.v[i]) {
            const unsigned char step = PROBE_STEP(h, mask, elements.power);
            i = i < step ? i + elements.size - step : i - step;
        }
        elements.v[i] = named;
    }
    texts = take(queries * sizeof *texts);
    for (uint32_t i = 0; i < queries; i++) {
        sprintf(texts[i], "%08x", (unsigned)keys[i]);
    }
}
static uint64_t expat_lookup(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const NAMED *found = lookup(NULL, &elements, texts[i], 0);
        answers[i] = found ? (uint64_t)found->name[3] + 1 : 0;
    }
    return 0;
}

MAIN(LOOKUP(expat_lookup))
