/*
 * Lookups of Jansson 2.14: src/hashtable.c, src/hashtable.h.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/*
 * Copyright (c) 2009-2020 Petri Lehtinen <petri@digip.org>
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in
 * all copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN
 * THE SOFTWARE.
 */
#include "public.h"

#include <stddef.h>

typedef struct json_t json_t;
#define JSON_INLINE inline
#define container_of(ptr_, type_, member_) ((type_ *)((char *)ptr_ - offsetof(type_, member_)))
#define hashmask(n) (((size_t)1 << (n)) - 1)
struct hashtable_list {
    struct hashtable_list *prev;
    struct hashtable_list *next;
};

/* "pair" may be a bit confusing a name, but think of it as a
   key-value pair. In this case, it just encodes some extra data,
   too */
struct hashtable_pair {
    struct hashtable_list list;
    struct hashtable_list ordered_list;
    size_t hash;
    json_t *value;
    size_t key_len;
    char key[1];
};

struct hashtable_bucket {
    struct hashtable_list *first;
    struct hashtable_list *last;
};

typedef struct hashtable {
    size_t size;
    struct hashtable_bucket *buckets;
    size_t order; /* hashtable has pow(2, order) buckets */
    struct hashtable_list list;
    struct hashtable_list ordered_list;
} hashtable_t;

#define hashtable_key_to_iter(key_)                                                      \

typedef struct hashtable_list list_t;
typedef struct hashtable_pair pair_t;
typedef struct hashtable_bucket bucket_t;

#define list_to_pair(list_) container_of(list_, pair_t, list)
static size_t hash_str(const char *key, size_t len)
{
    uint64_t hash = len;
    for (size_t i = 0; i < len; i++) {
        hash = scramble(hash ^ (unsigned char)key[i]);
    }
    return hash;
}

static JSON_INLINE int bucket_is_empty(hashtable_t *hashtable, bucket_t *bucket) {
    return bucket->first == &hashtable->list && bucket->first == bucket->last;
}

static pair_t *hashtable_find_pair(hashtable_t *hashtable, bucket_t *bucket,
                                   const char *key, size_t key_len, size_t hash) {
    list_t *list;
    pair_t *pair;

    g_expensive(bucket);
    if (bucket_is_empty(hashtable, bucket))
        return NULL;

    list = bucket->first;
    while (1) {
        pair = list_to_pair(list);
        g_expensive(pair);
        if (pair->hash == hash && pair->key_len == key_len &&
            memcmp(pair->key, key, key_len) == 0)
            return pair;

        if (list == bucket->last)
            break;

        list = list->next;
    }

    return NULL;
}

static void *hashtable_get(hashtable_t *hashtable, const char *key, size_t key_len) {
    pair_t *pair;
    size_t hash;
    bucket_t *bucket;

    hash = hash_str(key, key_len);
    bucket = &hashtable->buckets[hash & hashmask(hashtable->order)];

    pair = hashtable_find_pair(hashtable, bucket, key, key_len, hash);
    if (!pair)
        return NULL;

    return pair->value;
}

static hashtable_t objects;
static void jansson_get_build(void)
{
    while (hashmask(objects.order) < entries) {
        objects.order++;
    }
    objects.buckets = take((hashmask(objects.order) + 1) * sizeof *objects.buckets);
    for (size_t i = 0; i <= hashmask(objects.order); i++) {
        objects.buckets[i] = (bucket_t){&objects.list, &objects.list};
    }
    for (uint32_t entry = 0; entry < entries; entry++) {
        pair_t *pair = take(sizeof *pair + sizeof(uint32_t));
        const uint32_t key = key_of(entry);
        memcpy(pair->key, &key, sizeof key);
        pair->key_len = sizeof key;
        pair->hash = hash_str(pair->key, pair->key_len);
        pair->value = (json_t *)(uintptr_t)(entry + 1);
        bucket_t *bucket = &objects.buckets[pair->hash & hashmask(objects.order)];
        pair->list.next = bucket->first;
        if (bucket_is_empty(&objects, bucket)) {
            bucket->last = &pair->list;
        }
        bucket->first = &pair->list;
    }
}
static uint64_t jansson_get(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        answers[i] = (uintptr_t)hashtable_get(&objects, (const char *)&keys[i], sizeof keys[i]);
    }
    return 0;
}

MAIN(LOOKUP(jansson_get))
