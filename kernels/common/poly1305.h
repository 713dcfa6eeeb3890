/* The one-time authenticator Poly1305 (RFC 8439, section 2.5). A 130-bit number consists of five
 * 26-bit limbs. The run time does not depend on keys or data. */
#ifndef GODWIT_POLY1305_H
#define GODWIT_POLY1305_H

#include "text.h"

#define GW_POLY1305_LIMB 0x3ffffffu

/* A number modulo 2^130 - 5, as five limbs with weights 2^0, 2^26, 2^52, 2^78 and 2^104. A limb may
 * slightly exceed 26 bits. */
typedef struct gw_poly1305 {
    gw_u32 limb0;
    gw_u32 limb1;
    gw_u32 limb2;
    gw_u32 limb3;
    gw_u32 limb4;
} gw_poly1305;

GW_LANE gw_poly1305 gw_poly1305_zero(void)
{
    gw_poly1305 zero;
    zero.limb0 = 0;
    zero.limb1 = 0;
    zero.limb2 = 0;
    zero.limb3 = 0;
    zero.limb4 = 0;
    return zero;
}

/* Converts a 16-byte block to a Poly1305 number and adds top << 128. The little-endian words a to d
 * form the block. */
GW_LANE gw_poly1305 gw_poly1305_words(gw_u32 a, gw_u32 b, gw_u32 c, gw_u32 d, gw_u32 top)
{
    gw_poly1305 number;
    number.limb0 = a & GW_POLY1305_LIMB;
    number.limb1 = (a >> 26 | b << 6) & GW_POLY1305_LIMB;
    number.limb2 = (b >> 20 | c << 12) & GW_POLY1305_LIMB;
    number.limb3 = (c >> 14 | d << 18) & GW_POLY1305_LIMB;
    number.limb4 = d >> 8 | top << 24;
    return number;
}

/* Returns the multiplier r of a Poly1305 key. The words a to d are the first half of the key. The
 * function clears some of their bits (RFC 8439, section 2.5). */
GW_LANE gw_poly1305 gw_poly1305_clamp(gw_u32 a, gw_u32 b, gw_u32 c, gw_u32 d)
{
    return gw_poly1305_words(a & 0x0fffffffu, b & 0x0ffffffcu, c & 0x0ffffffcu, d & 0x0ffffffcu, 0);
}

GW_LANE gw_poly1305 gw_poly1305_add(gw_poly1305 x, gw_poly1305 y)
{
    x.limb0 += y.limb0;
    x.limb1 += y.limb1;
    x.limb2 += y.limb2;
    x.limb3 += y.limb3;
    x.limb4 += y.limb4;
    return x;
}

/* Returns x * y modulo 2^130 - 5. The limbs of x must be below 2^28, and the limbs of y below 2^27.
 * The limbs of the product are below 2^26, except the second one, which is below 2^27. The part
 * above 2^130 is multiplied by 5, because 2^130 equals 5 modulo 2^130 - 5. */
GW_LANE gw_poly1305 gw_poly1305_multiply(gw_poly1305 x, gw_poly1305 y)
{
    const gw_u64 x0 = x.limb0;
    const gw_u64 x1 = x.limb1;
    const gw_u64 x2 = x.limb2;
    const gw_u64 x3 = x.limb3;
    const gw_u64 x4 = x.limb4;
    const gw_u32 s1 = 5 * y.limb1;
    const gw_u32 s2 = 5 * y.limb2;
    const gw_u32 s3 = 5 * y.limb3;
    const gw_u32 s4 = 5 * y.limb4;
    gw_u64 d0 = x0 * y.limb0 + x1 * s4 + x2 * s3 + x3 * s2 + x4 * s1;
    gw_u64 d1 = x0 * y.limb1 + x1 * y.limb0 + x2 * s4 + x3 * s3 + x4 * s2;
    gw_u64 d2 = x0 * y.limb2 + x1 * y.limb1 + x2 * y.limb0 + x3 * s4 + x4 * s3;
    gw_u64 d3 = x0 * y.limb3 + x1 * y.limb2 + x2 * y.limb1 + x3 * y.limb0 + x4 * s4;
    gw_u64 d4 = x0 * y.limb4 + x1 * y.limb3 + x2 * y.limb2 + x3 * y.limb1 + x4 * y.limb0;
    d1 += d0 >> 26;
    d2 += d1 >> 26;
    d3 += d2 >> 26;
    d4 += d3 >> 26;
    const gw_u64 low = (d0 & GW_POLY1305_LIMB) + 5 * (d4 >> 26);
    gw_poly1305 product;
    product.limb0 = (gw_u32)low & GW_POLY1305_LIMB;
    product.limb1 = ((gw_u32)d1 & GW_POLY1305_LIMB) + (gw_u32)(low >> 26);
    product.limb2 = (gw_u32)d2 & GW_POLY1305_LIMB;
    product.limb3 = (gw_u32)d3 & GW_POLY1305_LIMB;
    product.limb4 = (gw_u32)d4 & GW_POLY1305_LIMB;
    return product;
}

/* Adds complete blocks of 16 bytes to a Poly1305 sum. */
GW_LANE gw_poly1305 gw_poly1305_blocks(gw_poly1305 sum, gw_poly1305 r, const GW_GLOBAL gw_u8 *data,
                                       gw_u32 blocks)
{
    for (gw_u32 i = 0; i < blocks; i++) {
        const GW_GLOBAL gw_u8 *at = data + 16 * i;
        const gw_poly1305 block = gw_poly1305_words(gw_load_le32(at), gw_load_le32(at + 4),
                                                    gw_load_le32(at + 8), gw_load_le32(at + 12), 1);
        sum = gw_poly1305_multiply(gw_poly1305_add(sum, block), r);
    }
    return sum;
}

/* Adds a text to a Poly1305 sum. An incomplete last block is padded with zeros (RFC 8439, section
 * 2.8). */
GW_LANE gw_poly1305 gw_poly1305_text(gw_poly1305 sum, gw_poly1305 r, gw_text text)
{
    sum = gw_poly1305_blocks(sum, r, text.data, text.bytes / 16);
    const gw_u32 at = text.bytes & ~15u;
    if (at == text.bytes) {
        return sum;
    }
    const gw_poly1305 last = gw_poly1305_words(gw_reverse32(gw_text_word(text, at, 0)),
                                               gw_reverse32(gw_text_word(text, at + 4, 0)),
                                               gw_reverse32(gw_text_word(text, at + 8, 0)),
                                               gw_reverse32(gw_text_word(text, at + 12, 0)), 1);
    return gw_poly1305_multiply(gw_poly1305_add(sum, last), r);
}

/* Computes the Poly1305 tag as little-endian words: the sum over all blocks modulo 2^130 - 5, plus
 * the second half `s` of the one-time key. */
GW_LANE void gw_poly1305_tag(gw_poly1305 sum, const gw_u32 *s, gw_u32 *tag)
{
    /* Reduce each limb to 26 bits. Two passes are necessary, because the last limb carries into the
     * first. */
    for (gw_u32 i = 0; i < 2; i++) {
        sum.limb1 += sum.limb0 >> 26;
        sum.limb0 &= GW_POLY1305_LIMB;
        sum.limb2 += sum.limb1 >> 26;
        sum.limb1 &= GW_POLY1305_LIMB;
        sum.limb3 += sum.limb2 >> 26;
        sum.limb2 &= GW_POLY1305_LIMB;
        sum.limb4 += sum.limb3 >> 26;
        sum.limb3 &= GW_POLY1305_LIMB;
        sum.limb0 += 5 * (sum.limb4 >> 26);
        sum.limb4 &= GW_POLY1305_LIMB;
    }
    sum.limb1 += sum.limb0 >> 26;
    sum.limb0 &= GW_POLY1305_LIMB;
    /* If the sum is at least 2^130 - 5, adding 5 gives a carry into bit 130. */
    gw_u32 carry = (sum.limb0 + 5) >> 26;
    carry = (sum.limb1 + carry) >> 26;
    carry = (sum.limb2 + carry) >> 26;
    carry = (sum.limb3 + carry) >> 26;
    carry = (sum.limb4 + carry) >> 26;
    /* If there is a carry, subtract 2^130 - 5 from the sum. The code adds 5 instead and ignores the
     * bits from 2^128 on. */
    gw_u64 part = (gw_u64)sum.limb0 + 5 * carry + ((gw_u64)sum.limb1 << 26);
    part += s[0];
    tag[0] = (gw_u32)part;
    part = (part >> 32) + ((gw_u64)sum.limb2 << 20) + s[1];
    tag[1] = (gw_u32)part;
    part = (part >> 32) + ((gw_u64)sum.limb3 << 14) + s[2];
    tag[2] = (gw_u32)part;
    part = (part >> 32) + ((gw_u64)sum.limb4 << 8) + s[3];
    tag[3] = (gw_u32)part;
}

#endif
