/*
 * The bare look-up in a trie with AVX-512: sixteen addresses take a step through nodes by one
 * gather, and one line at a time is searched where they come to buckets. What goes on is kept
 * together by compression, so that no step is made for an address that has its answer.
 */
#ifndef GODWIT_IPV6_WIDE_BULK_H
#define GODWIT_IPV6_WIDE_BULK_H

#include <immintrin.h>

#define GW_IPV6_WIDE 16u

/* Look-ups that stand at entries of one kind; whole vectors are written behind the last one. */
typedef struct gw_ipv6_wide {
    gw_u64 keys[GW_IPV6_BULK + GW_IPV6_WIDE];
    gw_u32 entries[GW_IPV6_BULK + GW_IPV6_WIDE];
    gw_u32 places[GW_IPV6_BULK + GW_IPV6_WIDE]; /* which look-up it is */
    gw_u32 count;
} gw_ipv6_wide;

/* Up to sixteen of them. */
typedef struct gw_ipv6_sixteen {
    __m512i keys[2];
    __m512i entries;
    __m512i places;
} gw_ipv6_sixteen;

static inline void gw_ipv6_wide_append(gw_ipv6_wide *list, const gw_ipv6_sixteen *some,
                                       __mmask16 which)
{
    const gw_u32 count = list->count;
    const gw_u32 first = gw_popcount32(which & 0xffu);
    _mm512_storeu_si512(list->entries + count, _mm512_maskz_compress_epi32(which, some->entries));
    _mm512_storeu_si512(list->places + count, _mm512_maskz_compress_epi32(which, some->places));
    _mm512_storeu_si512(list->keys + count,
                        _mm512_maskz_compress_epi64((__mmask8)which, some->keys[0]));
    _mm512_storeu_si512(list->keys + count + first,
                        _mm512_maskz_compress_epi64((__mmask8)(which >> 8), some->keys[1]));
    list->count = count + gw_popcount32(which);
}

/* Answers those at leaves; the others go on from nodes or buckets. */
static inline void gw_ipv6_wide_sort(gw_ipv6_wide *nodes, gw_ipv6_wide *buckets,
                                     const gw_ipv6_sixteen *some, __mmask16 which,
                                     gw_u32 *next_hops)
{
    const __m512i tags = _mm512_srli_epi32(some->entries, 30);
    const __mmask16 at_node =
        _mm512_mask_cmpeq_epi32_mask(which, tags, _mm512_set1_epi32((int)GW_IPV6_NODE));
    const __mmask16 at_bucket =
        _mm512_mask_cmpeq_epi32_mask(which, tags, _mm512_set1_epi32((int)GW_IPV6_TABLE));
    const __mmask16 done = (__mmask16)(which & ~(at_node | at_bucket));
    _mm512_mask_i32scatter_epi32(next_hops, done, some->places, some->entries, 4);
    gw_ipv6_wide_append(nodes, some, at_node);
    gw_ipv6_wide_append(buckets, some, at_bucket);
}

/* The sixteen from `at` on, of which `which` are there. */
static inline gw_ipv6_sixteen gw_ipv6_wide_load(const gw_ipv6_wide *list, gw_u32 at)
{
    gw_ipv6_sixteen some;
    some.keys[0] = _mm512_loadu_si512(list->keys + at);
    some.keys[1] = _mm512_loadu_si512(list->keys + at + 8);
    some.entries = _mm512_loadu_si512(list->entries + at);
    some.places = _mm512_loadu_si512(list->places + at);
    return some;
}

static inline __mmask16 gw_ipv6_wide_which(gw_u32 left)
{
    return left < GW_IPV6_WIDE ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
}

/* All that stand at nodes take a step. The list is written behind where it is read. */
static inline void gw_ipv6_wide_nodes(gw_ipv6_wide *nodes, gw_ipv6_wide *buckets,
                                      const gw_u8 *lines, gw_u32 *next_hops)
{
    const gw_u32 count = nodes->count;
    nodes->count = 0;
    for (gw_u32 at = 0; at < count; at += GW_IPV6_WIDE) {
        const __mmask16 which = gw_ipv6_wide_which(count - at);
        gw_ipv6_sixteen some = gw_ipv6_wide_load(nodes, at);
        const __m512i shifts =
            _mm512_and_si512(_mm512_srli_epi32(some.entries, 24), _mm512_set1_epi32(62));
        const __m512i strides =
            _mm512_and_si512(_mm512_srli_epi32(some.entries, 22), _mm512_set1_epi32(6));
        const __m256i front = _mm512_cvtepi64_epi32(
            _mm512_srlv_epi64(some.keys[0], _mm512_cvtepu32_epi64(_mm512_castsi512_si256(shifts))));
        const __m256i back = _mm512_cvtepi64_epi32(_mm512_srlv_epi64(
            some.keys[1], _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(shifts, 1))));
        const __m512i bits = _mm512_inserti64x4(_mm512_castsi256_si512(front), back, 1);
        const __m512i masks = _mm512_sub_epi32(_mm512_sllv_epi32(_mm512_set1_epi32(64), strides),
                                               _mm512_set1_epi32(1));
        const __m512i line =
            _mm512_and_si512(some.entries, _mm512_set1_epi32((int)GW_IPV6_LINE_MASK));
        const __m512i words =
            _mm512_add_epi32(_mm512_slli_epi32(line, 4), _mm512_and_si512(bits, masks));
        some.entries = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), which, words, lines, 4);
        gw_ipv6_wide_sort(nodes, buckets, &some, which, next_hops);
    }
}

/* All that stand at buckets take a step. */
static inline void gw_ipv6_wide_buckets(gw_ipv6_wide *nodes, gw_ipv6_wide *buckets,
                                        const gw_u8 *lines, gw_u32 *next_hops)
{
    const gw_u32 count = buckets->count;
    for (gw_u32 i = 0; i < count; i++) {
        const gw_ipv6_bucket *bucket =
            (const gw_ipv6_bucket *)gw_ipv6_line(lines, buckets->entries[i]);
        buckets->entries[i] =
            bucket->values[gw_rank_line(bucket->keys, GW_IPV6_KEYS, buckets->keys[i])];
    }
    buckets->count = 0;
    for (gw_u32 at = 0; at < count; at += GW_IPV6_WIDE) {
        const gw_ipv6_sixteen some = gw_ipv6_wide_load(buckets, at);
        gw_ipv6_wide_sort(nodes, buckets, &some, gw_ipv6_wide_which(count - at), next_hops);
    }
}

/* The upper halves of eight addresses, as numbers. */
static inline __m512i gw_ipv6_wide_highs(const gw_u8 *addresses)
{
    const __m512i evens = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i swap = _mm512_set_epi8(
        56, 57, 58, 59, 60, 61, 62, 63, 48, 49, 50, 51, 52, 53, 54, 55, 40, 41, 42, 43, 44, 45, 46,
        47, 32, 33, 34, 35, 36, 37, 38, 39, 24, 25, 26, 27, 28, 29, 30, 31, 16, 17, 18, 19, 20, 21,
        22, 23, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i highs = _mm512_permutex2var_epi64(_mm512_loadu_si512(addresses), evens,
                                                    _mm512_loadu_si512(addresses + 64));
    return _mm512_shuffle_epi8(highs, swap);
}

/* GW_IPV6_BULK addresses. */
static inline void gw_ipv6_wide_block(const gw_u8 *image, const gw_u8 *addresses, gw_u32 *next_hops)
{
    const gw_u8 *lines = gw_ipv6_lines(image);
    const gw_ipv6_image *header = (const gw_ipv6_image *)image;
    const __m128i root_shift = _mm_cvtsi32_si128((int)header->root_shift);
    gw_ipv6_wide nodes;
    gw_ipv6_wide buckets;
    nodes.count = 0;
    buckets.count = 0;
    for (gw_u32 i = 0; i < GW_IPV6_BULK; i += GW_IPV6_WIDE) {
        gw_ipv6_sixteen some;
        some.keys[0] = gw_ipv6_wide_highs(addresses + 16 * i);
        some.keys[1] = gw_ipv6_wide_highs(addresses + 16 * i + 128);
        const __m256i front = _mm512_cvtepi64_epi32(_mm512_srl_epi64(some.keys[0], root_shift));
        const __m256i back = _mm512_cvtepi64_epi32(_mm512_srl_epi64(some.keys[1], root_shift));
        const __m512i slots = _mm512_inserti64x4(_mm512_castsi256_si512(front), back, 1);
        some.entries = _mm512_i32gather_epi32(slots, image + header->root_offset, 4);
        some.places = _mm512_add_epi32(
            _mm512_set1_epi32((int)i),
            _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
        gw_ipv6_wide_sort(&nodes, &buckets, &some, 0xffff, next_hops);
    }
    while (nodes.count + buckets.count != 0) {
        while (nodes.count != 0) {
            gw_ipv6_wide_nodes(&nodes, &buckets, lines, next_hops);
        }
        gw_ipv6_wide_buckets(&nodes, &buckets, lines, next_hops);
    }
    for (gw_u32 i = 0; i < GW_IPV6_BULK; i += GW_IPV6_WIDE) {
        const __m512i tags = _mm512_srli_epi32(_mm512_loadu_si512(next_hops + i), 30);
        gw_u32 low = _mm512_cmpeq_epi32_mask(tags, _mm512_set1_epi32((int)GW_IPV6_LOW));
        for (; low != 0; low &= low - 1) {
            const gw_u32 at = i + (gw_u32)__builtin_ctz(low);
            const gw_u32 entry = *(const gw_u32 *)gw_ipv6_line(lines, next_hops[at]);
            next_hops[at] = gw_ipv6_trie(lines, entry, gw_load_be64(addresses + 16 * at + 8));
        }
    }
}

/* As gw_ipv6_bulk. */
static inline void gw_ipv6_wide_bulk(const gw_u8 *image, gw_u32 variant, const gw_u8 *addresses,
                                     gw_u32 *next_hops, gw_u64 count)
{
    gw_u64 first = 0;
    if (variant == GW_IPV6_TRIE) {
        for (; first + GW_IPV6_BULK <= count; first += GW_IPV6_BULK) {
            gw_ipv6_wide_block(image, addresses + 16 * first, next_hops + first);
        }
    }
    gw_ipv6_bulk(image, variant, addresses + 16 * first, next_hops + first, count - first);
}

#endif
