/* Poly1305 for sixteen texts at once (RFC 8439, section 2.5). As in poly1305.h, a 130-bit number
 * consists of five 26-bit limbs. A register holds one limb of each text, in 32-bit words. Products
 * have 64 bits, so the words at even and at odd positions are multiplied separately. */
#ifndef GODWIT_IPSEC_AVX512_POLY_H
#define GODWIT_IPSEC_AVX512_POLY_H

#include "avx512_group.h"

typedef struct gw_avx512_poly {
    __m512i sum[5];
    __m512i r[2][5];     /* r of even and of odd lanes, in the lower half of 64-bit elements */
    __m512i fives[2][5]; /* r times 5 */
} gw_avx512_poly;

/* Converts four words of each text to five limbs, and adds top << 128. */
GW_AVX512 void gw_avx512_poly_limbs(__m512i limbs[5], const __m512i words[4], gw_u32 top)
{
    const __m512i limb = _mm512_set1_epi32(GW_POLY1305_LIMB);
    limbs[0] = _mm512_and_si512(words[0], limb);
    limbs[1] = _mm512_and_si512(
        _mm512_or_si512(_mm512_srli_epi32(words[0], 26), _mm512_slli_epi32(words[1], 6)), limb);
    limbs[2] = _mm512_and_si512(
        _mm512_or_si512(_mm512_srli_epi32(words[1], 20), _mm512_slli_epi32(words[2], 12)), limb);
    limbs[3] = _mm512_and_si512(
        _mm512_or_si512(_mm512_srli_epi32(words[2], 14), _mm512_slli_epi32(words[3], 18)), limb);
    limbs[4] = _mm512_or_si512(_mm512_srli_epi32(words[3], 8), _mm512_set1_epi32((int)(top << 24)));
}

/* Starts the Poly1305 sums of sixteen texts. The multiplier r is the first half of the one-time key
 * with some bits cleared (RFC 8439, section 2.5). */
GW_AVX512 void gw_avx512_poly_begin(gw_avx512_poly *poly, const __m512i one_time_key[4])
{
    static const gw_u32 clamp[4] = {0x0fffffffu, 0x0ffffffcu, 0x0ffffffcu, 0x0ffffffcu};
    __m512i words[4];
    __m512i limbs[5];
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        words[i] = _mm512_and_si512(one_time_key[i], _mm512_set1_epi32((int)clamp[i]));
    }
    gw_avx512_poly_limbs(limbs, words, 0);
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 5; i++) {
        const __m512i fives = _mm512_add_epi32(limbs[i], _mm512_slli_epi32(limbs[i], 2));
        poly->sum[i] = _mm512_setzero_si512();
        poly->r[0][i] = limbs[i];
        poly->r[1][i] = _mm512_srli_epi64(limbs[i], 32);
        poly->fives[0][i] = fives;
        poly->fives[1][i] = _mm512_srli_epi64(fives, 32);
    }
}

/* Computes the Poly1305 product x * r for eight texts, in the lower half of each 64-bit element.
 * The limbs of the product have the same bounds as in gw_poly1305_multiply. */
GW_AVX512 void gw_avx512_poly_multiply(__m512i product[5], const __m512i x[5], const __m512i r[5],
                                       const __m512i fives[5])
{
    const __m512i limb = _mm512_set1_epi64(GW_POLY1305_LIMB);
    __m512i d[5];
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 5; i++) {
        d[i] = _mm512_mul_epu32(x[0], r[i]);
        GW_AVX512_UNROLL
        for (gw_u32 k = 1; k < 5; k++) {
            const __m512i y = k <= i ? r[i - k] : fives[5 + i - k];
            d[i] = _mm512_add_epi64(d[i], _mm512_mul_epu32(x[k], y));
        }
    }
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        d[i + 1] = _mm512_add_epi64(d[i + 1], _mm512_srli_epi64(d[i], 26));
        d[i] = _mm512_and_si512(d[i], limb);
    }
    const __m512i over = _mm512_srli_epi64(d[4], 26);
    d[0] = _mm512_add_epi64(d[0], _mm512_add_epi64(over, _mm512_slli_epi64(over, 2)));
    product[0] = _mm512_and_si512(d[0], limb);
    product[1] = _mm512_add_epi64(d[1], _mm512_srli_epi64(d[0], 26));
    product[2] = d[2];
    product[3] = d[3];
    product[4] = _mm512_and_si512(d[4], limb);
}

/* Adds one block to the Poly1305 sum of each text that `active` selects. */
static __attribute__((noinline)) void gw_avx512_poly_take(gw_avx512_poly *poly,
                                                          const __m512i words[4], __mmask16 active)
{
    __m512i x[5];
    __m512i odd_x[5];
    __m512i even[5];
    __m512i odd[5];
    gw_avx512_poly_limbs(x, words, 1);
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 5; i++) {
        x[i] = _mm512_add_epi32(x[i], poly->sum[i]);
        odd_x[i] = _mm512_srli_epi64(x[i], 32);
    }
    gw_avx512_poly_multiply(even, x, poly->r[0], poly->fives[0]);
    gw_avx512_poly_multiply(odd, odd_x, poly->r[1], poly->fives[1]);
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 5; i++) {
        const __m512i both = _mm512_or_si512(even[i], _mm512_slli_epi64(odd[i], 32));
        poly->sum[i] = _mm512_mask_mov_epi32(poly->sum[i], active, both);
    }
}

/* Computes the Poly1305 tags of sixteen texts, in network byte order. `last` contains the second
 * half of each one-time key. */
GW_AVX512 void gw_avx512_poly_tags(const gw_avx512_poly *poly, const __m512i last[4],
                                   __m128i tags[GW_AVX512_LANES])
{
    gw_u32 limbs[5][GW_AVX512_LANES];
    gw_u32 words[4][GW_AVX512_LANES];
    for (gw_u32 i = 0; i < 5; i++) {
        _mm512_storeu_si512(limbs[i], poly->sum[i]);
    }
    for (gw_u32 i = 0; i < 4; i++) {
        _mm512_storeu_si512(words[i], last[i]);
    }
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
        const gw_poly1305 sum = {limbs[0][i], limbs[1][i], limbs[2][i], limbs[3][i], limbs[4][i]};
        const gw_u32 s[4] = {words[0][i], words[1][i], words[2][i], words[3][i]};
        gw_u32 tag[4];
        gw_poly1305_tag(sum, s, tag);
        tags[i] = _mm_loadu_si128((const __m128i *)(const void *)tag);
    }
}

#endif
