/*
 * Lookups of libuv 1.44.2: include/uv/tree.h.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/*-
 * Copyright 2002 Niels Provos <provos@citi.umich.edu>
 * All rights reserved.
 *
 * Redistribution and use in source and binary forms, with or without
 * modification, are permitted provided that the following conditions
 * are met:
 * 1. Redistributions of source code must retain the above copyright
 *    notice, this list of conditions and the following disclaimer.
 * 2. Redistributions in binary form must reproduce the above copyright
 *    notice, this list of conditions and the following disclaimer in the
 *    documentation and/or other materials provided with the distribution.
 *
 * THIS SOFTWARE IS PROVIDED BY THE AUTHOR ``AS IS'' AND ANY EXPRESS OR
 * IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES
 * OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED.
 * IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY DIRECT, INDIRECT,
 * INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT
 * NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE,
 * DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY
 * THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT
 * (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF
 * THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
 */
#include "public.h"

#define RB_HEAD(name, type) \
struct name { \
  struct type *rbh_root; \
}
#define RB_ENTRY(type) \
struct { \
  struct type *rbe_left; \
  struct type *rbe_right; \
}
#define RB_LEFT(elm, field)   (elm)->field.rbe_left
#define RB_RIGHT(elm, field)  (elm)->field.rbe_right
#define RB_ROOT(head)         (head)->rbh_root
#define RB_GENERATE_FIND(name, type, field, cmp, attr) \
attr struct type * \
name##_RB_FIND(struct name *head, struct type *elm) \
{ \
  struct type *tmp = RB_ROOT(head); \
  int comp; \
  while (tmp) { \
    g_expensive(tmp); \
    comp = cmp(elm, tmp); \
    if (comp < 0) \
      tmp = RB_LEFT(tmp, field); \
    else if (comp > 0) \
      tmp = RB_RIGHT(tmp, field); \
    else \
      return (tmp); \
  } \
  return (NULL); \
}

struct watcher {
    RB_ENTRY(watcher) tree_entry;
    uint32_t wd;
    uint64_t value;
};
RB_HEAD(watcher_root, watcher);
static int compare_watchers(const struct watcher *a, const struct watcher *b)
{
    if (a->wd < b->wd) return -1;
    if (a->wd > b->wd) return 1;
    return 0;
}
RB_GENERATE_FIND(watcher_root, watcher, tree_entry, compare_watchers, static)
#define RB_FIND(name, x, y)     name##_RB_FIND(x, y)

static struct watcher_root watchers;
static void libuv_rb_find_build(void)
{
    for (uint32_t entry = 0; entry < entries; entry++) {
        struct watcher *one = take(sizeof *one), **place = &RB_ROOT(&watchers);
        one->wd = (uint32_t)scramble(key_of(entry));
        one->value = entry;
        while (*place) {
            place = compare_watchers(one, *place) < 0 ? &RB_LEFT(*place, tree_entry) : &RB_RIGHT(*place, tree_entry);
        }
        *place = one;
    }
}
static uint64_t libuv_rb_find(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        struct watcher find = {.wd = (uint32_t)scramble(keys[i])};
        const struct watcher *found = RB_FIND(watcher_root, &watchers, &find);
        answers[i] = found ? found->value : UINT64_MAX;
    }
    return 0;
}

MAIN(LOOKUP(libuv_rb_find))
