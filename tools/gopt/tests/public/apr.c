/*
 * Lookups of Apache Portable Runtime 1.7.2: tables/apr_hash.c, tables/apr_skiplist.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/* Licensed to the Apache Software Foundation (ASF) under one or more
 * contributor license agreements.  See the NOTICE file distributed with
 * this work for additional information regarding copyright ownership.
 * The ASF licenses this file to You under the Apache License, Version 2.0
 * (the "License"); you may not use this file except in compliance with
 * the License.  You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */
#include "public.h"

#include <stddef.h>
typedef ptrdiff_t apr_ssize_t;
typedef struct apr_hash_entry_t apr_hash_entry_t;
struct apr_hash_entry_t {
    apr_hash_entry_t *next;
    unsigned int hash;
    const void *key;
    apr_ssize_t klen;
    const void *val;
};
typedef struct apr_hash_t {
    apr_hash_entry_t **array;
    unsigned int count, max, seed;
} apr_hash_t;
static unsigned int hashfunc_default(const char *key, apr_ssize_t *klen, unsigned int seed)
{
    uint32_t word;
    memcpy(&word, key, sizeof word);
    return (unsigned int)scramble(word ^ seed ^ (uint64_t)*klen);
}

static apr_hash_entry_t **find_entry(apr_hash_t *ht,
                                     const void *key,
                                     apr_ssize_t klen,
                                     const void *val)
{
    apr_hash_entry_t **hep, *he;
    unsigned int hash;

        hash = hashfunc_default(key, &klen, ht->seed);

    g_expensive(&ht->array[hash & ht->max]);
    /* scan linked list */
    for (hep = &ht->array[hash & ht->max], he = *hep;
         he; hep = &he->next, he = *hep) {
        g_expensive(he);
        if (he->hash == hash
            && he->klen == klen
            && memcmp(he->key, key, klen) == 0)
            break;
    }
    if (he || !val)
        return hep;

    return NULL;
}

typedef struct apr_skiplistnode apr_skiplistnode;
struct apr_skiplistnode {
    void *data;
    apr_skiplistnode *next;
    apr_skiplistnode *down;
};
typedef struct apr_skiplist {
    apr_skiplistnode *top;
} apr_skiplist;
static int compare(const void *one, const void *two)
{
    const uint64_t x = *(const uint64_t *)one, y = *(const uint64_t *)two;
    return x < y ? -1 : x > y;
}
/* The list has one order, so that the call has one target. */
#define apr_skiplist_compare int
#define comp(one, two) compare(one, two)

static int skiplisti_find_compare(apr_skiplist *sl, void *data,
                                  apr_skiplistnode **ret,
                                  apr_skiplist_compare unused,
                                  int last)
{
    int count = 0;
    apr_skiplistnode *m, *found = NULL;
    for (m = sl->top; m; count++) {
        g_expensive(m->next);
        if (m->next) {
            int compared = comp(data, m->next->data);
            if (compared == 0) {
                found = m = m->next;
                if (!last) {
                    break;
                }
                continue;
            }
            if (compared > 0) {
                m = m->next;
                continue;
            }
        }
        m = m->down;
    }
    if (found) {
        while (found->down) {
            found = found->down;
        }
        *ret = found;
    }
    else {
        *ret = NULL;
    }
    return count;
}

static apr_hash_t hash;
static void apr_hash_build(void)
{
    hash.max = power_of_two(entries) - 1;
    hash.array = take((hash.max + 1ull) * sizeof *hash.array);
    for (uint32_t entry = 0; entry < entries; entry++) {
        apr_hash_entry_t *he = take(sizeof *he);
        uint32_t *key = take(sizeof *key);
        *key = key_of(entry);
        *he = (apr_hash_entry_t){.key = key, .klen = sizeof *key, .val = (void *)(uintptr_t)(entry + 1)};
        he->hash = hashfunc_default((const char *)key, &he->klen, hash.seed);
        he->next = hash.array[he->hash & hash.max];
        hash.array[he->hash & hash.max] = he;
    }
}
static uint64_t apr_hash(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        apr_hash_entry_t **he = find_entry(&hash, &keys[i], sizeof keys[i], NULL);
        answers[i] = *he ? (uintptr_t)(*he)->val : 0;
    }
    return 0;
}

static apr_skiplist list;
static void apr_skiplist_build(void)
{
    apr_skiplistnode *first = NULL;
    for (uint32_t level = 0; level < 16; level++) {
        apr_skiplistnode *head = take(sizeof *head), *last = head;
        apr_skiplistnode *below = first ? first->next : NULL;
        head->down = first;
        /* The lowest level has all entries in order, each higher one every fourth of them. */
        for (uint32_t entry = 0; level == 0 ? entry < entries : below != NULL; entry++) {
            if (level == 0 || entry % 4 == 0) {
                last = last->next = take(sizeof *last);
                last->down = below;
                if (level == 0) {
                    uint64_t *key = take(sizeof *key);
                    *key = entry * 2ull;
                    last->data = key;
                } else {
                    last->data = below->data;
                }
            }
            below = below ? below->next : NULL;
        }
        first = head;
    }
    list.top = first;
}
static uint64_t apr_skiplist_find(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        uint64_t key = keys[i] % (2 * entries);
        apr_skiplistnode *found;
        skiplisti_find_compare(&list, &key, &found, 0, 0);
        answers[i] = found ? *(uint64_t *)found->data : 0;
    }
    return 0;
}

#define apr_skiplist_find_build apr_skiplist_build
MAIN(LOOKUP(apr_hash), LOOKUP(apr_skiplist_find))
