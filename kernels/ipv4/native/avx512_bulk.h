/* Looks up sixteen IPv4 addresses at once with AVX-512 gather instructions. */
#ifndef GODWIT_IPV4_AVX512_BULK_H
#define GODWIT_IPV4_AVX512_BULK_H

#include <immintrin.h>

#define GW_IPV4_AVX512_LANES 16u

/* Loads the table entries of the lookups that the mask `lanes` selects. The other elements of the
 * result come from `otherwise`. For a 2-byte entry, the function loads the aligned 4 bytes that
 * contain it, so it never reads outside the table. */
static inline __m512i gw_ipv4_avx512_entries(const gw_u8 *table, gw_u32 narrow, __mmask16 lanes,
                                             __m512i index, __m512i otherwise)
{
    if (!narrow) {
        return _mm512_mask_i32gather_epi32(otherwise, lanes, index, table, 4);
    }
    const __m512i pairs =
        _mm512_mask_i32gather_epi32(otherwise, lanes, _mm512_srli_epi32(index, 1), table, 4);
    const __m512i shift = _mm512_slli_epi32(_mm512_and_si512(index, _mm512_set1_epi32(1)), 4);
    const __m512i entry =
        _mm512_and_si512(_mm512_srlv_epi32(pairs, shift), _mm512_set1_epi32(0xffff));
    return _mm512_mask_mov_epi32(otherwise, lanes, entry);
}

/* Looks up sixteen IPv4 addresses. `narrow` is a compile-time constant: 1 for entries of 2 bytes, 0
 * for entries of 4 bytes. */
static inline __attribute__((always_inline)) void
gw_ipv4_avx512_sixteen(const gw_u8 *tbl24, const gw_u8 *tbl8, gw_u32 narrow, __m512i address,
                       gw_u32 *next_hops)
{
    const __m512i top = _mm512_set1_epi32(narrow ? 0x8000 : (int)0x80000000u);
    __m512i entry = gw_ipv4_avx512_entries(tbl24, narrow, (__mmask16)0xffff,
                                           _mm512_srli_epi32(address, 8), _mm512_setzero_si512());
    const __mmask16 longer = _mm512_test_epi32_mask(entry, top);
    if (longer != 0) {
        const __m512i group = _mm512_andnot_si512(top, entry);
        const __m512i index = _mm512_or_si512(_mm512_slli_epi32(group, 8),
                                              _mm512_and_si512(address, _mm512_set1_epi32(0xff)));
        entry = gw_ipv4_avx512_entries(tbl8, narrow, longer, index, entry);
    }
    if (narrow) {
        const __mmask16 none = _mm512_cmpeq_epi32_mask(entry, _mm512_set1_epi32(0x7fff));
        entry = _mm512_mask_mov_epi32(entry, none, _mm512_set1_epi32(GW_IPV4_NONE));
    }
    _mm512_storeu_si512(next_hops, entry);
}

static inline __attribute__((always_inline)) void
gw_ipv4_avx512_variant(const gw_u8 *image, const gw_u32 narrow, const gw_u32 *restrict addresses,
                       gw_u32 *restrict next_hops, gw_u64 count, gw_u64 ahead_max)
{
    const gw_ipv4_image *header = (const gw_ipv4_image *)image;
    const gw_u8 *tbl24 = image + header->tbl24_offset;
    const gw_u8 *tbl8 = image + header->tbl8_offset;
    const gw_u32 variant = narrow ? GW_IPV4_VARIANT_ENTRIES16 : GW_IPV4_VARIANT_ENTRIES32;
    const gw_u64 whole = count - count % GW_IPV4_AVX512_LANES;
    const gw_u64 ahead_whole = ahead_max - ahead_max % GW_IPV4_AVX512_LANES;
    const gw_u64 ahead = whole < ahead_whole ? whole : ahead_whole;
    for (gw_u64 i = 0; i < ahead; i++) {
        gw_ipv4_fetch(image, variant, addresses[i]);
    }
    for (gw_u64 first = 0; first < whole; first += GW_IPV4_AVX512_LANES) {
        if (ahead != 0 && first + ahead < whole) {
            for (gw_u64 i = first + ahead; i < first + ahead + GW_IPV4_AVX512_LANES; i++) {
                gw_ipv4_fetch(image, variant, addresses[i]);
            }
        }
        gw_ipv4_avx512_sixteen(tbl24, tbl8, narrow, _mm512_loadu_si512(addresses + first),
                               next_hops + first);
    }
    for (gw_u64 i = whole; i < count; i++) {
        next_hops[i] = gw_ipv4_lookup(image, variant, addresses[i]);
    }
}

/* Looks up IPv4 addresses with the same result as gw_ipv4_bulk. Gather instructions have signed
 * indices, so this code supports at most 2^23 groups of tbl8 entries. For larger tables, it calls
 * gw_ipv4_bulk. */
static inline void gw_ipv4_avx512_bulk(const gw_u8 *image, gw_u32 variant,
                                       const gw_u32 *restrict addresses, gw_u32 *restrict next_hops,
                                       gw_u64 count, gw_u64 ahead)
{
    const gw_ipv4_image *header = (const gw_ipv4_image *)image;
    if (variant == GW_IPV4_VARIANT_ENTRIES16) {
        gw_ipv4_avx512_variant(image, 1, addresses, next_hops, count, ahead);
    } else if (header->groups <= 1u << 23) {
        gw_ipv4_avx512_variant(image, 0, addresses, next_hops, count, ahead);
    } else {
        gw_ipv4_bulk(image, variant, addresses, next_hops, count, ahead);
    }
}

#endif
