/*
 * Lookups of Redis 7.0.15: src/dict.c, src/t_zset.c, src/server.h.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/* Hash Tables Implementation.
 *
 * This file implements in memory hash tables with insert/del/replace/find/
 * get-random-element operations. Hash tables will auto resize if needed
 * tables of power of two in size are used, collisions are handled by
 * chaining. See the source code for more information... :)
 *
 * Copyright (c) 2006-2012, Salvatore Sanfilippo <antirez at gmail dot com>
 * All rights reserved.
 *
 * Redistribution and use in source and binary forms, with or without
 * modification, are permitted provided that the following conditions are met:
 *
 *   * Redistributions of source code must retain the above copyright notice,
 *     this list of conditions and the following disclaimer.
 *   * Redistributions in binary form must reproduce the above copyright
 *     notice, this list of conditions and the following disclaimer in the
 *     documentation and/or other materials provided with the distribution.
 *   * Neither the name of Redis nor the names of its contributors may be used
 *     to endorse or promote products derived from this software without
 *     specific prior written permission.
 *
 * THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS"
 * AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE
 * IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE
 * ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT OWNER OR CONTRIBUTORS BE
 * LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR
 * CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF
 * SUBSTITUTE GOODS OR SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS
 * INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN
 * CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE)
 * ARISING IN ANY WAY OUT OF THE USE OF THIS SOFTWARE, EVEN IF ADVISED OF THE
 * POSSIBILITY OF SUCH DAMAGE.
 */
#include "public.h"

typedef struct dictEntry {
    void *key;
    union {
        void *val;
        uint64_t u64;
    } v;
    struct dictEntry *next;
} dictEntry;
typedef struct dict {
    dictEntry **ht_table[2];
    unsigned long ht_used[2];
    long rehashidx;
    signed char ht_size_exp[2];
} dict;
#define DICTHT_SIZE(exp) ((exp) == -1 ? 0 : (unsigned long)1<<(exp))
#define DICTHT_SIZE_MASK(exp) ((exp) == -1 ? 0 : (DICTHT_SIZE(exp))-1)
#define dictSize(d) ((d)->ht_used[0]+(d)->ht_used[1])
#define dictIsRehashing(d) ((d)->rehashidx != -1)
#define dictHashKey(d, key) scramble((uint64_t)(uintptr_t)(key))
#define dictCompareKeys(d, key1, key2) ((key1) == (key2))
#define _dictRehashStep(d)

static dictEntry *dictFind(dict *d, const void *key)
{
    dictEntry *he;
    uint64_t h, idx, table;

    if (dictSize(d) == 0) return NULL; /* dict is empty */
    if (dictIsRehashing(d)) _dictRehashStep(d);
    h = dictHashKey(d, key);
    for (table = 0; table <= 1; table++) {
        idx = h & DICTHT_SIZE_MASK(d->ht_size_exp[table]);
        g_expensive(&d->ht_table[table][idx]);
        he = d->ht_table[table][idx];
        while(he) {
            g_expensive(he);
            if (key==he->key || dictCompareKeys(d, key, he->key))
                return he;
            he = he->next;
        }
        if (!dictIsRehashing(d)) return NULL;
    }
    return NULL;
}

typedef uint32_t sds;
static int sdscmp(sds one, sds two)
{
    return one < two ? -1 : one > two;
}
#define ZSKIPLIST_MAXLEVEL 32
typedef struct zskiplistNode {
    sds ele;
    double score;
    struct zskiplistNode *backward;
    struct zskiplistLevel {
        struct zskiplistNode *forward;
        unsigned long span;
    } level[];
} zskiplistNode;
typedef struct zskiplist {
    struct zskiplistNode *header, *tail;
    unsigned long length;
    int level;
} zskiplist;
typedef struct {
    double min, max;
    int minex, maxex;
} zrangespec;
#define serverAssert(e) ((void)0)
static int zslValueGteMin(double value, zrangespec *spec)
{
    return spec->minex ? (value > spec->min) : (value >= spec->min);
}
static int zslValueLteMax(double value, zrangespec *spec)
{
    return spec->maxex ? (value < spec->max) : (value <= spec->max);
}
#define zslIsInRange(zsl, range) ((zsl)->header->level[0].forward != NULL)

static unsigned long zslGetRank(zskiplist *zsl, double score, sds ele) {
    zskiplistNode *x;
    unsigned long rank = 0;
    int i;

    x = zsl->header;
    for (i = zsl->level-1; i >= 0; i--) {
        g_expensive(x->level[i].forward);
        while (x->level[i].forward &&
            (x->level[i].forward->score < score ||
                (x->level[i].forward->score == score &&
                sdscmp(x->level[i].forward->ele,ele) <= 0))) {
            rank += x->level[i].span;
            x = x->level[i].forward;
            g_expensive(x->level[i].forward);
        }

        /* x might be equal to zsl->header, so test if obj is non-NULL */
        if (x->ele && x->score == score && sdscmp(x->ele,ele) == 0) {
            return rank;
        }
    }
    return 0;
}

static zskiplistNode *zslFirstInRange(zskiplist *zsl, zrangespec *range) {
    zskiplistNode *x;
    int i;

    /* If everything is out of range, return early. */
    if (!zslIsInRange(zsl,range)) return NULL;

    x = zsl->header;
    for (i = zsl->level-1; i >= 0; i--) {
        /* Go forward while *OUT* of range. */
        g_expensive(x->level[i].forward);
        while (x->level[i].forward &&
            !zslValueGteMin(x->level[i].forward->score,range)) {
                x = x->level[i].forward;
                g_expensive(x->level[i].forward);
        }
    }

    /* This is an inner range, so the next node cannot be NULL. */
    x = x->level[0].forward;
    serverAssert(x != NULL);

    /* Check if score <= max. */
    if (!zslValueLteMax(x->score,range)) return NULL;
    return x;
}

static dict own_dict;
static void redis_dict_build(void)
{
    own_dict.rehashidx = -1;
    own_dict.ht_size_exp[1] = -1;
    while (DICTHT_SIZE(own_dict.ht_size_exp[0]) < entries) {
        own_dict.ht_size_exp[0]++;
    }
    own_dict.ht_table[0] = take(DICTHT_SIZE(own_dict.ht_size_exp[0]) * sizeof(dictEntry *));
    own_dict.ht_used[0] = entries;
    dictEntry *all = take(entries * sizeof *all);
    for (uint32_t entry = 0; entry < entries; entry++) {
        all[entry].key = (void *)(uintptr_t)key_of(entry);
        all[entry].v.u64 = entry;
        dictEntry **head = &own_dict.ht_table[0][dictHashKey(&own_dict, all[entry].key) &
                                                 DICTHT_SIZE_MASK(own_dict.ht_size_exp[0])];
        all[entry].next = *head;
        *head = &all[entry];
    }
}
static uint64_t redis_dict(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        dictEntry *found = dictFind(&own_dict, (const void *)(uintptr_t)keys[i]);
        answers[i] = found ? found->v.u64 : UINT64_MAX;
    }
    return 0;
}

static zskiplist own_list;
static void redis_rank_build(void)
{
    zskiplistNode **all = take(entries * sizeof *all);
    zskiplistNode *last[ZSKIPLIST_MAXLEVEL];
    unsigned long at[ZSKIPLIST_MAXLEVEL] = {0};
    own_list.level = 1;
    own_list.header = take(sizeof(zskiplistNode) + ZSKIPLIST_MAXLEVEL * sizeof(struct zskiplistLevel));
    own_list.header->ele = 0;
    own_list.header->score = -1;
    for (int i = 0; i < ZSKIPLIST_MAXLEVEL; i++) {
        last[i] = own_list.header;
    }
    /* The order of the addresses differs from that of the scores. */
    for (uint32_t entry = 0; entry < entries; entry++) {
        int levels = 1;
        for (uint64_t bits = scramble(entry); (bits & 3) == 0 && levels < ZSKIPLIST_MAXLEVEL; bits >>= 2) {
            levels++;
        }
        const uint32_t rank = (uint32_t)((uint64_t)entry * 2654435761u % entries);
        all[rank] = take(sizeof(zskiplistNode) + (size_t)levels * sizeof(struct zskiplistLevel));
        all[rank]->ele = (sds)levels;
    }
    for (uint32_t rank = 0, place = 1; rank < entries; rank++, place++) {
        zskiplistNode *node = all[rank];
        const int levels = (int)node->ele;
        own_list.level = levels > own_list.level ? levels : own_list.level;
        node->score = rank;
        node->ele = rank * 3u + 1u;
        for (int i = 0; i < levels; i++) {
            last[i]->level[i].forward = node;
            last[i]->level[i].span = place - at[i];
            last[i] = node;
            at[i] = place;
        }
    }
}
static uint64_t redis_rank(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const uint32_t score = keys[i] % entries;
        answers[i] = zslGetRank(&own_list, score, score * 3u + 1u);
    }
    return 0;
}

static void redis_range_build(void)
{
}
static uint64_t redis_range(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        zrangespec range = {keys[i] % (entries - 1), keys[i] % (entries - 1) + 1.0, 1, 0};
        zskiplistNode *found = zslFirstInRange(&own_list, &range);
        answers[i] = found ? found->ele : UINT64_MAX;
    }
    return 0;
}

MAIN(LOOKUP(redis_dict), LOOKUP(redis_rank), LOOKUP(redis_range))
