/*
 * Looks up IPv6 addresses in the trie with AVX-512. Each lookup has a fixed index in its block.
 *
 * First, all lookups take three steps through nodes of the trie, sixteen lookups at a time with one
 * gather. Finished lookups are masked out. Most nodes are at most three steps deep (trie.rs). This
 * part has no branch that depends on addresses, so out-of-order execution hides the cache misses
 * without prefetches.
 *
 * The remaining lookups are then listed. They take their further steps one after another, through
 * buckets and the nodes below them.
 */
#ifndef GODWIT_IPV6_AVX512_BULK_H
#define GODWIT_IPV6_AVX512_BULK_H

#include <immintrin.h>

#define GW_IPV6_AVX512_LANES 16u
/* Number of trie steps that all lookups take together. On a Xeon with 2 MiB of L2 cache, a lookup
 * among the 160,147 prefixes of `bench ipv6-lookup` takes 5.5, 4.5 and 4.7 ns with 2, 3 and 4
 * steps. */
#define GW_IPV6_AVX512_STEPS 3u

typedef struct gw_ipv6_avx512 {
    gw_u64 keys[GW_IPV6_BULK];
    /* Indices of the lookups that are at a trie node or at a bucket. A store writes a whole vector,
     * so each array has room for one additional vector. */
    gw_u32 nodes[GW_IPV6_BULK + GW_IPV6_AVX512_LANES];
    gw_u32 buckets[GW_IPV6_BULK + GW_IPV6_AVX512_LANES];
    gw_u32 node_count;
    gw_u32 bucket_count;
} gw_ipv6_avx512;

/* Returns the mask of the entries with a given tag. */
static inline __mmask16 gw_ipv6_avx512_at(__m512i entries, gw_u32 tag)
{
    return _mm512_cmpeq_epi32_mask(_mm512_srli_epi32(entries, 30), _mm512_set1_epi32((int)tag));
}

/* Shifts sixteen 64-bit keys right by `shifts`. Returns the low 32 bits of the results. */
static inline __m512i gw_ipv6_avx512_shifted(const gw_u64 *keys, __m512i shifts)
{
    const __m256i front = _mm512_cvtepi64_epi32(_mm512_srlv_epi64(
        _mm512_loadu_si512(keys), _mm512_cvtepu32_epi64(_mm512_castsi512_si256(shifts))));
    const __m256i back = _mm512_cvtepi64_epi32(_mm512_srlv_epi64(
        _mm512_loadu_si512(keys + 8), _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(shifts, 1))));
    return _mm512_inserti64x4(_mm512_castsi256_si512(front), back, 1);
}

/* Advances sixteen lookups by one step and returns their new entries. A lookup that is not at a
 * trie node keeps its entry. */
static inline __m512i gw_ipv6_avx512_step(const gw_u8 *lines, __m512i entries, const gw_u64 *keys)
{
    const __mmask16 at_node = gw_ipv6_avx512_at(entries, GW_IPV6_NODE >> 30);
    const __m512i shifts = _mm512_and_si512(_mm512_srli_epi32(entries, 24), _mm512_set1_epi32(62));
    const __m512i strides = _mm512_and_si512(_mm512_srli_epi32(entries, 22), _mm512_set1_epi32(6));
    const __m512i masks =
        _mm512_sub_epi32(_mm512_sllv_epi32(_mm512_set1_epi32(64), strides), _mm512_set1_epi32(1));
    const __m512i line = _mm512_and_si512(entries, _mm512_set1_epi32((int)GW_LPM6_LINE_MASK));
    const __m512i slot = _mm512_and_si512(gw_ipv6_avx512_shifted(keys, shifts), masks);
    const __m512i words = _mm512_add_epi32(_mm512_slli_epi32(line, 4), slot);
    return _mm512_mask_i32gather_epi32(entries, at_node, words, lines, 4);
}

/* Adds sixteen lookups to the lists `nodes` and `buckets`. Finished lookups are skipped. `first` is
 * the index of the first lookup. */
static inline void gw_ipv6_avx512_list(gw_ipv6_avx512 *block, __m512i entries, gw_u32 first)
{
    const __m512i indices =
        _mm512_add_epi32(_mm512_set1_epi32((int)first),
                         _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    const __mmask16 at_node = gw_ipv6_avx512_at(entries, GW_IPV6_NODE >> 30);
    const __mmask16 at_bucket = gw_ipv6_avx512_at(entries, GW_IPV6_TABLE >> 30);
    _mm512_storeu_si512(block->nodes + block->node_count,
                        _mm512_maskz_compress_epi32(at_node, indices));
    _mm512_storeu_si512(block->buckets + block->bucket_count,
                        _mm512_maskz_compress_epi32(at_bucket, indices));
    block->node_count += gw_popcount32(at_node);
    block->bucket_count += gw_popcount32(at_bucket);
}

/* Separates lookups that are at a trie node from lookups that are at a bucket. The loop has no
 * branch on the kind of entry, because the processor could not predict it. `list` may be one of the
 * two result lists, because each element is read before it is overwritten. */
static inline void gw_ipv6_avx512_relist(gw_ipv6_avx512 *block, const gw_u32 *entries,
                                         const gw_u32 *list, gw_u32 count)
{
    gw_u32 node_count = block->node_count;
    gw_u32 bucket_count = block->bucket_count;
    for (gw_u32 j = 0; j < count; j++) {
        const gw_u32 i = list[j];
        const gw_u32 tag = entries[i] >> 30;
        block->nodes[node_count] = i;
        node_count += (gw_u32)(tag == GW_IPV6_NODE >> 30);
        block->buckets[bucket_count] = i;
        bucket_count += (gw_u32)(tag == GW_IPV6_TABLE >> 30);
    }
    block->node_count = node_count;
    block->bucket_count = bucket_count;
}

/* Takes steps for the listed lookups until all are finished. */
static inline void gw_ipv6_avx512_rest(gw_ipv6_avx512 *block, const gw_u8 *lines, gw_u32 *entries)
{
    while (block->node_count + block->bucket_count != 0) {
        const gw_u32 bucket_count = block->bucket_count;
        for (gw_u32 j = 0; j < bucket_count; j++) {
            const gw_u32 i = block->buckets[j];
            const gw_ipv6_bucket *bucket = (const gw_ipv6_bucket *)gw_lpm6_line(lines, entries[i]);
            entries[i] = bucket->values[gw_rank_line(bucket->keys, GW_IPV6_KEYS, block->keys[i])];
        }
        block->bucket_count = 0;
        gw_ipv6_avx512_relist(block, entries, block->buckets, bucket_count);
        const gw_u32 node_count = block->node_count;
        for (gw_u32 j = 0; j < node_count; j++) {
            const gw_u32 i = block->nodes[j];
            entries[i] = *gw_lpm6_slot(gw_lpm6_line(lines, entries[i]), entries[i], block->keys[i]);
        }
        block->node_count = 0;
        gw_ipv6_avx512_relist(block, entries, block->nodes, node_count);
    }
}

/* Returns the upper 64 bits of eight IPv6 addresses, in host byte order. */
static inline __m512i gw_ipv6_avx512_highs(const gw_u8 *addresses)
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

/* Looks up GW_IPV6_BULK addresses in a trie. */
static inline void gw_ipv6_avx512_block(const gw_u8 *image, const gw_u8 *addresses,
                                        gw_u32 *next_hops)
{
    const gw_u8 *lines = gw_ipv6_lines(image);
    const gw_ipv6_image *header = (const gw_ipv6_image *)image;
    const __m512i root_shift = _mm512_set1_epi32((int)header->root_shift);
    gw_ipv6_avx512 block;
    __mmask16 any = 0;
    for (gw_u32 i = 0; i < GW_IPV6_BULK; i += GW_IPV6_AVX512_LANES) {
        _mm512_storeu_si512(block.keys + i, gw_ipv6_avx512_highs(addresses + 16 * i));
        _mm512_storeu_si512(block.keys + i + 8, gw_ipv6_avx512_highs(addresses + 16 * i + 128));
        const __m512i slots = gw_ipv6_avx512_shifted(block.keys + i, root_shift);
        const __m512i entries = _mm512_i32gather_epi32(slots, image + header->root_offset, 4);
        _mm512_storeu_si512(next_hops + i, entries);
        any |= gw_ipv6_avx512_at(entries, GW_IPV6_NODE >> 30);
    }
    for (gw_u32 step = 0; step < GW_IPV6_AVX512_STEPS && any != 0; step++) {
        any = 0;
        for (gw_u32 i = 0; i < GW_IPV6_BULK; i += GW_IPV6_AVX512_LANES) {
            const __m512i before = _mm512_loadu_si512(next_hops + i);
            const __m512i entries = gw_ipv6_avx512_step(lines, before, block.keys + i);
            _mm512_storeu_si512(next_hops + i, entries);
            any |= gw_ipv6_avx512_at(entries, GW_IPV6_NODE >> 30);
        }
    }
    block.node_count = 0;
    block.bucket_count = 0;
    for (gw_u32 i = 0; i < GW_IPV6_BULK; i += GW_IPV6_AVX512_LANES) {
        gw_ipv6_avx512_list(&block, _mm512_loadu_si512(next_hops + i), i);
    }
    gw_ipv6_avx512_rest(&block, lines, next_hops);
    for (gw_u32 i = 0; i < GW_IPV6_BULK; i += GW_IPV6_AVX512_LANES) {
        gw_u32 low = gw_ipv6_avx512_at(_mm512_loadu_si512(next_hops + i), GW_IPV6_LOW >> 30);
        for (; low != 0; low &= low - 1) {
            const gw_u32 at = i + (gw_u32)__builtin_ctz(low);
            const gw_u32 entry = *(const gw_u32 *)gw_lpm6_line(lines, next_hops[at]);
            next_hops[at] = gw_lpm6_trie(lines, entry, gw_load_be64(addresses + 16 * at + 8));
        }
    }
}

/* Looks up IPv6 addresses as gw_ipv6_bulk does. */
static inline void gw_ipv6_avx512_bulk(const gw_u8 *image, gw_u32 variant, const gw_u8 *addresses,
                                       gw_u32 *next_hops, gw_u64 count)
{
    gw_u64 first = 0;
    if (variant == GW_IPV6_TRIE) {
        for (; first + GW_IPV6_BULK <= count; first += GW_IPV6_BULK) {
            gw_ipv6_avx512_block(image, addresses + 16 * first, next_hops + first);
        }
    }
    gw_ipv6_bulk(image, variant, addresses + 16 * first, next_hops + first, count - first);
}

#endif
