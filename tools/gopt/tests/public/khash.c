/*
 * Lookups of klib as in minimap2 2.24: khash.h, and of minimap2: index.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/* The MIT License

   Copyright (c) 2008, 2009, 2011 by Attractive Chaos <attractor@live.co.uk>
   Copyright (c) 2018-     Dana-Farber Cancer Institute
                 2017-2018 Broad Institute, Inc.

   Permission is hereby granted, free of charge, to any person obtaining
   a copy of this software and associated documentation files (the
   "Software"), to deal in the Software without restriction, including
   without limitation the rights to use, copy, modify, merge, publish,
   distribute, sublicense, and/or sell copies of the Software, and to
   permit persons to whom the Software is furnished to do so, subject to
   the following conditions:

   The above copyright notice and this permission notice shall be
   included in all copies or substantial portions of the Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND,
   EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
   MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS
   BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
   ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
   CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
   SOFTWARE.
*/
#include "public.h"

typedef unsigned int khint32_t;
typedef khint32_t khint_t;
#define __ac_isempty(flag, i) ((flag[i>>4]>>((i&0xfU)<<1))&2)
#define __ac_isdel(flag, i) ((flag[i>>4]>>((i&0xfU)<<1))&1)
#define __ac_iseither(flag, i) ((flag[i>>4]>>((i&0xfU)<<1))&3)
#define __ac_set_isdel_false(flag, i) (flag[i>>4]&=~(1ul<<((i&0xfU)<<1)))
#define __ac_set_isempty_false(flag, i) (flag[i>>4]&=~(2ul<<((i&0xfU)<<1)))
#define __ac_set_isboth_false(flag, i) (flag[i>>4]&=~(3ul<<((i&0xfU)<<1)))
#define __ac_set_isdel_true(flag, i) (flag[i>>4]|=1ul<<((i&0xfU)<<1))

#define __KHASH_TYPE(name, khkey_t, khval_t) \
    typedef struct kh_##name##_s { \
        khint_t n_buckets, size, n_occupied, upper_bound; \
        khint32_t *flags; \
        khkey_t *keys; \
        khval_t *vals; \
    } kh_##name##_t;
#define KHASH_GET(name, SCOPE, khkey_t, __hash_func, __hash_equal) \
    SCOPE khint_t kh_get_##name(const kh_##name##_t *h, khkey_t key)     \
    {                                                                    \
        if (h->n_buckets) {                                                \
            khint_t k, i, last, mask, step = 0; \
            mask = h->n_buckets - 1;                                    \
            k = __hash_func(key); i = k & mask;                            \
            last = i; \
            g_expensive(&h->flags[i >> 4]); g_expensive(&h->keys[i]); \
            while (!__ac_isempty(h->flags, i) && (__ac_isdel(h->flags, i) || !__hash_equal(h->keys[i], key))) { \
                i = (i + (++step)) & mask; \
                if (i == last) return h->n_buckets;                        \
            }                                                            \
            return __ac_iseither(h->flags, i)? h->n_buckets : i;        \
        } else return 0;                                                \
    }

#define hash_of(key) ((khint_t)scramble(key))
#define equal(one, two) ((one) == (two))
__KHASH_TYPE(map, uint64_t, uint64_t)
KHASH_GET(map, static inline, uint64_t, hash_of, equal)
static kh_map_t map;
static void khash_get_build(void)
{
    map.n_buckets = power_of_two(entries * 2 > 16 ? entries * 2 : 16);
    map.flags = take(map.n_buckets / 16 * sizeof *map.flags);
    memset(map.flags, 0xaa, map.n_buckets / 16 * sizeof *map.flags);
    map.keys = take(map.n_buckets * sizeof *map.keys);
    map.vals = take(map.n_buckets * sizeof *map.vals);
    for (uint32_t entry = 0; entry < entries; entry++) {
        khint_t i = hash_of(key_of(entry)) & (map.n_buckets - 1), step = 0;
        while (!__ac_isempty(map.flags, i)) {
            i = (i + ++step) & (map.n_buckets - 1);
        }
        __ac_set_isboth_false(map.flags, i);
        map.keys[i] = key_of(entry);
        map.vals[i] = entry;
    }
}
static uint64_t khash_get(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const khint_t k = kh_get_map(&map, keys[i]);
        g_expensive(&map.vals[k]);
        answers[i] = k == map.n_buckets ? UINT64_MAX : map.vals[k];
    }
    return 0;
}

#define kh_get(name, h, k) kh_get_##name(h, k)
#define kh_end(h) ((h)->n_buckets)
#define kh_key(h, x) ((h)->keys[x])
#define kh_val(h, x) ((h)->vals[x])
#define idx_hash(a) ((khint_t)((a)>>1))
#define idx_eq(a, b) ((a)>>1 == (b)>>1)
__KHASH_TYPE(idx, uint64_t, uint64_t)
KHASH_GET(idx, static inline, uint64_t, idx_hash, idx_eq)
typedef kh_idx_t idxhash_t;
typedef struct mm_idx_bucket_s {
    uint64_t *p; // position array for minimizers appearing >1 times
    void *h;     // hash table indexing _p_ and minimizers appearing once
} mm_idx_bucket_t;
typedef struct {
    int32_t b;
    struct mm_idx_bucket_s *B; // index (hidden)
} mm_idx_t;

static const uint64_t *mm_idx_get(const mm_idx_t *mi, uint64_t minier, int *n)
{
    int mask = (1<<mi->b) - 1;
    khint_t k;
    mm_idx_bucket_t *b = &mi->B[minier&mask];
    idxhash_t *h = (idxhash_t*)b->h;
    *n = 0;
    if (h == 0) return 0;
    g_expensive(h);
    k = kh_get(idx, h, minier>>mi->b<<1);
    if (k == kh_end(h)) return 0;
    g_expensive(&kh_val(h, k));
    if (kh_key(h, k)&1) { // special casing when there is only one k-mer
        *n = 1;
        return &kh_val(h, k);
    } else {
        *n = (uint32_t)kh_val(h, k);
        return &b->p[kh_val(h, k)>>32];
    }
}

static mm_idx_t genome = {14, NULL};
static void minimap2_index_build(void)
{
    genome.B = take((1u << genome.b) * sizeof *genome.B);
    const uint64_t mask = (1u << genome.b) - 1;
    uint32_t *counts = take((mask + 1) * sizeof *counts);
    for (uint32_t entry = 0; entry < entries; entry++) {
        counts[scramble(key_of(entry)) & mask]++;
    }
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint64_t minimizer = scramble(key_of(entry)) >> 8 << 8 | (scramble(key_of(entry)) & 0xff);
        mm_idx_bucket_t *bucket = &genome.B[minimizer & mask];
        kh_idx_t *h = bucket->h;
        if (!h) {
            bucket->h = h = take(sizeof *h);
            bucket->p = take(2 * sizeof *bucket->p);
            bucket->p[0] = minimizer;
            h->n_buckets = power_of_two(counts[minimizer & mask] * 2 + 16);
            h->flags = take(h->n_buckets / 16 * sizeof *h->flags);
            memset(h->flags, 0xaa, h->n_buckets / 16 * sizeof *h->flags);
            h->keys = take(h->n_buckets * sizeof *h->keys);
            h->vals = take(h->n_buckets * sizeof *h->vals);
        }
        const uint64_t key = minimizer >> genome.b << 1 | (entry % 3 != 0);
        khint_t i = idx_hash(key) & (h->n_buckets - 1), step = 0;
        while (!__ac_isempty(h->flags, i)) {
            i = (i + ++step) & (h->n_buckets - 1);
        }
        __ac_set_isboth_false(h->flags, i);
        h->keys[i] = key;
        h->vals[i] = key & 1 ? entry : 2;
    }
}
static uint64_t minimap2_index(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        int n;
        const uint64_t *found = mm_idx_get(&genome, scramble(keys[i]), &n);
        answers[i] = found ? *found + (uint64_t)n : UINT64_MAX;
    }
    return 0;
}

MAIN(LOOKUP(khash_get), LOOKUP(minimap2_index))
