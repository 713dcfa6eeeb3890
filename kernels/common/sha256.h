/* SHA-256 (FIPS 180-4, section 6.2) and HMAC-SHA-256 (RFC 2104, RFC 4868). Instead of the key, the
 * SA (security association) holds the hash states after the two HMAC key blocks. */
#ifndef GODWIT_SHA256_H
#define GODWIT_SHA256_H

#include "../dialect/words.h"
#include "sha256_block.h"
#include "text.h"

#define GW_SHA256_BLOCK_BYTES 64u

/* Hashes a text with SHA-256 and stores the digest in `state`. Initially, `state` is the hash state
 * after `before` bytes, which are whole blocks. */
GW_LANE void gw_sha256_finish(gw_sha256 *state, gw_text text, gw_u32 before)
{
    const gw_u32 bytes = text.bytes + text.suffix_bytes;
    gw_u32 w[16];
    gw_u32 at = 0;
    for (; at + GW_SHA256_BLOCK_BYTES <= text.bytes; at += GW_SHA256_BLOCK_BYTES) {
        for (gw_u32 i = 0; i < 16; i++) {
            w[i] = gw_load_be32(text.data + at + 4 * i);
        }
        gw_sha256_block(state, w);
    }
    /* The rest of the text, 0x80, zeros and the length fill one or two blocks (FIPS 180-4, section
     * 5.1.1). */
    const gw_u32 end =
        at + (bytes - at + 9 > GW_SHA256_BLOCK_BYTES ? 2 : 1) * GW_SHA256_BLOCK_BYTES;
    for (; at < end; at += GW_SHA256_BLOCK_BYTES) {
        for (gw_u32 i = 0; i < 16; i++) {
            w[i] = gw_text_word(text, at + 4 * i, 0x80u);
        }
        if (at + GW_SHA256_BLOCK_BYTES == end) {
            /* The bit length occupies two words. A frame is far shorter than 2^29 bytes, so the
             * upper word is 0. */
            w[15] = 8 * (before + bytes);
        }
        gw_sha256_block(state, w);
    }
}

GW_LANE gw_sha256 gw_sha256_load(const GW_GLOBAL gw_u32 *words)
{
    gw_sha256 state;
    state.a = words[0];
    state.b = words[1];
    state.c = words[2];
    state.d = words[3];
    state.e = words[4];
    state.f = words[5];
    state.g = words[6];
    state.h = words[7];
    return state;
}

/* Returns the HMAC-SHA-256 of a text. `inner` and `outer` are the SHA-256 states after the blocks
 * key XOR ipad and key XOR opad (RFC 2104, section 4). */
GW_APART gw_sha256 gw_hmac_sha256(const GW_GLOBAL gw_u32 *inner, const GW_GLOBAL gw_u32 *outer,
                                  gw_text text)
{
    gw_sha256 digest = gw_sha256_load(inner);
    gw_sha256_finish(&digest, text, GW_SHA256_BLOCK_BYTES);

    gw_sha256 mac = gw_sha256_load(outer);
    gw_u32 w[16];
    w[0] = digest.a;
    w[1] = digest.b;
    w[2] = digest.c;
    w[3] = digest.d;
    w[4] = digest.e;
    w[5] = digest.f;
    w[6] = digest.g;
    w[7] = digest.h;
    w[8] = 0x80000000u;
    for (gw_u32 i = 9; i < 15; i++) {
        w[i] = 0;
    }
    w[15] = 8 * (GW_SHA256_BLOCK_BYTES + 32);
    gw_sha256_block(&mac, w);
    return mac;
}

#endif
