/* GHASH with the carry-less multiplication of x86. The header ghash.h includes this file and
 * documents its functions. */
#ifndef GODWIT_GHASH_CLMUL_H
#define GODWIT_GHASH_CLMUL_H

#include <immintrin.h>

typedef __m128i gw_ghash_element;

/* Unreduced 256-bit product of two GHASH elements: low + middle * x^64 + high * x^128. */
typedef struct gw_ghash_product {
    __m128i low;
    __m128i middle;
    __m128i high;
} gw_ghash_product;

GW_LANE gw_ghash_element gw_ghash_zero(void)
{
    return _mm_setzero_si128();
}

GW_LANE gw_ghash_element gw_ghash_words(gw_u32 a, gw_u32 b, gw_u32 c, gw_u32 d)
{
    return _mm_setr_epi32((int)d, (int)c, (int)b, (int)a);
}

GW_LANE gw_u32 gw_ghash_word(gw_ghash_element element, gw_u32 i)
{
    gw_u32 words[4];
    _mm_storeu_si128((__m128i *)words, element);
    return words[3 - i];
}

GW_LANE gw_ghash_element gw_ghash_key(const gw_u32 *words)
{
    return _mm_loadu_si128((const __m128i *)words);
}

GW_LANE gw_ghash_element gw_ghash_add(gw_ghash_element x, gw_ghash_element y)
{
    return _mm_xor_si128(x, y);
}

GW_LANE gw_ghash_element gw_ghash_load(const gw_u8 *block)
{
    const __m128i reversed = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)block), reversed);
}

GW_LANE gw_ghash_product gw_ghash_expand(gw_ghash_element x, gw_ghash_element y)
{
    gw_ghash_product product;
    product.low = _mm_clmulepi64_si128(x, y, 0x00);
    product.high = _mm_clmulepi64_si128(x, y, 0x11);
    product.middle =
        _mm_xor_si128(_mm_clmulepi64_si128(x, y, 0x01), _mm_clmulepi64_si128(x, y, 0x10));
    return product;
}

GW_LANE gw_ghash_product gw_ghash_gather(gw_ghash_product x, gw_ghash_product y)
{
    x.low = _mm_xor_si128(x.low, y.low);
    x.middle = _mm_xor_si128(x.middle, y.middle);
    x.high = _mm_xor_si128(x.high, y.high);
    return x;
}

/* Reduces a 256-bit product of GHASH elements modulo x^128 + x^127 + x^126 + x^121 + 1 with
 * Montgomery's method. It adds multiples of the polynomial that clear the low half, 64 bits at a
 * time. */
GW_LANE gw_ghash_element gw_ghash_reduce(gw_ghash_product product)
{
    const __m128i polynomial = _mm_set_epi64x(0, (long long)0xc200000000000000ull);
    __m128i low = _mm_xor_si128(product.low, _mm_slli_si128(product.middle, 8));
    const __m128i high = _mm_xor_si128(product.high, _mm_srli_si128(product.middle, 8));
    low = _mm_xor_si128(_mm_shuffle_epi32(low, 0x4e), _mm_clmulepi64_si128(low, polynomial, 0x00));
    low = _mm_xor_si128(_mm_shuffle_epi32(low, 0x4e), _mm_clmulepi64_si128(low, polynomial, 0x00));
    return _mm_xor_si128(high, low);
}

GW_LANE gw_ghash_element gw_ghash_multiply(gw_ghash_element x, gw_ghash_element y)
{
    return gw_ghash_reduce(gw_ghash_expand(x, y));
}

/* Adds whole blocks to a GHASH sum, with one reduction for every four blocks. */
GW_LANE gw_ghash_element gw_ghash_blocks(gw_ghash_element sum, const gw_u32 *keys,
                                         const gw_u8 *data, gw_u32 blocks)
{
    const __m128i h1 = gw_ghash_key(keys);
    gw_u32 i = 0;
    if (blocks >= 4) {
        const __m128i h2 = gw_ghash_key(keys + GW_GHASH_KEY_WORDS);
        const __m128i h3 = gw_ghash_key(keys + 2 * GW_GHASH_KEY_WORDS);
        const __m128i h4 = gw_ghash_key(keys + 3 * GW_GHASH_KEY_WORDS);
        for (; i + 4 <= blocks; i += 4) {
            const gw_u8 *at = data + 16 * i;
            gw_ghash_product product = gw_ghash_expand(_mm_xor_si128(sum, gw_ghash_load(at)), h4);
            product = gw_ghash_gather(product, gw_ghash_expand(gw_ghash_load(at + 16), h3));
            product = gw_ghash_gather(product, gw_ghash_expand(gw_ghash_load(at + 32), h2));
            product = gw_ghash_gather(product, gw_ghash_expand(gw_ghash_load(at + 48), h1));
            sum = gw_ghash_reduce(product);
        }
    }
    for (; i < blocks; i++) {
        sum = gw_ghash_multiply(_mm_xor_si128(sum, gw_ghash_load(data + 16 * i)), h1);
    }
    return sum;
}

#endif
