/* AES and GHASH on registers of one block, or of two blocks with vector AES. */
#ifndef GODWIT_IPSEC_AVX2_UNIT_H
#define GODWIT_IPSEC_AVX2_UNIT_H

#include "avx2.h"

/*
 * Operations on a register of GW_AVX2_UNIT_BLOCKS blocks:
 *
 *   ALL         the same block in each position
 *   FIRST, END  a block in the first or the last position, and zeros
 *   BEFORE      the block before each block of x, where `before` precedes x
 *   COUNTERS    the position of each block, in its last word
 */
#if defined(__VAES__) && defined(__VPCLMULQDQ__)
#define GW_AVX2_UNIT_BLOCKS 2u
typedef __m256i gw_avx2_unit;
#define GW_AVX2_UNIT_ALL(block)           _mm256_broadcastsi128_si256(block)
#define GW_AVX2_UNIT_FIRST(block)         _mm256_zextsi128_si256(block)
#define GW_AVX2_UNIT_END(block)           _mm256_set_m128i(block, _mm_setzero_si128())
#define GW_AVX2_UNIT_LOAD(at)             _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define GW_AVX2_UNIT_STORE(at, x)         _mm256_storeu_si256((__m256i *)(void *)(at), x)
#define GW_AVX2_UNIT_XOR(x, y)            _mm256_xor_si256(x, y)
#define GW_AVX2_UNIT_AND(x, y)            _mm256_and_si256(x, y)
#define GW_AVX2_UNIT_ADD(x, y)            _mm256_add_epi32(x, y)
#define GW_AVX2_UNIT_SHUFFLE(x, order)    _mm256_shuffle_epi8(x, order)
#define GW_AVX2_UNIT_BEFORE(before, x)    _mm256_permute2x128_si256(before, x, 0x21)
#define GW_AVX2_UNIT_COUNTERS             _mm256_setr_epi32(0, 0, 0, 0, 0, 0, 0, 1)
#define GW_AVX2_UNIT_ENCRYPT(x, key)      _mm256_aesenc_epi128(x, key)
#define GW_AVX2_UNIT_LAST(x, key)         _mm256_aesenclast_epi128(x, key)
#define GW_AVX2_UNIT_DECRYPT(x, key)      _mm256_aesdec_epi128(x, key)
#define GW_AVX2_UNIT_DECRYPT_LAST(x, key) _mm256_aesdeclast_epi128(x, key)
#define GW_AVX2_UNIT_MULTIPLY(x, y, k)    _mm256_clmulepi64_epi128(x, y, k)

/* Returns the XOR of all blocks. */
GW_NATIVE __m128i gw_avx2_unit_sum(gw_avx2_unit x)
{
    return _mm_xor_si128(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

/* Returns a mask of the first words. */
GW_NATIVE gw_avx2_unit gw_avx2_unit_mask(int words)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(words), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Loads the words of a mask. The other words are 0, and are not read. */
GW_NATIVE gw_avx2_unit gw_avx2_unit_load_part(const gw_u8 *at, gw_avx2_unit mask)
{
    return _mm256_maskload_epi32((const int *)(const void *)at, mask);
}
#else
#define GW_AVX2_UNIT_BLOCKS               1u
typedef __m128i gw_avx2_unit;
#define GW_AVX2_UNIT_ALL(block)           (block)
#define GW_AVX2_UNIT_FIRST(block)         (block)
#define GW_AVX2_UNIT_END(block)           (block)
#define GW_AVX2_UNIT_LOAD(at)             _mm_loadu_si128((const __m128i *)(const void *)(at))
#define GW_AVX2_UNIT_STORE(at, x)         _mm_storeu_si128((__m128i *)(void *)(at), x)
#define GW_AVX2_UNIT_XOR(x, y)            _mm_xor_si128(x, y)
#define GW_AVX2_UNIT_AND(x, y)            _mm_and_si128(x, y)
#define GW_AVX2_UNIT_ADD(x, y)            _mm_add_epi32(x, y)
#define GW_AVX2_UNIT_SHUFFLE(x, order)    _mm_shuffle_epi8(x, order)
#define GW_AVX2_UNIT_BEFORE(before, x)    (before)
#define GW_AVX2_UNIT_COUNTERS             _mm_setzero_si128()
#define GW_AVX2_UNIT_ENCRYPT(x, key)      _mm_aesenc_si128(x, key)
#define GW_AVX2_UNIT_LAST(x, key)         _mm_aesenclast_si128(x, key)
#define GW_AVX2_UNIT_DECRYPT(x, key)      _mm_aesdec_si128(x, key)
#define GW_AVX2_UNIT_DECRYPT_LAST(x, key) _mm_aesdeclast_si128(x, key)
#define GW_AVX2_UNIT_MULTIPLY(x, y, k)    _mm_clmulepi64_si128(x, y, k)

GW_NATIVE __m128i gw_avx2_unit_sum(gw_avx2_unit x)
{
    return x;
}

GW_NATIVE gw_avx2_unit gw_avx2_unit_mask(int words)
{
    return _mm_cmpgt_epi32(_mm_set1_epi32(words), _mm_setr_epi32(0, 1, 2, 3));
}

GW_NATIVE gw_avx2_unit gw_avx2_unit_load_part(const gw_u8 *at, gw_avx2_unit mask)
{
    return _mm_maskload_epi32((const int *)(const void *)at, mask);
}
#endif

#define GW_AVX2_UNIT_BYTES (16u * GW_AVX2_UNIT_BLOCKS)

/* Blocks, bytes and registers of a step. */
#define GW_AVX2_STEP_BLOCKS 8u
#define GW_AVX2_STEP_BYTES  (16u * GW_AVX2_STEP_BLOCKS)
#define GW_AVX2_STEP_UNITS  (GW_AVX2_STEP_BLOCKS / GW_AVX2_UNIT_BLOCKS)

/* Stores the first bytes of a register. The number of bytes is a multiple of 4. */
GW_NATIVE void gw_avx2_unit_store_part(gw_u8 *at, gw_avx2_unit blocks, gw_u32 bytes)
{
    gw_u8 stored[GW_AVX2_UNIT_BYTES];
    if (bytes >= GW_AVX2_UNIT_BYTES) {
        GW_AVX2_UNIT_STORE(at, blocks);
        return;
    }
    GW_AVX2_UNIT_STORE(stored, blocks);
    for (gw_u32 i = 0; i < bytes; i += 4) {
        gw_store_le32(at + i, gw_load_le32(stored + i));
    }
}

#endif
