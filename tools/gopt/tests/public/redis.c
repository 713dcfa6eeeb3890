/*
 * Lookups of Redis 7.0.15: src/dict.c, src/t_zset.c, src/server.h, src/intset.c, src/rax.c,
 * src/rax.h.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at
 * the end.
 */
/* Hash Tables Implementation.
 *
 * This file implements in memory hash tables with insert/del/replace/find/
 * get-random-element operations. Hash tables will auto resize if needed
 * tables of power of two in size are used, collisions are handled by
 * chaining. See the source code for more information... :)
 *
 * Copyright (c) 2006-2012, Salvatore Sanfilippo <antirez at gmail dot com>
 * Copyright (c) 2017-2019, Salvatore Sanfilippo <antirez at gmail dot com>
 * Copyright (c) 2009-2012, Pieter Noordhuis <pcnoordhuis at gmail dot com>
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

static zskiplistNode* zslGetElementByRank(zskiplist *zsl, unsigned long rank) {
    zskiplistNode *x;
    unsigned long traversed = 0;
    int i;

    x = zsl->header;
    for (i = zsl->level-1; i >= 0; i--) {
        g_expensive(x->level[i].forward);
        while (x->level[i].forward && (traversed + x->level[i].span) <= rank)
        {
            traversed += x->level[i].span;
            x = x->level[i].forward;
            g_expensive(x->level[i].forward);
        }
        if (traversed == rank) {
            return x;
        }
    }
    return NULL;
}

static void redis_element_build(void)
{
}
static uint64_t redis_element(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        zskiplistNode *found = zslGetElementByRank(&own_list, keys[i] % (entries + 9));
        answers[i] = found ? found->ele : UINT64_MAX;
    }
    return 0;
}

#define intrev32ifbe(v) (v)
#define memrev16ifbe(p) ((void)(0))
#define memrev32ifbe(p) ((void)(0))
#define memrev64ifbe(p) ((void)(0))
#define INTSET_ENC_INT16 (sizeof(int16_t))
#define INTSET_ENC_INT32 (sizeof(int32_t))
#define INTSET_ENC_INT64 (sizeof(int64_t))
typedef struct intset {
    uint32_t encoding;
    uint32_t length;
    int8_t contents[];
} intset;

static uint8_t _intsetValueEncoding(int64_t v) {
    if (v < INT32_MIN || v > INT32_MAX)
        return INTSET_ENC_INT64;
    else if (v < INT16_MIN || v > INT16_MAX)
        return INTSET_ENC_INT32;
    else
        return INTSET_ENC_INT16;
}

static int64_t _intsetGetEncoded(intset *is, int pos, uint8_t enc) {
    int64_t v64;
    int32_t v32;
    int16_t v16;

    if (enc == INTSET_ENC_INT64) {
        memcpy(&v64,((int64_t*)is->contents)+pos,sizeof(v64));
        memrev64ifbe(&v64);
        return v64;
    } else if (enc == INTSET_ENC_INT32) {
        memcpy(&v32,((int32_t*)is->contents)+pos,sizeof(v32));
        memrev32ifbe(&v32);
        return v32;
    } else {
        memcpy(&v16,((int16_t*)is->contents)+pos,sizeof(v16));
        memrev16ifbe(&v16);
        return v16;
    }
}

static int64_t _intsetGet(intset *is, int pos) {
    return _intsetGetEncoded(is,pos,intrev32ifbe(is->encoding));
}

static uint8_t intsetSearch(intset *is, int64_t value, uint32_t *pos) {
    int min = 0, max = intrev32ifbe(is->length)-1, mid = -1;
    int64_t cur = -1;

    /* The value can never be found when the set is empty */
    if (intrev32ifbe(is->length) == 0) {
        if (pos) *pos = 0;
        return 0;
    } else {
        /* Check for the case where we know we cannot find the value,
         * but do know the insert position. */
        if (value > _intsetGet(is,max)) {
            if (pos) *pos = intrev32ifbe(is->length);
            return 0;
        } else if (value < _intsetGet(is,0)) {
            if (pos) *pos = 0;
            return 0;
        }
    }

    while(max >= min) {
        mid = ((unsigned int)min + (unsigned int)max) >> 1;
        g_expensive(&((int64_t*)is->contents)[mid]);
        cur = _intsetGet(is,mid);
        if (value > cur) {
            min = mid+1;
        } else if (value < cur) {
            max = mid-1;
        } else {
            break;
        }
    }

    if (value == cur) {
        if (pos) *pos = mid;
        return 1;
    } else {
        if (pos) *pos = min;
        return 0;
    }
}

static uint8_t intsetFind(intset *is, int64_t value) {
    uint8_t valenc = _intsetValueEncoding(value);
    return valenc <= intrev32ifbe(is->encoding) && intsetSearch(is,value,NULL);
}

static intset *own_set;
static int by_value(const void *one, const void *two)
{
    const int64_t a = *(const int64_t *)one, b = *(const int64_t *)two;
    return (a > b) - (a < b);
}
static void redis_intset_build(void)
{
    own_set = take(sizeof *own_set + entries * sizeof(int64_t));
    own_set->encoding = INTSET_ENC_INT64;
    own_set->length = entries;
    int64_t *values = (int64_t *)own_set->contents;
    for (uint32_t entry = 0; entry < entries; entry++) {
        values[entry] = (int64_t)key_of(entry) << 20;
    }
    qsort(values, entries, sizeof *values, by_value);
}
static uint64_t redis_intset(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        answers[i] = intsetFind(own_set, (int64_t)keys[i] << 20);
    }
    return 0;
}

#define debugnode(msg, n)
#define debugf(...)
typedef struct raxNode {
    uint32_t iskey:1;
    uint32_t isnull:1;
    uint32_t iscompr:1;
    uint32_t size:29;
    unsigned char data[];
} raxNode;
typedef struct rax {
    raxNode *head;
} rax;
#define raxPadding(nodesize) ((sizeof(void*)-((nodesize+4) % sizeof(void*))) & (sizeof(void*)-1))

#define raxNodeLastChildPtr(n) ((raxNode**) ( \
    ((char*)(n)) + \
    raxNodeCurrentLength(n) - \
    sizeof(raxNode*) - \
    (((n)->iskey && !(n)->isnull) ? sizeof(void*) : 0) \
))

#define raxNodeFirstChildPtr(n) ((raxNode**) ( \
    (n)->data + \
    (n)->size + \
    raxPadding((n)->size)))

#define raxNodeCurrentLength(n) ( \
    sizeof(raxNode)+(n)->size+ \
    raxPadding((n)->size)+ \
    ((n)->iscompr ? sizeof(raxNode*) : sizeof(raxNode*)*(n)->size)+ \
    (((n)->iskey && !(n)->isnull)*sizeof(void*)) \
)

static char raxNotFoundBytes[1];
#define raxNotFound ((void *)raxNotFoundBytes)

static void *raxGetData(raxNode *n) {
    if (n->isnull) return NULL;
    void **ndata =(void**)((char*)n+raxNodeCurrentLength(n)-sizeof(void*));
    void *data;
    memcpy(&data,ndata,sizeof(data));
    return data;
}

static inline size_t raxLowWalk(rax *rax, unsigned char *s, size_t len, raxNode **stopnode, raxNode ***plink, int *splitpos) {
    raxNode *h = rax->head;
    raxNode **parentlink = &rax->head;

    size_t i = 0; /* Position in the string. */
    size_t j = 0; /* Position in the node children (or bytes if compressed).*/
    while(h->size && i < len) {
        debugnode("Lookup current node",h);
        g_expensive(h, 16);
        unsigned char *v = h->data;

        if (h->iscompr) {
            for (j = 0; j < h->size && i < len; j++, i++) {
                if (v[j] != s[i]) break;
            }
            if (j != h->size) break;
        } else {
            /* Even when h->size is large, linear scan provides good
             * performances compared to other approaches that are in theory
             * more sounding, like performing a binary search. */
            for (j = 0; j < h->size; j++) {
                if (v[j] == s[i]) break;
            }
            if (j == h->size) break;
            i++;
        }

        raxNode **children = raxNodeFirstChildPtr(h);
        if (h->iscompr) j = 0; /* Compressed node only child is at index 0. */
        memcpy(&h,children+j,sizeof(h));
        parentlink = children+j;
        j = 0; /* If the new node is non compressed and we do not
                  iterate again (since i == len) set the split
                  position to 0 to signal this node represents
                  the searched key. */
    }
    debugnode("Lookup stop node is",h);
    if (stopnode) *stopnode = h;
    if (plink) *plink = parentlink;
    if (splitpos && h->iscompr) *splitpos = j;
    return i;
}

static void *raxFind(rax *rax, unsigned char *s, size_t len) {
    raxNode *h;

    debugf("### Lookup: %.*s\n", (int)len, s);
    int splitpos = 0;
    size_t i = raxLowWalk(rax,s,len,&h,NULL,&splitpos);
    if (i != len || (h->iscompr && splitpos != 0) || !h->iskey)
        return raxNotFound;
    return raxGetData(h);
}

/* Returns the node of some sorted keys of 8 characters, which have the same first characters. */
static raxNode *rax_node(unsigned char (*sorted)[8], uint32_t first, uint32_t end, unsigned depth)
{
    unsigned same = depth;
    uint32_t children = 0;
    while (same < 8 && sorted[first][same] == sorted[end - 1][same]) {
        same++;
    }
    raxNode probe = {.iskey = depth == 8, .iscompr = same > depth + 1};
    for (uint32_t i = first; i < end && depth < 8; i++) {
        children += i == first || sorted[i][depth] != sorted[i - 1][depth];
    }
    probe.size = (uint32_t)(probe.iscompr ? same - depth : children) & 0x1fffffff;
    raxNode *node = take(raxNodeCurrentLength(&probe));
    *node = probe;
    raxNode **place = raxNodeFirstChildPtr(node);
    if (probe.iskey) {
        void *value = sorted[first];
        memcpy((char *)node + raxNodeCurrentLength(node) - sizeof value, &value, sizeof value);
    } else if (probe.iscompr) {
        memcpy(node->data, sorted[first] + depth, probe.size);
        raxNode *child = rax_node(sorted, first, end, same);
        memcpy(place, &child, sizeof child);
    } else {
        for (uint32_t child = 0, begin = first, next; child < children; child++, begin = next) {
            for (next = begin; next < end && sorted[next][depth] == sorted[begin][depth]; next++) {
            }
            node->data[child] = sorted[begin][depth];
            raxNode *below = rax_node(sorted, begin, next, depth + 1);
            memcpy(place + child, &below, sizeof below);
        }
    }
    return node;
}
static int by_text(const void *one, const void *two)
{
    return memcmp(one, two, 8);
}
static rax own_rax;
static unsigned char (*rax_keys)[8], (*rax_queries)[8];
static void redis_rax_build(void)
{
    char text[12];
    rax_keys = take(entries * 8ull);
    rax_queries = take(queries * 8ull);
    for (uint32_t entry = 0; entry < entries; entry++) {
        sprintf(text, "%08x", (unsigned)key_of(entry));
        memcpy(rax_keys[entry], text, 8);
    }
    for (uint32_t i = 0; i < queries; i++) {
        sprintf(text, "%08x", (unsigned)keys[i]);
        memcpy(rax_queries[i], text, 8);
    }
    qsort(rax_keys, entries, 8, by_text);
    own_rax.head = rax_node(rax_keys, 0, entries, 0);
}
static uint64_t redis_rax(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const unsigned char *found = raxFind(&own_rax, rax_queries[i], 8);
        answers[i] = found == raxNotFound ? UINT64_MAX : (uint64_t)found[5] << 8 | found[7];
    }
    return 0;
}

MAIN(LOOKUP(redis_dict), LOOKUP(redis_rank), LOOKUP(redis_range), LOOKUP(redis_element), LOOKUP(redis_intset),
     LOOKUP(redis_rax))
