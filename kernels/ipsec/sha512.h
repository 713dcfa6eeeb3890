/* SHA-384 and SHA-512 (FIPS 180-4, sections 6.4 and 6.5), HMAC-SHA-384 and HMAC-SHA-512 (RFC 2104,
 * RFC 4868). The SA (security association) holds the hash states after the two key blocks of HMAC,
 * instead of the key. */
#ifndef GODWIT_SHA512_H
#define GODWIT_SHA512_H

#include "../common/text.h"

#define GW_SHA512_BLOCK_BYTES 128u

/* Lengths of the digests in 64-bit words. */
#define GW_SHA384_DIGEST_WORDS 6u
#define GW_SHA512_DIGEST_WORDS 8u

typedef struct gw_sha512 {
    gw_u64 a;
    gw_u64 b;
    gw_u64 c;
    gw_u64 d;
    gw_u64 e;
    gw_u64 f;
    gw_u64 g;
    gw_u64 h;
} gw_sha512;

/* Round constants of SHA-384 and SHA-512 (FIPS 180-4, section 4.2.3). */
/* clang-format off */
GW_TABLE gw_u64 gw_sha512_constants[80] = {
    0x428a2f98d728ae22u, 0x7137449123ef65cdu, 0xb5c0fbcfec4d3b2fu, 0xe9b5dba58189dbbcu,
    0x3956c25bf348b538u, 0x59f111f1b605d019u, 0x923f82a4af194f9bu, 0xab1c5ed5da6d8118u,
    0xd807aa98a3030242u, 0x12835b0145706fbeu, 0x243185be4ee4b28cu, 0x550c7dc3d5ffb4e2u,
    0x72be5d74f27b896fu, 0x80deb1fe3b1696b1u, 0x9bdc06a725c71235u, 0xc19bf174cf692694u,
    0xe49b69c19ef14ad2u, 0xefbe4786384f25e3u, 0x0fc19dc68b8cd5b5u, 0x240ca1cc77ac9c65u,
    0x2de92c6f592b0275u, 0x4a7484aa6ea6e483u, 0x5cb0a9dcbd41fbd4u, 0x76f988da831153b5u,
    0x983e5152ee66dfabu, 0xa831c66d2db43210u, 0xb00327c898fb213fu, 0xbf597fc7beef0ee4u,
    0xc6e00bf33da88fc2u, 0xd5a79147930aa725u, 0x06ca6351e003826fu, 0x142929670a0e6e70u,
    0x27b70a8546d22ffcu, 0x2e1b21385c26c926u, 0x4d2c6dfc5ac42aedu, 0x53380d139d95b3dfu,
    0x650a73548baf63deu, 0x766a0abb3c77b2a8u, 0x81c2c92e47edaee6u, 0x92722c851482353bu,
    0xa2bfe8a14cf10364u, 0xa81a664bbc423001u, 0xc24b8b70d0f89791u, 0xc76c51a30654be30u,
    0xd192e819d6ef5218u, 0xd69906245565a910u, 0xf40e35855771202au, 0x106aa07032bbd1b8u,
    0x19a4c116b8d2d0c8u, 0x1e376c085141ab53u, 0x2748774cdf8eeb99u, 0x34b0bcb5e19b48a8u,
    0x391c0cb3c5c95a63u, 0x4ed8aa4ae3418acbu, 0x5b9cca4f7763e373u, 0x682e6ff3d6b2b8a3u,
    0x748f82ee5defb2fcu, 0x78a5636f43172f60u, 0x84c87814a1f0ab72u, 0x8cc702081a6439ecu,
    0x90befffa23631e28u, 0xa4506cebde82bde9u, 0xbef9a3f7b2c67915u, 0xc67178f2e372532bu,
    0xca273eceea26619cu, 0xd186b8c721c0c207u, 0xeada7dd6cde0eb1eu, 0xf57d4f7fee6ed178u,
    0x06f067aa72176fbau, 0x0a637dc5a2c898a6u, 0x113f9804bef90daeu, 0x1b710b35131c471bu,
    0x28db77f523047d84u, 0x32caab7b40c72493u, 0x3c9ebe0a15c9bebcu, 0x431d67c49c100d4cu,
    0x4cc5d4becb3e42b6u, 0x597f299cfc657e2au, 0x5fcb6fab3ad6faecu, 0x6c44198c4a475817u,
};
/* clang-format on */

/* The functions Ch and Maj (FIPS 180-4, section 4.1.3), written with fewer operations than in the
 * standard. */
#define GW_SHA512_CH(e, f, g)  ((g) ^ ((e) & ((f) ^ (g))))
#define GW_SHA512_MAJ(a, b, c) (((a) & (b)) | ((c) & ((a) | (b))))
#define GW_SHA512_TURN(x, i, j, k)                                                                 \
    (gw_rotate_left64(x, 64 - (i)) ^ gw_rotate_left64(x, 64 - (j)) ^ gw_rotate_left64(x, 64 - (k)))
#define GW_SHA512_SHIFT(x, i, j, k)                                                                \
    (gw_rotate_left64(x, 64 - (i)) ^ gw_rotate_left64(x, 64 - (j)) ^ ((x) >> (k)))

/* Performs one of the 80 rounds. The caller permutes the variables between rounds instead of moving
 * values. */
#define GW_SHA512_ROUND(a, b, c, d, e, f, g, h, word)                                              \
    h += GW_SHA512_TURN(e, 14, 18, 41) + GW_SHA512_CH(e, f, g) + (word);                           \
    d += h;                                                                                        \
    h += GW_SHA512_TURN(a, 28, 34, 39) + GW_SHA512_MAJ(a, b, c)

/* Computes word t of the message schedule, for t >= 16. The result overwrites word t - 16 in the
 * array of 16 words. */
#define GW_SHA512_WORD(w, t)                                                                       \
    (w[(t)&15] += GW_SHA512_SHIFT(w[((t) + 14) & 15], 19, 61, 6) + w[((t) + 9) & 15] +             \
                  GW_SHA512_SHIFT(w[((t) + 1) & 15], 1, 8, 7))

#define GW_SHA512_GIVEN(w, t) (w[t])

#define GW_SHA512_EIGHT(source, from, t)                                                           \
    GW_SHA512_ROUND(a, b, c, d, e, f, g, h, source(w, t) + from[t]);                               \
    GW_SHA512_ROUND(h, a, b, c, d, e, f, g, source(w, (t) + 1) + from[(t) + 1]);                   \
    GW_SHA512_ROUND(g, h, a, b, c, d, e, f, source(w, (t) + 2) + from[(t) + 2]);                   \
    GW_SHA512_ROUND(f, g, h, a, b, c, d, e, source(w, (t) + 3) + from[(t) + 3]);                   \
    GW_SHA512_ROUND(e, f, g, h, a, b, c, d, source(w, (t) + 4) + from[(t) + 4]);                   \
    GW_SHA512_ROUND(d, e, f, g, h, a, b, c, source(w, (t) + 5) + from[(t) + 5]);                   \
    GW_SHA512_ROUND(c, d, e, f, g, h, a, b, source(w, (t) + 6) + from[(t) + 6]);                   \
    GW_SHA512_ROUND(b, c, d, e, f, g, h, a, source(w, (t) + 7) + from[(t) + 7])

/* Updates a state with one block of 16 words. The words are overwritten. */
GW_LANE void gw_sha512_block(gw_sha512 *state, gw_u64 *w)
{
    gw_u64 a = state->a;
    gw_u64 b = state->b;
    gw_u64 c = state->c;
    gw_u64 d = state->d;
    gw_u64 e = state->e;
    gw_u64 f = state->f;
    gw_u64 g = state->g;
    gw_u64 h = state->h;

    GW_SHA512_EIGHT(GW_SHA512_GIVEN, gw_sha512_constants, 0);
    GW_SHA512_EIGHT(GW_SHA512_GIVEN, gw_sha512_constants, 8);
    for (gw_u32 t = 16; t < 80; t += 16) {
        const GW_CONSTANT gw_u64 *k = gw_sha512_constants + t;
        GW_SHA512_EIGHT(GW_SHA512_WORD, k, 0);
        GW_SHA512_EIGHT(GW_SHA512_WORD, k, 8);
    }

    state->a += a;
    state->b += b;
    state->c += c;
    state->d += d;
    state->e += e;
    state->f += f;
    state->g += g;
    state->h += h;
}

/* Hashes a text and stores the digest in `state`. Before the call, `state` is the hash state after
 * the HMAC key block. */
GW_LANE void gw_sha512_finish(gw_sha512 *state, gw_text text)
{
    const gw_u32 bytes = text.bytes + text.suffix_bytes;
    /* The byte 0x80, zeros and the length follow the text (FIPS 180-4, section 5.1.2). */
    const gw_u32 end =
        (bytes + 17 + GW_SHA512_BLOCK_BYTES - 1) / GW_SHA512_BLOCK_BYTES * GW_SHA512_BLOCK_BYTES;
    gw_u64 w[16];
    for (gw_u32 at = 0; at < end; at += GW_SHA512_BLOCK_BYTES) {
        if (at + GW_SHA512_BLOCK_BYTES <= text.bytes) {
            for (gw_u32 i = 0; i < 16; i++) {
                w[i] = gw_load_be64(text.data + at + 8 * i);
            }
        } else {
            for (gw_u32 i = 0; i < 16; i++) {
                w[i] = (gw_u64)gw_text_word(text, at + 8 * i, 0x80u) << 32 |
                       gw_text_word(text, at + 8 * i + 4, 0x80u);
            }
            if (at + GW_SHA512_BLOCK_BYTES == end) {
                /* The length in bits occupies two words. The upper word is 0. */
                w[15] = 8 * (GW_SHA512_BLOCK_BYTES + bytes);
            }
        }
        gw_sha512_block(state, w);
    }
}

/* Loads a 64-bit word of a state, which the SA holds in two 32-bit words, the lower one first. */
GW_LANE gw_u64 gw_sha512_word(const GW_GLOBAL gw_u32 *words, gw_u32 i)
{
    return (gw_u64)words[2 * i + 1] << 32 | words[2 * i];
}

GW_LANE gw_sha512 gw_sha512_load(const GW_GLOBAL gw_u32 *words)
{
    gw_sha512 state;
    state.a = gw_sha512_word(words, 0);
    state.b = gw_sha512_word(words, 1);
    state.c = gw_sha512_word(words, 2);
    state.d = gw_sha512_word(words, 3);
    state.e = gw_sha512_word(words, 4);
    state.f = gw_sha512_word(words, 5);
    state.g = gw_sha512_word(words, 6);
    state.h = gw_sha512_word(words, 7);
    return state;
}

/* Returns HMAC-SHA-512 of a text, or HMAC-SHA-384 if `digest_words` is GW_SHA384_DIGEST_WORDS. The
 * latter is the first six words of the result. `inner` and `outer` are the states after hashing the
 * key XOR ipad and the key XOR opad (RFC 2104, section 4). */
GW_ALONE gw_sha512 gw_hmac_sha512(const GW_GLOBAL gw_u32 *inner, const GW_GLOBAL gw_u32 *outer,
                                  gw_u32 digest_words, gw_text text)
{
    gw_sha512 digest = gw_sha512_load(inner);
    gw_sha512_finish(&digest, text);

    const gw_u64 marker = (gw_u64)0x80u << 56;
    const gw_u32 is_sha384 = digest_words == GW_SHA384_DIGEST_WORDS;
    gw_sha512 mac = gw_sha512_load(outer);
    gw_u64 w[16];
    w[0] = digest.a;
    w[1] = digest.b;
    w[2] = digest.c;
    w[3] = digest.d;
    w[4] = digest.e;
    w[5] = digest.f;
    w[6] = is_sha384 ? marker : digest.g;
    w[7] = is_sha384 ? 0 : digest.h;
    w[8] = is_sha384 ? 0 : marker;
    for (gw_u32 i = 9; i < 15; i++) {
        w[i] = 0;
    }
    w[15] = 8 * (GW_SHA512_BLOCK_BYTES + 8 * digest_words);
    gw_sha512_block(&mac, w);
    return mac;
}

#endif
