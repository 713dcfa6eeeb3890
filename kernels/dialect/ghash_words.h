/*
 * GHASH with 32-bit multiplication. The header ghash.h includes this file and documents its
 * functions.
 *
 * A carry-less product is built from integer products of sparse numbers, in which only every fourth
 * bit can be set. At most eight of these bits add up, so no carry reaches the next used bit
 * (Pornin, BearSSL, "Constant-Time Mul and GHASH").
 */
#ifndef GODWIT_GHASH_WORDS_H
#define GODWIT_GHASH_WORDS_H

/* GHASH element with 128 coefficients. Word 0 holds the coefficients of x^0 to x^31. */
typedef struct gw_ghash_element {
    gw_u32 word0;
    gw_u32 word1;
    gw_u32 word2;
    gw_u32 word3;
} gw_ghash_element;

GW_LANE gw_ghash_element gw_ghash_words(gw_u32 a, gw_u32 b, gw_u32 c, gw_u32 d)
{
    gw_ghash_element element;
    element.word0 = d;
    element.word1 = c;
    element.word2 = b;
    element.word3 = a;
    return element;
}

GW_LANE gw_ghash_element gw_ghash_zero(void)
{
    return gw_ghash_words(0, 0, 0, 0);
}

GW_LANE gw_u32 gw_ghash_word(gw_ghash_element element, gw_u32 i)
{
    return i == 0 ? element.word3 : i == 1 ? element.word2 : i == 2 ? element.word1 : element.word0;
}

GW_LANE gw_ghash_element gw_ghash_key(const GW_GLOBAL gw_u32 *words)
{
    return gw_ghash_words(words[3], words[2], words[1], words[0]);
}

GW_LANE gw_ghash_element gw_ghash_add(gw_ghash_element x, gw_ghash_element y)
{
    x.word0 ^= y.word0;
    x.word1 ^= y.word1;
    x.word2 ^= y.word2;
    x.word3 ^= y.word3;
    return x;
}

/* Returns the carry-less product of two words. */
GW_LANE gw_u64 gw_ghash_multiply32(gw_u32 x, gw_u32 y)
{
    const gw_u32 x0 = x & 0x11111111u;
    const gw_u32 x1 = x & 0x22222222u;
    const gw_u32 x2 = x & 0x44444444u;
    const gw_u32 x3 = x & 0x88888888u;
    const gw_u32 y0 = y & 0x11111111u;
    const gw_u32 y1 = y & 0x22222222u;
    const gw_u32 y2 = y & 0x44444444u;
    const gw_u32 y3 = y & 0x88888888u;
    const gw_u64 z0 = (gw_u64)x0 * y0 ^ (gw_u64)x1 * y3 ^ (gw_u64)x2 * y2 ^ (gw_u64)x3 * y1;
    const gw_u64 z1 = (gw_u64)x0 * y1 ^ (gw_u64)x1 * y0 ^ (gw_u64)x2 * y3 ^ (gw_u64)x3 * y2;
    const gw_u64 z2 = (gw_u64)x0 * y2 ^ (gw_u64)x1 * y1 ^ (gw_u64)x2 * y0 ^ (gw_u64)x3 * y3;
    const gw_u64 z3 = (gw_u64)x0 * y3 ^ (gw_u64)x1 * y2 ^ (gw_u64)x2 * y1 ^ (gw_u64)x3 * y0;
    const gw_u64 mask = ((gw_u64)0x11111111u << 32) | 0x11111111u;
    return (z0 & mask) | (z1 & mask << 1) | (z2 & mask << 2) | (z3 & mask << 3);
}

/* Product of two polynomials with 64 coefficients each, by Karatsuba's method with three
 * multiplications. */
typedef struct gw_ghash_half {
    gw_u64 low;
    gw_u64 high;
} gw_ghash_half;

GW_LANE gw_ghash_half gw_ghash_multiply64(gw_u32 x0, gw_u32 x1, gw_u32 y0, gw_u32 y1)
{
    gw_ghash_half product;
    product.low = gw_ghash_multiply32(x0, y0);
    product.high = gw_ghash_multiply32(x1, y1);
    const gw_u64 middle = gw_ghash_multiply32(x0 ^ x1, y0 ^ y1) ^ product.low ^ product.high;
    product.low ^= middle << 32;
    product.high ^= middle >> 32;
    return product;
}

GW_LANE gw_ghash_element gw_ghash_multiply(gw_ghash_element x, gw_ghash_element y)
{
    const gw_ghash_half low = gw_ghash_multiply64(x.word0, x.word1, y.word0, y.word1);
    const gw_ghash_half high = gw_ghash_multiply64(x.word2, x.word3, y.word2, y.word3);
    gw_ghash_half middle = gw_ghash_multiply64(x.word0 ^ x.word2, x.word1 ^ x.word3,
                                               y.word0 ^ y.word2, y.word1 ^ y.word3);
    middle.low ^= low.low ^ high.low;
    middle.high ^= low.high ^ high.high;
    const gw_u64 second = low.high ^ middle.low;
    const gw_u64 third = high.low ^ middle.high;
    const gw_u32 v0 = (gw_u32)low.low;
    gw_u32 v1 = (gw_u32)(low.low >> 32);
    gw_u32 v2 = (gw_u32)second;
    gw_u32 v3 = (gw_u32)(second >> 32);
    gw_ghash_element v;
    v.word0 = (gw_u32)third;
    v.word1 = (gw_u32)(third >> 32);
    v.word2 = (gw_u32)high.high;
    v.word3 = (gw_u32)(high.high >> 32);
    /* Reduce the 256-bit product modulo x^128 + x^127 + x^126 + x^121 + 1 with Montgomery's method.
     * Add multiples of the polynomial that clear the low half, one word at a time. */
    v3 ^= v0 << 31 ^ v0 << 30 ^ v0 << 25;
    v.word0 ^= v0 ^ v0 >> 1 ^ v0 >> 2 ^ v0 >> 7;
    v.word0 ^= v1 << 31 ^ v1 << 30 ^ v1 << 25;
    v.word1 ^= v1 ^ v1 >> 1 ^ v1 >> 2 ^ v1 >> 7;
    v.word1 ^= v2 << 31 ^ v2 << 30 ^ v2 << 25;
    v.word2 ^= v2 ^ v2 >> 1 ^ v2 >> 2 ^ v2 >> 7;
    v.word2 ^= v3 << 31 ^ v3 << 30 ^ v3 << 25;
    v.word3 ^= v3 ^ v3 >> 1 ^ v3 >> 2 ^ v3 >> 7;
    return v;
}

GW_LANE gw_ghash_element gw_ghash_load(const GW_GLOBAL gw_u8 *block)
{
    return gw_ghash_words(gw_load_be32(block), gw_load_be32(block + 4), gw_load_be32(block + 8),
                          gw_load_be32(block + 12));
}

GW_APART gw_ghash_element gw_ghash_blocks(gw_ghash_element sum, const GW_GLOBAL gw_u32 *keys,
                                          const GW_GLOBAL gw_u8 *data, gw_u32 blocks)
{
    const gw_ghash_element key = gw_ghash_key(keys);
    for (gw_u32 i = 0; i < blocks; i++) {
        sum = gw_ghash_multiply(gw_ghash_add(sum, gw_ghash_load(data + 16 * i)), key);
    }
    return sum;
}

#endif
