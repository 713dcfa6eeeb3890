/*
 * Lookups of PostgreSQL 15.18: src/include/lib/simplehash.h, src/backend/lib/bloomfilter.c,
 * integerset.c.
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

MAIN(LOOKUP(postgres_simplehash), LOOKUP(postgres_bloom), LOOKUP(postgres_binsrch))
