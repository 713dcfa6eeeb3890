/*
 * Processes sixteen IPsec packets at once in the 512-bit registers of AVX-512. Each packet is a
 * SIMD lane. Registers hold the data in one of three layouts:
 *
 *   row i             64 bytes of lane i
 *   blocks[k][j]      block k of 16 bytes of lanes j, j + 4, j + 8, j + 12
 *   words[w]          word w of all lanes, lane i at index i
 *
 * AES and GHASH process blocks, and SHA-1 and SHA-256 process words. SHA-384 and SHA-512 process
 * 64-bit words of eight packets.
 */
#ifndef GODWIT_IPSEC_AVX512_H
#define GODWIT_IPSEC_AVX512_H

#include <immintrin.h>

#define GW_AVX512_LANES     16u
#define GW_AVX512_ROW_BYTES 64u

/* Marks functions that are always inlined. The number of rounds or blocks that a caller passes is
 * then a constant. */
#define GW_AVX512 static inline __attribute__((always_inline))

/* Unrolls the following loop. Its arrays of registers then need no memory. */
#define GW_AVX512_UNROLL _Pragma("GCC unroll 16")

/* Prevents the compiler from reordering additions, which would lengthen the dependency chain.
 * Sixteen SHA-1 blocks take 83 ns with this macro and 160 ns without it. */
#define GW_AVX512_IN_ORDER(value) __asm__("" : "+v"(value))

/* Byte ranges of sixteen packets, one per SIMD lane. Unused lanes repeat the range of a used lane.
 * The repetition is harmless, because each step reads all its input before it writes. */
typedef struct gw_avx512_lanes {
    gw_u8 *at[GW_AVX512_LANES];
    gw_u32 bytes[GW_AVX512_LANES];
    gw_u32 shortest;
    gw_u32 longest;
} gw_avx512_lanes;

typedef struct gw_avx512_sas {
    const gw_ipsec_sa *sa[GW_AVX512_LANES] __attribute__((aligned(64)));
} gw_avx512_sas;

/* Transposes registers that each hold 64 bytes of one packet to registers that each hold one
 * 16-byte block of each packet. The function is its own inverse. */
GW_AVX512 void gw_avx512_transpose(__m512i *a, __m512i *b, __m512i *c, __m512i *d)
{
    const __m512i ab_low = _mm512_shuffle_i32x4(*a, *b, 0x44);
    const __m512i ab_high = _mm512_shuffle_i32x4(*a, *b, 0xee);
    const __m512i cd_low = _mm512_shuffle_i32x4(*c, *d, 0x44);
    const __m512i cd_high = _mm512_shuffle_i32x4(*c, *d, 0xee);
    *a = _mm512_shuffle_i32x4(ab_low, cd_low, 0x88);
    *b = _mm512_shuffle_i32x4(ab_low, cd_low, 0xdd);
    *c = _mm512_shuffle_i32x4(ab_high, cd_high, 0x88);
    *d = _mm512_shuffle_i32x4(ab_high, cd_high, 0xdd);
}

/* Transposes registers with 16-byte blocks of sixteen packets to registers with one word of each
 * packet. The function is its own inverse. */
GW_AVX512 void gw_avx512_words(__m512i *words, const __m512i *blocks)
{
    const __m512i low_01 = _mm512_unpacklo_epi32(blocks[0], blocks[1]);
    const __m512i high_01 = _mm512_unpackhi_epi32(blocks[0], blocks[1]);
    const __m512i low_23 = _mm512_unpacklo_epi32(blocks[2], blocks[3]);
    const __m512i high_23 = _mm512_unpackhi_epi32(blocks[2], blocks[3]);
    words[0] = _mm512_unpacklo_epi64(low_01, low_23);
    words[1] = _mm512_unpackhi_epi64(low_01, low_23);
    words[2] = _mm512_unpacklo_epi64(high_01, high_23);
    words[3] = _mm512_unpackhi_epi64(high_01, high_23);
}

/* Reverses the bytes of each 32-bit word, to convert between big-endian and little-endian. */
GW_AVX512 __m512i gw_avx512_swap32(__m512i value)
{
    return _mm512_shuffle_epi8(value, _mm512_broadcast_i32x4(_mm_set_epi8(
                                          12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3)));
}

/* Reverses the bytes of each 16-byte block. */
GW_AVX512 __m512i gw_avx512_swap128(__m512i value)
{
    return _mm512_shuffle_epi8(value, _mm512_broadcast_i32x4(_mm_set_epi8(
                                          0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
}

/* Returns a mask for the 64 bytes at `offset`. It selects those within the first `bytes` bytes. */
GW_AVX512 __mmask64 gw_avx512_mask(gw_u32 bytes, gw_u32 offset)
{
    const gw_u32 left = bytes > offset ? bytes - offset : 0;
    return left >= GW_AVX512_ROW_BYTES ? ~(gw_u64)0 : ((gw_u64)1 << left) - 1;
}

/* Loads 32 bytes from each of two addresses into one register. The second load inserts its bytes
 * without a shuffle, because shuffles compete for one execution port. */
GW_AVX512 __m512i gw_avx512_load_halves(const gw_u8 *low, const gw_u8 *high)
{
    const __m512i first = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)low));
    return _mm512_inserti64x4(first, _mm256_loadu_si256((const __m256i *)high), 1);
}

/* Loads 64 bytes from each of the addresses a to d. Each of the four resulting registers holds one
 * 16-byte block from each address, in the order of the addresses. */
GW_AVX512 void gw_avx512_load_four(__m512i *b0, __m512i *b1, __m512i *b2, __m512i *b3,
                                   const gw_u8 *a, const gw_u8 *b, const gw_u8 *c, const gw_u8 *d)
{
    const __m512i ab_low = gw_avx512_load_halves(a, b);
    const __m512i cd_low = gw_avx512_load_halves(c, d);
    const __m512i ab_high = gw_avx512_load_halves(a + 32, b + 32);
    const __m512i cd_high = gw_avx512_load_halves(c + 32, d + 32);
    *b0 = _mm512_shuffle_i32x4(ab_low, cd_low, 0x88);
    *b1 = _mm512_shuffle_i32x4(ab_low, cd_low, 0xdd);
    *b2 = _mm512_shuffle_i32x4(ab_high, cd_high, 0x88);
    *b3 = _mm512_shuffle_i32x4(ab_high, cd_high, 0xdd);
}

/* Prefetches 64 bytes of each of sixteen packets, two steps ahead. The hardware prefetcher of a
 * core cannot follow sixteen streams. */
GW_AVX512 void gw_avx512_prefetch_rows(const gw_avx512_lanes *lanes, gw_u32 offset)
{
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
        __builtin_prefetch(lanes->at[i] + offset + 2 * GW_AVX512_ROW_BYTES);
    }
}

/* Loads the 64 bytes at `offset` of each of sixteen packets, all of which must be long enough. */
GW_AVX512 void gw_avx512_load(__m512i blocks[4][4], const gw_avx512_lanes *lanes, gw_u32 offset)
{
    gw_u8 *const *at = lanes->at;
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        gw_avx512_load_four(&blocks[0][j], &blocks[1][j], &blocks[2][j], &blocks[3][j],
                            at[j] + offset, at[j + 4] + offset, at[j + 8] + offset,
                            at[j + 12] + offset);
    }
}

/* Stores two consecutive 16-byte blocks to each of the addresses a to d. `low` holds the first
 * block for each address, and `high` holds the second block. */
GW_AVX512 void gw_avx512_store_two(__m512i low, __m512i high, gw_u8 *a, gw_u8 *b, gw_u8 *c,
                                   gw_u8 *d)
{
    const __m512i ab =
        _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high);
    const __m512i cd =
        _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high);
    _mm256_storeu_si256((__m256i *)a, _mm512_castsi512_si256(ab));
    _mm256_storeu_si256((__m256i *)b, _mm512_extracti64x4_epi64(ab, 1));
    _mm256_storeu_si256((__m256i *)c, _mm512_castsi512_si256(cd));
    _mm256_storeu_si256((__m256i *)d, _mm512_extracti64x4_epi64(cd, 1));
}

GW_AVX512 void gw_avx512_store(__m512i blocks[4][4], const gw_avx512_lanes *lanes, gw_u32 offset)
{
    gw_u8 *const *at = lanes->at;
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        GW_AVX512_UNROLL
        for (gw_u32 k = 0; k < 4; k += 2) {
            const gw_u32 to = offset + 16 * k;
            gw_avx512_store_two(blocks[k][j], blocks[k + 1][j], at[j] + to, at[j + 4] + to,
                                at[j + 8] + to, at[j + 12] + to);
        }
    }
}

/* Loads the 64 bytes at `offset` of each of sixteen packets. Bytes after the end of a packet become
 * zero. They are not accessed, because even a masked load would be slow at an unmapped address. */
GW_AVX512 void gw_avx512_load_partial(__m512i blocks[4][4], const gw_avx512_lanes *lanes,
                                      gw_u32 offset)
{
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < 4; i++) {
            const gw_u32 lane = j + 4 * i;
            const __mmask64 mask = gw_avx512_mask(lanes->bytes[lane], offset);
            blocks[i][j] =
                _mm512_maskz_loadu_epi8(mask, lanes->at[lane] + (mask == 0 ? 0 : offset));
        }
        gw_avx512_transpose(&blocks[0][j], &blocks[1][j], &blocks[2][j], &blocks[3][j]);
    }
}

/* Stores the 64 bytes at `offset` of each of sixteen packets. Bytes after the end of a packet are
 * not stored, and become zero in `blocks`. */
GW_AVX512 void gw_avx512_store_partial(__m512i blocks[4][4], const gw_avx512_lanes *lanes,
                                       gw_u32 offset)
{
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        gw_avx512_transpose(&blocks[0][j], &blocks[1][j], &blocks[2][j], &blocks[3][j]);
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < 4; i++) {
            const gw_u32 lane = j + 4 * i;
            const __mmask64 mask = gw_avx512_mask(lanes->bytes[lane], offset);
            if (mask != 0) {
                _mm512_mask_storeu_epi8(lanes->at[lane] + offset, mask, blocks[i][j]);
            }
            blocks[i][j] = _mm512_maskz_mov_epi8(mask, blocks[i][j]);
        }
        gw_avx512_transpose(&blocks[0][j], &blocks[1][j], &blocks[2][j], &blocks[3][j]);
    }
}

/* Loads one 16-byte block from each of four addresses into one register. */
GW_AVX512 __m512i gw_avx512_gather(const gw_u8 *a, const gw_u8 *b, const gw_u8 *c, const gw_u8 *d)
{
    __m512i value = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)a));
    value = _mm512_mask_broadcast_i32x4(value, 0x00f0, _mm_loadu_si128((const __m128i *)b));
    value = _mm512_mask_broadcast_i32x4(value, 0x0f00, _mm_loadu_si128((const __m128i *)c));
    return _mm512_mask_broadcast_i32x4(value, 0xf000, _mm_loadu_si128((const __m128i *)d));
}

GW_AVX512 void gw_avx512_load_blocks(__m512i blocks[4][4], const gw_avx512_lanes *lanes,
                                     gw_u32 offset, gw_u32 count)
{
    if (count == 4) {
        gw_avx512_load(blocks, lanes, offset);
        return;
    }
    gw_u8 *const *at = lanes->at;
    for (gw_u32 k = 0; k < count; k++) {
        const gw_u32 from = offset + 16 * k;
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            blocks[k][j] = gw_avx512_gather(at[j] + from, at[j + 4] + from, at[j + 8] + from,
                                            at[j + 12] + from);
        }
    }
}

GW_AVX512 void gw_avx512_store_blocks(__m512i blocks[4][4], const gw_avx512_lanes *lanes,
                                      gw_u32 offset, gw_u32 count)
{
    gw_u8 *const *at = lanes->at;
    gw_u32 k = 0;
    for (; k + 2 <= count; k += 2) {
        const gw_u32 to = offset + 16 * k;
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            gw_avx512_store_two(blocks[k][j], blocks[k + 1][j], at[j] + to, at[j + 4] + to,
                                at[j + 8] + to, at[j + 12] + to);
        }
    }
    if (k < count) {
        const gw_u32 to = offset + 16 * k;
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            const __m512i block = blocks[k][j];
            _mm_storeu_si128((__m128i *)(at[j] + to), _mm512_castsi512_si128(block));
            _mm_storeu_si128((__m128i *)(at[j + 4] + to), _mm512_extracti32x4_epi32(block, 1));
            _mm_storeu_si128((__m128i *)(at[j + 8] + to), _mm512_extracti32x4_epi32(block, 2));
            _mm_storeu_si128((__m128i *)(at[j + 12] + to), _mm512_extracti32x4_epi32(block, 3));
        }
    }
}

/* Adds `bytes` to each of sixteen addresses. */
GW_AVX512 void gw_avx512_offset_addresses(gw_u8 **to, gw_u8 *const *from, long long bytes)
{
    const __m512i by = _mm512_set1_epi64(bytes);
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i += 8) {
        _mm512_storeu_si512(to + i, _mm512_add_epi64(_mm512_loadu_si512(from + i), by));
    }
}

GW_AVX512 void gw_avx512_store_tags(const __m512i blocks[4], gw_ipsec_tag tags[GW_AVX512_LANES])
{
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        _mm_storeu_si128((__m128i *)tags[j].words, _mm512_castsi512_si128(blocks[j]));
        _mm_storeu_si128((__m128i *)tags[j + 4].words, _mm512_extracti32x4_epi32(blocks[j], 1));
        _mm_storeu_si128((__m128i *)tags[j + 8].words, _mm512_extracti32x4_epi32(blocks[j], 2));
        _mm_storeu_si128((__m128i *)tags[j + 12].words, _mm512_extracti32x4_epi32(blocks[j], 3));
    }
}

#define GW_AVX512_AUTH_LINE (offsetof(gw_ipsec_sa, authentication) / GW_AVX512_ROW_BYTES)

/* Loads the same cache line of sixteen SAs, as 16-byte blocks. */
GW_AVX512 void gw_avx512_load_sa_line(__m512i blocks[4][4], const gw_avx512_sas *sas, gw_u32 line)
{
    const gw_u32 at = GW_AVX512_ROW_BYTES * line;
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        gw_avx512_load_four(&blocks[0][j], &blocks[1][j], &blocks[2][j], &blocks[3][j],
                            (const gw_u8 *)sas->sa[j] + at, (const gw_u8 *)sas->sa[j + 4] + at,
                            (const gw_u8 *)sas->sa[j + 8] + at,
                            (const gw_u8 *)sas->sa[j + 12] + at);
    }
}

#endif
