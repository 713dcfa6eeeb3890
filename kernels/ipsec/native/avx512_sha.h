/* SHA-1 and SHA-256 for sixteen packets at once (FIPS 180-4, section 6). A call processes one block
 * of each packet. */
#ifndef GODWIT_IPSEC_AVX512_SHA_H
#define GODWIT_IPSEC_AVX512_SHA_H

#include "avx512.h"

/* Truth tables of Ch, Parity and Maj for the ternary logic instruction (FIPS 180-4, section
 * 4.1). */
#define GW_AVX512_CH     0xca
#define GW_AVX512_PARITY 0x96
#define GW_AVX512_MAJ    0xe8

#define GW_AVX512_LOGIC(table, a, b, c) _mm512_ternarylogic_epi32(a, b, c, table)

/* Performs one of the 80 SHA-1 rounds. The caller permutes the variables between rounds instead of
 * moving values. The result of the previous round is added last, because the other additions need
 * not wait for it. */
#define GW_AVX512_SHA1_ROUND(table, k, a, b, c, d, e, word)                                        \
    e = _mm512_add_epi32(e, _mm512_add_epi32(word, k));                                            \
    GW_AVX512_IN_ORDER(e);                                                                         \
    e = _mm512_add_epi32(e, GW_AVX512_LOGIC(table, b, c, d));                                      \
    GW_AVX512_IN_ORDER(e);                                                                         \
    e = _mm512_add_epi32(e, _mm512_rol_epi32(a, 5));                                               \
    GW_AVX512_IN_ORDER(e);                                                                         \
    b = _mm512_rol_epi32(b, 30)

/* Computes word t of the SHA-1 message schedule, for t >= 16. The result overwrites word t - 16 in
 * the 16-word array. */
#define GW_AVX512_SHA1_WORD(w, t)                                                                  \
    (w[(t)&15] =                                                                                   \
         _mm512_rol_epi32(_mm512_xor_si512(GW_AVX512_LOGIC(GW_AVX512_PARITY, w[((t) + 13) & 15],   \
                                                           w[((t) + 8) & 15], w[((t) + 2) & 15]),  \
                                           w[(t)&15]),                                             \
                          1))

#define GW_AVX512_SHA1_GIVEN(w, t) (w[t])

#define GW_AVX512_SHA1_FIVE(table, k, source, t)                                                   \
    GW_AVX512_SHA1_ROUND(table, k, a, b, c, d, e, source(w, (t)));                                 \
    GW_AVX512_SHA1_ROUND(table, k, e, a, b, c, d, source(w, (t) + 1));                             \
    GW_AVX512_SHA1_ROUND(table, k, d, e, a, b, c, source(w, (t) + 2));                             \
    GW_AVX512_SHA1_ROUND(table, k, c, d, e, a, b, source(w, (t) + 3));                             \
    GW_AVX512_SHA1_ROUND(table, k, b, c, d, e, a, source(w, (t) + 4))

/* Computes one sixteenth of a SHA-1 block: five rounds on the variables v. */
GW_AVX512 void gw_avx512_sha1_part(__m512i *v, __m512i *w, gw_u32 part)
{
    const gw_u32 t = 5 * part;
    __m512i a = v[0];
    __m512i b = v[1];
    __m512i c = v[2];
    __m512i d = v[3];
    __m512i e = v[4];
    if (part < 3) {
        const __m512i k = _mm512_set1_epi32(0x5a827999);
        GW_AVX512_SHA1_FIVE(GW_AVX512_CH, k, GW_AVX512_SHA1_GIVEN, t);
    } else if (part == 3) {
        const __m512i k = _mm512_set1_epi32(0x5a827999);
        GW_AVX512_SHA1_ROUND(GW_AVX512_CH, k, a, b, c, d, e, w[15]);
        GW_AVX512_SHA1_ROUND(GW_AVX512_CH, k, e, a, b, c, d, GW_AVX512_SHA1_WORD(w, 16));
        GW_AVX512_SHA1_ROUND(GW_AVX512_CH, k, d, e, a, b, c, GW_AVX512_SHA1_WORD(w, 17));
        GW_AVX512_SHA1_ROUND(GW_AVX512_CH, k, c, d, e, a, b, GW_AVX512_SHA1_WORD(w, 18));
        GW_AVX512_SHA1_ROUND(GW_AVX512_CH, k, b, c, d, e, a, GW_AVX512_SHA1_WORD(w, 19));
    } else if (part < 8) {
        const __m512i k = _mm512_set1_epi32(0x6ed9eba1);
        GW_AVX512_SHA1_FIVE(GW_AVX512_PARITY, k, GW_AVX512_SHA1_WORD, t);
    } else if (part < 12) {
        const __m512i k = _mm512_set1_epi32((int)0x8f1bbcdcu);
        GW_AVX512_SHA1_FIVE(GW_AVX512_MAJ, k, GW_AVX512_SHA1_WORD, t);
    } else {
        const __m512i k = _mm512_set1_epi32((int)0xca62c1d6u);
        GW_AVX512_SHA1_FIVE(GW_AVX512_PARITY, k, GW_AVX512_SHA1_WORD, t);
    }
    v[0] = a;
    v[1] = b;
    v[2] = c;
    v[3] = d;
    v[4] = e;
}

/* Round constants of SHA-256 (FIPS 180-4, section 4.2.2). */
static const gw_u32 gw_avx512_sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* Sigma functions of SHA-256 (FIPS 180-4, section 4.1.2). */
GW_AVX512 __m512i gw_avx512_sha256_sum0(__m512i x)
{
    return GW_AVX512_LOGIC(GW_AVX512_PARITY, _mm512_ror_epi32(x, 2), _mm512_ror_epi32(x, 13),
                           _mm512_ror_epi32(x, 22));
}

GW_AVX512 __m512i gw_avx512_sha256_sum1(__m512i x)
{
    return GW_AVX512_LOGIC(GW_AVX512_PARITY, _mm512_ror_epi32(x, 6), _mm512_ror_epi32(x, 11),
                           _mm512_ror_epi32(x, 25));
}

GW_AVX512 __m512i gw_avx512_sha256_word(const __m512i *w, gw_u32 t)
{
    const __m512i x = w[(t + 1) & 15];
    const __m512i y = w[(t + 14) & 15];
    const __m512i small0 = GW_AVX512_LOGIC(GW_AVX512_PARITY, _mm512_ror_epi32(x, 7),
                                           _mm512_ror_epi32(x, 18), _mm512_srli_epi32(x, 3));
    const __m512i small1 = GW_AVX512_LOGIC(GW_AVX512_PARITY, _mm512_ror_epi32(y, 17),
                                           _mm512_ror_epi32(y, 19), _mm512_srli_epi32(y, 10));
    return _mm512_add_epi32(_mm512_add_epi32(w[t & 15], small0),
                            _mm512_add_epi32(w[(t + 9) & 15], small1));
}

/* Performs one of the 64 SHA-256 rounds. The caller permutes the variables between rounds instead
 * of moving values. */
#define GW_AVX512_SHA256_ROUND(a, b, c, d, e, f, g, h, t)                                          \
    h = _mm512_add_epi32(                                                                          \
        h, _mm512_add_epi32(w[(t)&15], _mm512_set1_epi32((int)gw_avx512_sha256_k[t])));            \
    GW_AVX512_IN_ORDER(h);                                                                         \
    h = _mm512_add_epi32(h, GW_AVX512_LOGIC(GW_AVX512_CH, e, f, g));                               \
    GW_AVX512_IN_ORDER(h);                                                                         \
    h = _mm512_add_epi32(h, gw_avx512_sha256_sum1(e));                                             \
    GW_AVX512_IN_ORDER(h);                                                                         \
    d = _mm512_add_epi32(d, h);                                                                    \
    h = _mm512_add_epi32(h, GW_AVX512_LOGIC(GW_AVX512_MAJ, a, b, c));                              \
    GW_AVX512_IN_ORDER(h);                                                                         \
    h = _mm512_add_epi32(h, gw_avx512_sha256_sum0(a));                                             \
    GW_AVX512_IN_ORDER(h)

/* Computes one sixteenth of a SHA-256 block: four rounds on the variables v. */
GW_AVX512 void gw_avx512_sha256_part(__m512i *v, __m512i *w, gw_u32 part)
{
    const gw_u32 t = 4 * part;
    if (part >= 4) {
        GW_AVX512_UNROLL
        for (gw_u32 i = t; i < t + 4; i++) {
            w[i & 15] = gw_avx512_sha256_word(w, i);
        }
    }
    __m512i a = v[0];
    __m512i b = v[1];
    __m512i c = v[2];
    __m512i d = v[3];
    __m512i e = v[4];
    __m512i f = v[5];
    __m512i g = v[6];
    __m512i h = v[7];
    GW_AVX512_SHA256_ROUND(a, b, c, d, e, f, g, h, t);
    GW_AVX512_SHA256_ROUND(h, a, b, c, d, e, f, g, t + 1);
    GW_AVX512_SHA256_ROUND(g, h, a, b, c, d, e, f, t + 2);
    GW_AVX512_SHA256_ROUND(f, g, h, a, b, c, d, e, t + 3);
    /* Rounds do not move values between variables. After four rounds, the first and the last four
     * variables have swapped roles. */
    v[0] = e;
    v[1] = f;
    v[2] = g;
    v[3] = h;
    v[4] = a;
    v[5] = b;
    v[6] = c;
    v[7] = d;
}

#endif
