/* SHA-1 and SHA-256 for eight packets at once (FIPS 180-4, section 6). A call processes one block
 * of each packet. */
#ifndef GODWIT_IPSEC_AVX2_SHA_H
#define GODWIT_IPSEC_AVX2_SHA_H

#include "avx2.h"

/* Returns the function of round t of SHA-1 (FIPS 180-4, section 4.1.1). */
GW_NATIVE gw_words_8 gw_avx2_sha1_function(gw_u32 t, gw_words_8 b, gw_words_8 c, gw_words_8 d)
{
    if (t < 20) {
        return d ^ (b & (c ^ d));
    }
    return t >= 40 && t < 60 ? (b & c) | (d & (b | c)) : b ^ c ^ d;
}

GW_NATIVE gw_u32 gw_avx2_sha1_constant(gw_u32 t)
{
    return t < 20 ? 0x5a827999u : (t < 40 ? 0x6ed9eba1u : (t < 60 ? 0x8f1bbcdcu : 0xca62c1d6u));
}

/* Computes the SHA-1 rounds of one block on the variables `v`. Overwrites the words. */
GW_NATIVE void gw_avx2_sha1_rounds(gw_words_8 v[5], gw_words_8 w[16])
{
    gw_words_8 a = v[0];
    gw_words_8 b = v[1];
    gw_words_8 c = v[2];
    gw_words_8 d = v[3];
    gw_words_8 e = v[4];
    GW_AVX2_UNROLL_ROUNDS
    for (gw_u32 t = 0; t < 80; t++) {
        if (t >= 16) {
            w[t & 15] = gw_avx2_rotate_left(
                w[(t + 13) & 15] ^ w[(t + 8) & 15] ^ w[(t + 2) & 15] ^ w[t & 15], 1);
        }
        e += w[t & 15] + gw_avx2_set(gw_avx2_sha1_constant(t));
        e += gw_avx2_sha1_function(t, b, c, d);
        const gw_words_8 next = e + gw_avx2_rotate_left(a, 5);
        e = d;
        d = c;
        c = gw_avx2_rotate_left(b, 30);
        b = a;
        a = next;
    }
    v[0] = a;
    v[1] = b;
    v[2] = c;
    v[3] = d;
    v[4] = e;
}

/* Returns the XOR of three rotations to the right. */
GW_NATIVE gw_words_8 gw_avx2_turn(gw_words_8 x, gw_u32 i, gw_u32 j, gw_u32 k)
{
    return gw_avx2_rotate_left(x, 32 - i) ^ gw_avx2_rotate_left(x, 32 - j) ^
           gw_avx2_rotate_left(x, 32 - k);
}

/* Returns the XOR of two rotations and a shift to the right. */
GW_NATIVE gw_words_8 gw_avx2_shift(gw_words_8 x, gw_u32 i, gw_u32 j, gw_u32 k)
{
    return gw_avx2_rotate_left(x, 32 - i) ^ gw_avx2_rotate_left(x, 32 - j) ^ x >> k;
}

/* Computes the SHA-256 rounds of one block on the variables `v`. Overwrites the words. */
GW_NATIVE void gw_avx2_sha256_rounds(gw_words_8 v[8], gw_words_8 w[16])
{
    gw_words_8 a = v[0];
    gw_words_8 b = v[1];
    gw_words_8 c = v[2];
    gw_words_8 d = v[3];
    gw_words_8 e = v[4];
    gw_words_8 f = v[5];
    gw_words_8 g = v[6];
    gw_words_8 h = v[7];
    GW_AVX2_UNROLL_ROUNDS
    for (gw_u32 t = 0; t < 64; t++) {
        if (t >= 16) {
            w[t & 15] += gw_avx2_shift(w[(t + 14) & 15], 17, 19, 10) + w[(t + 9) & 15] +
                         gw_avx2_shift(w[(t + 1) & 15], 7, 18, 3);
        }
        h += w[t & 15] + gw_avx2_set(gw_sha256_constants[t]);
        h += (g ^ (e & (f ^ g))) + gw_avx2_turn(e, 6, 11, 25);
        const gw_words_8 next = h + ((a & b) | (c & (a | b))) + gw_avx2_turn(a, 2, 13, 22);
        const gw_words_8 middle = d + h;
        h = g;
        g = f;
        f = e;
        e = middle;
        d = c;
        c = b;
        b = a;
        a = next;
    }
    v[0] = a;
    v[1] = b;
    v[2] = c;
    v[3] = d;
    v[4] = e;
    v[5] = f;
    v[6] = g;
    v[7] = h;
}

#endif
