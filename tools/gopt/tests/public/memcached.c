/*
 * Lookups of memcached 1.6.18: assoc.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/*
 * Copyright (c) 2003, Danga Interactive, Inc.
 * All rights reserved.
 *
 * Redistribution and use in source and binary forms, with or without
 * modification, are permitted provided that the following conditions are
 * met:
 *
 *     * Redistributions of source code must retain the above copyright
 * notice, this list of conditions and the following disclaimer.
 *
 *     * Redistributions in binary form must reproduce the above
 * copyright notice, this list of conditions and the following disclaimer
 * in the documentation and/or other materials provided with the
 * distribution.
 *
 *     * Neither the name of the Danga Interactive nor the names of its
 * contributors may be used to endorse or promote products derived from
 * this software without specific prior written permission.
 *
 * THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS
 * "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT
 * LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR
 * A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT
 * OWNER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
 * SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT
 * LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE,
 * DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY
 * THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT
 * (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
 * OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
 */
#include "public.h"

typedef struct _stritem {
    struct _stritem *h_next;
    uint64_t value;
    uint8_t nkey;
    char data[];
} item;
#define ITEM_key(item) ((item)->data)
#define hashsize(n) ((uint64_t)1<<(n))
#define hashmask(n) (hashsize(n)-1)
#define MEMCACHED_ASSOC_FIND(key, nkey, depth)
static unsigned int hashpower;
static item **primary_hashtable, **old_hashtable;
static int expanding;
static uint64_t expand_bucket;

static item *assoc_find(const char *key, const size_t nkey, const uint32_t hv) {
    item *it;
    g_expensive(&primary_hashtable[hv & hashmask(hashpower)]);
    uint64_t oldbucket;

    if (expanding &&
        (oldbucket = (hv & hashmask(hashpower - 1))) >= expand_bucket)
    {
        it = old_hashtable[oldbucket];
    } else {
        it = primary_hashtable[hv & hashmask(hashpower)];
    }

    item *ret = NULL;
#ifdef ENABLE_DTRACE
    int depth = 0;
#endif
    while (it) {
        g_expensive(it);
        if ((nkey == it->nkey) && (memcmp(key, ITEM_key(it), nkey) == 0)) {
            ret = it;
            break;
        }
        it = it->h_next;
#ifdef ENABLE_DTRACE
        ++depth;
#endif
    }
    MEMCACHED_ASSOC_FIND(key, nkey, depth);
    return ret;
}

static void memcached_assoc_build(void)
{
    hashpower = 4;
    while (hashsize(hashpower) < entries) {
        hashpower++;
    }
    primary_hashtable = take(hashsize(hashpower) * sizeof(item *));
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint32_t key = key_of(entry);
        item *it = take(sizeof *it + sizeof key);
        it->nkey = sizeof key;
        it->value = entry;
        memcpy(ITEM_key(it), &key, sizeof key);
        item **head = &primary_hashtable[(uint32_t)scramble(key) & hashmask(hashpower)];
        it->h_next = *head;
        *head = it;
    }
}
static uint64_t memcached_assoc(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        item *it = assoc_find((const char *)&keys[i], sizeof keys[i], (uint32_t)scramble(keys[i]));
        answers[i] = it ? it->value : UINT64_MAX;
    }
    return 0;
}

MAIN(LOOKUP(memcached_assoc))
