/* SHA-1 (FIPS 180-4, section 6.1) and HMAC-SHA1 (RFC 2104). Instead of the key, the SA (security
 * association) holds the hash states after the two HMAC key blocks. */
#ifndef GODWIT_SHA1_H
#define GODWIT_SHA1_H

#include "../dialect/words.h"
#include "sha1_block.h"
#include "text.h"

#define GW_SHA1_BLOCK_BYTES 64u

/* Hashes a text with SHA-1 and stores the digest in `state`. Initially, `state` is the hash state
 * after `before` bytes, which are whole blocks. */
GW_LANE void gw_sha1_finish(gw_sha1 *state, gw_text text, gw_u32 before)
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
            w[15] = 8 * (before + bytes);
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
    gw_sha1_finish(&digest, text, GW_SHA1_BLOCK_BYTES);

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
