/* SHA-1 (FIPS 180-4, section 6.1) and HMAC-SHA1 (RFC 2104). Instead of the key, the SA (security
 * association) holds the hash states after the two HMAC key blocks. */
#ifndef GODWIT_SHA1_H
#define GODWIT_SHA1_H

#include "text.h"

#define GW_SHA1_BLOCK_BYTES 64u

typedef struct gw_sha1 {
    gw_u32 a;
    gw_u32 b;
    gw_u32 c;
    gw_u32 d;
    gw_u32 e;
} gw_sha1;

/* The SHA-1 functions Ch, Parity and Maj (FIPS 180-4, section 4.1.1). Ch and Maj use fewer
 * operations than in the standard. */
#define GW_SHA1_CH(b, c, d)     ((d) ^ ((b) & ((c) ^ (d))))
#define GW_SHA1_PARITY(b, c, d) ((b) ^ (c) ^ (d))
#define GW_SHA1_MAJ(b, c, d)    (((b) & (c)) | ((d) & ((b) | (c))))

/* Performs one of the 80 SHA-1 rounds. The caller permutes the variables between rounds instead of
 * moving values. */
#define GW_SHA1_ROUND(f, k, a, b, c, d, e, word)                                                   \
    e += gw_rotate_left32(a, 5) + f(b, c, d) + (k) + (word);                                       \
    b = gw_rotate_left32(b, 30)

/* Computes word t of the SHA-1 message schedule, for t >= 16. The result overwrites word t - 16 in
 * the 16-word array. */
#define GW_SHA1_WORD(w, t)                                                                         \
    (w[(t)&15] = gw_rotate_left32(                                                                 \
         w[((t) + 13) & 15] ^ w[((t) + 8) & 15] ^ w[((t) + 2) & 15] ^ w[(t)&15], 1))

#define GW_SHA1_GIVEN(w, t) (w[t])

#define GW_SHA1_FIVE(f, k, source, t)                                                              \
    GW_SHA1_ROUND(f, k, a, b, c, d, e, source(w, (t)));                                            \
    GW_SHA1_ROUND(f, k, e, a, b, c, d, source(w, (t) + 1));                                        \
    GW_SHA1_ROUND(f, k, d, e, a, b, c, source(w, (t) + 2));                                        \
    GW_SHA1_ROUND(f, k, c, d, e, a, b, source(w, (t) + 3));                                        \
    GW_SHA1_ROUND(f, k, b, c, d, e, a, source(w, (t) + 4))

#define GW_SHA1_TWENTY(f, k, t)                                                                    \
    GW_SHA1_FIVE(f, k, GW_SHA1_WORD, (t));                                                         \
    GW_SHA1_FIVE(f, k, GW_SHA1_WORD, (t) + 5);                                                     \
    GW_SHA1_FIVE(f, k, GW_SHA1_WORD, (t) + 10);                                                    \
    GW_SHA1_FIVE(f, k, GW_SHA1_WORD, (t) + 15)

/* Updates a SHA-1 state with one block of 16 words. The words are overwritten. */
GW_LANE void gw_sha1_block(gw_sha1 *state, gw_u32 *w)
{
    gw_u32 a = state->a;
    gw_u32 b = state->b;
    gw_u32 c = state->c;
    gw_u32 d = state->d;
    gw_u32 e = state->e;

    GW_SHA1_FIVE(GW_SHA1_CH, 0x5a827999u, GW_SHA1_GIVEN, 0);
    GW_SHA1_FIVE(GW_SHA1_CH, 0x5a827999u, GW_SHA1_GIVEN, 5);
    GW_SHA1_FIVE(GW_SHA1_CH, 0x5a827999u, GW_SHA1_GIVEN, 10);
    GW_SHA1_ROUND(GW_SHA1_CH, 0x5a827999u, a, b, c, d, e, w[15]);
    GW_SHA1_ROUND(GW_SHA1_CH, 0x5a827999u, e, a, b, c, d, GW_SHA1_WORD(w, 16));
    GW_SHA1_ROUND(GW_SHA1_CH, 0x5a827999u, d, e, a, b, c, GW_SHA1_WORD(w, 17));
    GW_SHA1_ROUND(GW_SHA1_CH, 0x5a827999u, c, d, e, a, b, GW_SHA1_WORD(w, 18));
    GW_SHA1_ROUND(GW_SHA1_CH, 0x5a827999u, b, c, d, e, a, GW_SHA1_WORD(w, 19));
    GW_SHA1_TWENTY(GW_SHA1_PARITY, 0x6ed9eba1u, 20);
    GW_SHA1_TWENTY(GW_SHA1_MAJ, 0x8f1bbcdcu, 40);
    GW_SHA1_TWENTY(GW_SHA1_PARITY, 0xca62c1d6u, 60);

    state->a += a;
    state->b += b;
    state->c += c;
    state->d += d;
    state->e += e;
}

/* Hashes a text with SHA-1 and stores the digest in `state`. Initially, `state` is the hash state
 * after the HMAC key block. */
GW_LANE void gw_sha1_finish(gw_sha1 *state, gw_text text)
{
    const gw_u32 bytes = text.bytes + text.suffix_bytes;
    gw_u32 w[16];
    gw_u32 at = 0;
    for (; at + GW_SHA1_BLOCK_BYTES <= text.bytes; at += GW_SHA1_BLOCK_BYTES) {
        for (gw_u32 i = 0; i < 16; i++) {
            w[i] = gw_load_be32(text.data + at + 4 * i);
        }
        gw_sha1_block(state, w);
    }
    /* The rest of the text, 0x80, zeros and the length fill one or two blocks (FIPS 180-4, section
     * 5.1.1). */
    const gw_u32 end = at + (bytes - at + 9 > GW_SHA1_BLOCK_BYTES ? 2 : 1) * GW_SHA1_BLOCK_BYTES;
    for (; at < end; at += GW_SHA1_BLOCK_BYTES) {
        for (gw_u32 i = 0; i < 16; i++) {
            w[i] = gw_text_word(text, at + 4 * i, 0x80u);
        }
        if (at + GW_SHA1_BLOCK_BYTES == end) {
            /* The bit length occupies two words. A frame is far shorter than 2^29 bytes, so the
             * upper word is 0. */
            w[15] = 8 * (GW_SHA1_BLOCK_BYTES + bytes);
        }
        gw_sha1_block(state, w);
    }
}

GW_LANE gw_sha1 gw_sha1_load(const GW_GLOBAL gw_u32 *words)
{
    gw_sha1 state;
    state.a = words[0];
    state.b = words[1];
    state.c = words[2];
    state.d = words[3];
    state.e = words[4];
    return state;
}

/* Returns the HMAC-SHA1 of a text (RFC 2104, section 2). `inner` and `outer` are the SHA-1 states
 * after the blocks key XOR ipad and key XOR opad (RFC 2104, section 4). */
GW_APART gw_sha1 gw_hmac_sha1(const GW_GLOBAL gw_u32 *inner, const GW_GLOBAL gw_u32 *outer,
                              gw_text text)
{
    gw_sha1 digest = gw_sha1_load(inner);
    gw_sha1_finish(&digest, text);

    gw_sha1 mac = gw_sha1_load(outer);
    gw_u32 w[16];
    w[0] = digest.a;
    w[1] = digest.b;
    w[2] = digest.c;
    w[3] = digest.d;
    w[4] = digest.e;
    w[5] = 0x80000000u;
    for (gw_u32 i = 6; i < 15; i++) {
        w[i] = 0;
    }
    w[15] = 8 * (GW_SHA1_BLOCK_BYTES + 20);
    gw_sha1_block(&mac, w);
    return mac;
}

#endif
