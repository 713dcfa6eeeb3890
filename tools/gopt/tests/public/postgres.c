/*
 * Lookups of PostgreSQL 15.18: src/include/lib/simplehash.h, src/backend/lib/bloomfilter.c,
 * integerset.c, src/backend/utils/hash/dynahash.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/*
 * PostgreSQL Database Management System
 * (also known as Postgres, formerly known as Postgres95)
 *
 * Portions Copyright (c) 1996-2026, PostgreSQL Global Development Group
 *
 * Portions Copyright (c) 1994, The Regents of the University of California
 *
 * Permission to use, copy, modify, and distribute this software and its
 * documentation for any purpose, without fee, and without a written agreement
 * is hereby granted, provided that the above copyright notice and this
 * paragraph and the following two paragraphs appear in all copies.
 *
 * IN NO EVENT SHALL THE UNIVERSITY OF CALIFORNIA BE LIABLE TO ANY PARTY FOR
 * DIRECT, INDIRECT, SPECIAL, INCIDENTAL, OR CONSEQUENTIAL DAMAGES, INCLUDING
 * LOST PROFITS, ARISING OUT OF THE USE OF THIS SOFTWARE AND ITS
 * DOCUMENTATION, EVEN IF THE UNIVERSITY OF CALIFORNIA HAS BEEN ADVISED OF THE
 * POSSIBILITY OF SUCH DAMAGE.
 *
 * THE UNIVERSITY OF CALIFORNIA SPECIFICALLY DISCLAIMS ANY WARRANTIES,
 * INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY
 * AND FITNESS FOR A PARTICULAR PURPOSE.  THE SOFTWARE PROVIDED HEREUNDER IS
 * ON AN "AS IS" BASIS, AND THE UNIVERSITY OF CALIFORNIA HAS NO OBLIGATIONS TO
 * PROVIDE MAINTENANCE, SUPPORT, UPDATES, ENHANCEMENTS, OR MODIFICATIONS.
 */
#include "public.h"

#include <stdbool.h>
typedef uint32_t uint32;
typedef uint64_t uint64;
#define Assert(condition) ((void)0)
#define UINT64CONST(x) (x##ull)
#define PG_UINT32_MAX (0xffffffffu)
#define DatumGetUInt64(x) (x)
#define SH_STATUS_EMPTY 0
#define SH_STATUS_IN_USE 1
#define SH_LOOKUP_HASH_INTERNAL join_lookup_hash_internal
#define SH_TYPE join_hash
#define SH_KEY_TYPE uint32
#define SH_ELEMENT_TYPE join_row
#define SH_COMPARE_KEYS(tb, ahash, akey, b) ((akey) == (b)->key)
#define SH_INITIAL_BUCKET(tb, hash) ((hash) & (tb)->sizemask)
#define SH_NEXT(tb, curelem, startelem) (((curelem) + 1) & (tb)->sizemask)
typedef struct join_row {
    uint32 key;
    uint32 status;
    uint64 value;
} join_row;
typedef struct join_hash {
    uint32 sizemask;
    join_row *data;
} join_hash;

static inline SH_ELEMENT_TYPE *
SH_LOOKUP_HASH_INTERNAL(SH_TYPE * tb, SH_KEY_TYPE key, uint32 hash)
{
    const uint32 startelem = SH_INITIAL_BUCKET(tb, hash);
    uint32        curelem = startelem;

    while (true)
    {
        SH_ELEMENT_TYPE *entry = &tb->data[curelem];

        g_expensive(entry);
        if (entry->status == SH_STATUS_EMPTY)
        {
            return NULL;
        }

        Assert(entry->status == SH_STATUS_IN_USE);

        if (SH_COMPARE_KEYS(tb, hash, key, entry))
            return entry;

        /*
         * TODO: we could stop search based on distance. If the current
         * buckets's distance-from-optimal is smaller than what we've skipped
         * already, the entry doesn't exist. Probably only do so if
         * SH_STORE_HASH is defined, to avoid re-computing hashes?
         */

        curelem = SH_NEXT(tb, curelem, startelem);
    }
}

#define MAX_HASH_FUNCS 10
#define FLEXIBLE_ARRAY_MEMBER
typedef struct bloom_filter {
    int k_hash_funcs;
    uint64 seed;
    uint64 m;
    unsigned char bitset[FLEXIBLE_ARRAY_MEMBER];
} bloom_filter;
static uint64 hash_any_extended(const unsigned char *k, int keylen, uint64 seed)
{
    uint64 hash = seed;
    for (int i = 0; i < keylen; i++) {
        hash = scramble(hash ^ k[i]);
    }
    return hash;
}

static inline uint32
mod_m(uint32 val, uint64 m)
{
    Assert(m <= PG_UINT32_MAX + UINT64CONST(1));
    Assert(((m - 1) & m) == 0);

    return val & (m - 1);
}

static void
k_hashes(bloom_filter *filter, uint32 *hashes, unsigned char *elem, size_t len)
{
    uint64        hash;
    uint32        x,
                y;
    uint64        m;
    int            i;

    /* Use 64-bit hashing to get two independent 32-bit hashes */
    hash = DatumGetUInt64(hash_any_extended(elem, len, filter->seed));
    x = (uint32) hash;
    y = (uint32) (hash >> 32);
    m = filter->m;

    x = mod_m(x, m);
    y = mod_m(y, m);

    /* Accumulate hashes */
    hashes[0] = x;
    for (i = 1; i < filter->k_hash_funcs; i++)
    {
        x = mod_m(x + y, m);
        y = mod_m(y + i, m);

        hashes[i] = x;
    }
}

static bool
bloom_lacks_element(bloom_filter *filter, unsigned char *elem, size_t len)
{
    uint32        hashes[MAX_HASH_FUNCS];
    int            i;

    k_hashes(filter, hashes, elem, len);

    /* Map a bit-wise address to a byte-wise address + bit offset */
    for (i = 0; i < filter->k_hash_funcs; i++)
    {
        g_expensive(&filter->bitset[hashes[i] >> 3]);
        if (!(filter->bitset[hashes[i] >> 3] & (1 << (hashes[i] & 7))))
            return true;
    }

    return false;
}

static int
intset_binsrch_uint64(uint64 item, uint64 *arr, int arr_elems, bool nextkey)
{
    int            low,
                high,
                mid;

    low = 0;
    high = arr_elems;
    while (high > low)
    {
        mid = low + (high - low) / 2;

        g_expensive(&arr[mid]);
        if (nextkey)
        {
            if (item >= arr[mid])
                low = mid + 1;
            else
                high = mid;
        }
        else
        {
            if (item > arr[mid])
                low = mid + 1;
            else
                high = mid;
        }
    }

    return low;
}

static join_hash join;
static void postgres_simplehash_build(void)
{
    join.sizemask = power_of_two(entries * 2) - 1;
    join.data = take((join.sizemask + 1ull) * sizeof *join.data);
    for (uint32_t entry = 0; entry < entries; entry++) {
        uint32_t place = (uint32_t)scramble(key_of(entry)) & join.sizemask;
        while (join.data[place].status) {
            place = (place + 1) & join.sizemask;
        }
        join.data[place] = (join_row){key_of(entry), SH_STATUS_IN_USE, entry};
    }
}
static uint64_t postgres_simplehash(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const join_row *row = SH_LOOKUP_HASH_INTERNAL(&join, keys[i], (uint32)scramble(keys[i]));
        answers[i] = row ? row->value : UINT64_MAX;
    }
    return 0;
}

static bloom_filter *filter;
static void postgres_bloom_build(void)
{
    const uint64 bits = 8ull * power_of_two(entries) * 4;
    filter = take(sizeof *filter + bits / 8);
    filter->k_hash_funcs = 6;
    filter->m = bits;
    for (uint32_t entry = 0; entry < entries; entry++) {
        uint32 hashes[MAX_HASH_FUNCS];
        const uint32 key = key_of(entry);
        k_hashes(filter, hashes, (unsigned char *)&key, sizeof key);
        for (int i = 0; i < filter->k_hash_funcs; i++) {
            filter->bitset[hashes[i] >> 3] |= (unsigned char)(1 << (hashes[i] & 7));
        }
    }
}
static uint64_t postgres_bloom(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        answers[i] = bloom_lacks_element(filter, (unsigned char *)&keys[i], sizeof keys[i]);
    }
    return 0;
}

static uint64 *sorted;
static void postgres_binsrch_build(void)
{
    sorted = take(entries * sizeof *sorted);
    for (uint32_t entry = 0; entry < entries; entry++) {
        sorted[entry] = entry * (0x100000000ull / entries);
    }
}
static uint64_t postgres_binsrch(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        answers[i] = (uint64_t)intset_binsrch_uint64(keys[i], sorted, (int)entries, true);
    }
    return 0;
}

typedef uint8_t uint8;
typedef uint16_t uint16;
#define MAX_INTERNAL_ITEMS 64
#define MAX_LEAF_ITEMS 64
typedef struct intset_node intset_node;
typedef struct intset_leaf_node intset_leaf_node;
typedef struct intset_internal_node intset_internal_node;
/* Common structure of both leaf and internal nodes. */
struct intset_node
{
    uint16      level;          /* tree level of this node */
    uint16      num_items;      /* number of items in this node */
};

/* Internal node */
struct intset_internal_node
{
    /* common header, must match intset_node */
    uint16      level;          /* >= 1 on internal nodes */
    uint16      num_items;

    /*
     * 'values' is an array of key values, and 'downlinks' are pointers to
     * lower-level nodes, corresponding to the key values.
     */
    uint64      values[MAX_INTERNAL_ITEMS];
    intset_node *downlinks[MAX_INTERNAL_ITEMS];
};

/* Leaf node */
typedef struct
{
    uint64      first;          /* first integer in this item */
    uint64      codeword;       /* simple8b encoded differences from 'first' */
} leaf_item;

struct intset_leaf_node
{
    /* common header, must match intset_node */
    uint16      level;          /* 0 on leafs */
    uint16      num_items;

    intset_leaf_node *next;     /* right sibling, if any */

    leaf_item   items[MAX_LEAF_ITEMS];
};

typedef struct IntegerSet {
    int num_levels;
    intset_node *root;
} IntegerSet;
static const struct simple8b_mode
{
    uint8       bits_per_int;
    uint8       num_ints;
}           simple8b_modes[17] =

{
    {0, 240},                   /* mode  0: 240 zeroes */
    {0, 120},                   /* mode  1: 120 zeroes */
    {1, 60},                    /* mode  2: sixty 1-bit integers */
    {2, 30},                    /* mode  3: thirty 2-bit integers */
    {3, 20},                    /* mode  4: twenty 3-bit integers */
    {4, 15},                    /* mode  5: fifteen 4-bit integers */
    {5, 12},                    /* mode  6: twelve 5-bit integers */
    {6, 10},                    /* mode  7: ten 6-bit integers */
    {7, 8},                     /* mode  8: eight 7-bit integers (four bits
                                 * are wasted) */
    {8, 7},                     /* mode  9: seven 8-bit integers (four bits
                                 * are wasted) */
    {10, 6},                    /* mode 10: six 10-bit integers */
    {12, 5},                    /* mode 11: five 12-bit integers */
    {15, 4},                    /* mode 12: four 15-bit integers */
    {20, 3},                    /* mode 13: three 20-bit integers */
    {30, 2},                    /* mode 14: two 30-bit integers */
    {60, 1},                    /* mode 15: one 60-bit integer */

    {0, 0}                      /* sentinel value */
};

#define EMPTY_CODEWORD UINT64CONST(0x0FFFFFFFFFFFFFFF)

static bool
simple8b_contains(uint64 codeword, uint64 key, uint64 base)
{
    int         selector = (codeword >> 60);
    int         nints = simple8b_modes[selector].num_ints;
    int         bits = simple8b_modes[selector].bits_per_int;

    if (codeword == EMPTY_CODEWORD)
        return false;

    if (bits == 0)
    {
        /* Special handling for 0-bit cases. */
        return (key - base) <= nints;
    }
    else
    {
        uint64      mask = (UINT64CONST(1) << bits) - 1;
        uint64      curr_value;

        curr_value = base;
        for (int i = 0; i < nints; i++)
        {
            uint64      diff = codeword & mask;

            curr_value += 1 + diff;

            if (curr_value >= key)
            {
                if (curr_value == key)
                    return true;
                else
                    return false;
            }

            codeword >>= bits;
        }
    }
    return false;
}

static int
intset_binsrch_leaf(uint64 item, leaf_item *arr, int arr_elems, bool nextkey)
{
    int         low,
                high,
                mid;

    low = 0;
    high = arr_elems;
    while (high > low)
    {
        mid = low + (high - low) / 2;
        g_expensive(&arr[mid]);

        if (nextkey)
        {
            if (item >= arr[mid].first)
                low = mid + 1;
            else
                high = mid;
        }
        else
        {
            if (item > arr[mid].first)
                low = mid + 1;
            else
                high = mid;
        }
    }

    return low;
}

static bool
intset_is_member(IntegerSet *intset, uint64 x)
{
    intset_node *node;
    intset_leaf_node *leaf;
    int         level;
    int         itemno;
    leaf_item  *item;

    /*
     * Start from the root, and walk down the B-tree to find the right leaf
     * node.
     */
    if (!intset->root)
        return false;
    node = intset->root;
    for (level = intset->num_levels - 1; level > 0; level--)
    {
        intset_internal_node *n = (intset_internal_node *) node;

        Assert(node->level == level);

        itemno = intset_binsrch_uint64(x, n->values, n->num_items, true);
        if (itemno == 0)
            return false;
        node = n->downlinks[itemno - 1];
    }
    Assert(node->level == 0);
    leaf = (intset_leaf_node *) node;

    /*
     * Binary search to find the right item on the leaf page
     */
    itemno = intset_binsrch_leaf(x, leaf->items, leaf->num_items, true);
    if (itemno == 0)
        return false;
    item = &leaf->items[itemno - 1];

    /* Is this a match to the first value on the item? */
    if (item->first == x)
        return true;
    Assert(x > item->first);

    /* Is it in the packed codeword? */
    if (simple8b_contains(item->codeword, x, item->first))
        return true;

    return false;
}

static IntegerSet members;
static void postgres_member_build(void)
{
    /* Each item has a value, and two more in its codeword of mode 14. */
    const uint32_t items = entries / 3 + 1;
    const uint32_t leaves = (items + MAX_LEAF_ITEMS - 1) / MAX_LEAF_ITEMS;
    intset_node **level = take(leaves * sizeof *level);
    uint64 *lowest = take(leaves * sizeof *lowest);
    uint64 value = 0;
    for (uint32_t i = 0; i < items; i++) {
        intset_leaf_node *leaf = i % MAX_LEAF_ITEMS ? (intset_leaf_node *)level[i / MAX_LEAF_ITEMS] : take(sizeof *leaf);
        const uint64 first = scramble(i) % 5, second = scramble(i + 1) % 7;
        value += 3;
        if (i % MAX_LEAF_ITEMS == 0) {
            level[i / MAX_LEAF_ITEMS] = (intset_node *)leaf;
            lowest[i / MAX_LEAF_ITEMS] = value;
        }
        leaf->items[leaf->num_items++] = (leaf_item){value, 14ull << 60 | second << 30 | first};
        value += first + second + 2;
    }
    members.num_levels = 1;
    for (uint32_t count = leaves; count > 1; members.num_levels++) {
        uint32_t above = 0;
        for (uint32_t first = 0; first < count; first += MAX_INTERNAL_ITEMS, above++) {
            intset_internal_node *node = take(sizeof *node);
            node->level = (uint16)members.num_levels;
            for (uint32_t i = first; i < count && i < first + MAX_INTERNAL_ITEMS; i++) {
                node->values[node->num_items] = lowest[i];
                node->downlinks[node->num_items++] = level[i];
            }
            level[above] = (intset_node *)node;
            lowest[above] = node->values[0];
        }
        count = above;
    }
    members.root = level[0];
}
static uint64_t postgres_member(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        answers[i] = intset_is_member(&members, keys[i] % (entries * 4ull));
    }
    return 0;
}

#define MAXALIGN(LEN) (((LEN) + 7) & ~(size_t)7)
#define MOD(x, y) ((x) & ((y) - 1))
typedef size_t Size;
typedef enum { HASH_FIND } HASHACTION;
typedef int (*HashCompareFunc) (const void *key1, const void *key2, Size keysize);
typedef struct HASHELEMENT {
    struct HASHELEMENT *link;
    uint32 hashvalue;
} HASHELEMENT;
typedef HASHELEMENT *HASHBUCKET;
typedef HASHBUCKET *HASHSEGMENT;
typedef struct HASHHDR {
    uint32 max_bucket, high_mask, low_mask;
} HASHHDR;
typedef struct HTAB {
    HASHHDR *hctl;
    HASHSEGMENT *dir;
    Size keysize;
    long ssize;
    int sshift;
} HTAB;
#define ELEMENTKEY(helem) (((char *)(helem)) + MAXALIGN(sizeof(HASHELEMENT)))

static uint32
calc_bucket(HASHHDR *hctl, uint32 hash_val)
{
    uint32      bucket;

    bucket = hash_val & hctl->high_mask;
    if (bucket > hctl->max_bucket)
        bucket = bucket & hctl->low_mask;

    return bucket;
}

static void *
hash_search_with_hash_value(HTAB *hashp,
                            const void *keyPtr,
                            uint32 hashvalue,
                            HASHACTION action,
                            bool *foundPtr)
{
    HASHHDR    *hctl = hashp->hctl;
    Size        keysize;
    uint32      bucket;
    long        segment_num;
    long        segment_ndx;
    HASHSEGMENT segp;
    HASHBUCKET  currBucket;
    HASHBUCKET *prevBucketPtr;
    HashCompareFunc match;

    /*
     * Do the initial lookup
     */
    bucket = calc_bucket(hctl, hashvalue);

    segment_num = bucket >> hashp->sshift;
    segment_ndx = MOD(bucket, hashp->ssize);

    segp = hashp->dir[segment_num];

    g_expensive(&segp[segment_ndx]);
    prevBucketPtr = &segp[segment_ndx];
    currBucket = *prevBucketPtr;

    /*
     * Follow collision chain looking for matching key
     */
    match = memcmp;       /* save one fetch in inner loop */
    keysize = hashp->keysize;   /* ditto */

    while (currBucket != NULL)
    {
        g_expensive(currBucket);
        if (currBucket->hashvalue == hashvalue &&
            match(ELEMENTKEY(currBucket), keyPtr, keysize) == 0)
            break;
        prevBucketPtr = &(currBucket->link);
        currBucket = *prevBucketPtr;
#ifdef HASH_STATISTICS
        hash_collisions++;
        hctl->collisions++;
#endif
    }

    return currBucket ? (void *) ELEMENTKEY(currBucket) : NULL;
}

static HASHHDR own_header;
static HTAB own_table = {&own_header, NULL, sizeof(uint32), 256, 8};
static void postgres_dynahash_build(void)
{
    own_header.max_bucket = entries - 1;
    own_header.high_mask = power_of_two(entries) - 1;
    own_header.low_mask = own_header.high_mask >> 1;
    own_table.dir = take((entries / 256 + 1) * sizeof *own_table.dir);
    for (uint32_t segment = 0; segment <= entries / 256; segment++) {
        own_table.dir[segment] = take(256 * sizeof(HASHBUCKET));
    }
    for (uint32_t entry = 0; entry < entries; entry++) {
        HASHELEMENT *element = take(MAXALIGN(sizeof *element) + 2 * sizeof(uint32));
        const uint32 row[2] = {key_of(entry), entry};
        element->hashvalue = (uint32)scramble(row[0]);
        memcpy(ELEMENTKEY(element), row, sizeof row);
        const uint32 bucket = calc_bucket(&own_header, element->hashvalue);
        element->link = own_table.dir[bucket / 256][bucket % 256];
        own_table.dir[bucket / 256][bucket % 256] = element;
    }
}
static uint64_t postgres_dynahash(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const uint32 *row = hash_search_with_hash_value(&own_table, &keys[i], (uint32)scramble(keys[i]), HASH_FIND, NULL);
        answers[i] = row ? row[1] : UINT64_MAX;
    }
    return 0;
}

MAIN(LOOKUP(postgres_simplehash), LOOKUP(postgres_bloom), LOOKUP(postgres_binsrch),
     LOOKUP(postgres_member), LOOKUP(postgres_dynahash))
