/*
 * Processes eight IPsec packets at once with the 256-bit registers of AVX2, for CPUs without
 * AVX-512 or without its vector AES. Each packet is a SIMD lane. Registers hold the data in one of
 * two layouts:
 *
 *   blocks[j]         16 bytes of lane j, then 16 bytes of lane j + 4
 *   words[w]          word w of all lanes, lane i at index i
 */
#ifndef GODWIT_IPSEC_AVX2_H
#define GODWIT_IPSEC_AVX2_H

#include <immintrin.h>

#include "batch.h"

#define GW_AVX2_LANES 8u

/* Unrolls the following loop. Its arrays of registers then need no memory. */
#define GW_AVX2_UNROLL _Pragma("GCC unroll 16")

/* Unrolls the following loop over the rounds of a hash. */
#define GW_AVX2_UNROLL_ROUNDS _Pragma("GCC unroll 80")

/* One word of each of eight packets. */
typedef gw_u32 gw_words_8 __attribute__((vector_size(32)));

GW_NATIVE gw_words_8 gw_avx2_set(gw_u32 word)
{
    return (gw_words_8)_mm256_set1_epi32((int)word);
}

GW_NATIVE gw_words_8 gw_avx2_rotate_left(gw_words_8 words, gw_u32 bits)
{
    return words << bits | words >> (32 - bits);
}

/* Transposes blocks of eight packets to four words of eight packets. The function is its own
 * inverse. */
GW_NATIVE void gw_avx2_transpose(gw_words_8 words[4], const __m256i blocks[4])
{
    const __m256i low_01 = _mm256_unpacklo_epi32(blocks[0], blocks[1]);
    const __m256i high_01 = _mm256_unpackhi_epi32(blocks[0], blocks[1]);
    const __m256i low_23 = _mm256_unpacklo_epi32(blocks[2], blocks[3]);
    const __m256i high_23 = _mm256_unpackhi_epi32(blocks[2], blocks[3]);
    words[0] = (gw_words_8)_mm256_unpacklo_epi64(low_01, low_23);
    words[1] = (gw_words_8)_mm256_unpackhi_epi64(low_01, low_23);
    words[2] = (gw_words_8)_mm256_unpacklo_epi64(high_01, high_23);
    words[3] = (gw_words_8)_mm256_unpackhi_epi64(high_01, high_23);
}

/* Loads four words from each of eight addresses, `at` bytes after them. */
GW_NATIVE void gw_avx2_load(gw_words_8 words[4], const gw_u8 *const rows[GW_AVX2_LANES], gw_u32 at)
{
    __m256i blocks[4];
    GW_AVX2_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        blocks[j] = _mm256_loadu2_m128i((const __m128i *)(const void *)(rows[j + 4] + at),
                                        (const __m128i *)(const void *)(rows[j] + at));
    }
    gw_avx2_transpose(words, blocks);
}

/* Reverses the bytes of each word, to convert between big-endian and little-endian. */
GW_NATIVE gw_words_8 gw_avx2_swap32(gw_words_8 words)
{
    return (gw_words_8)_mm256_shuffle_epi8(
        (__m256i)words, _mm256_broadcastsi128_si256(
                            _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3)));
}

#endif
