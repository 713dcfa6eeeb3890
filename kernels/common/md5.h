/* MD5 (RFC 1321). MD5 no longer resists attacks: two texts with the same digest are easy to make.
 */
#ifndef GODWIT_MD5_H
#define GODWIT_MD5_H

#include "../dialect/words.h"
#include "md5_block.h"
#include "text.h"

#define GW_MD5_BLOCK_BYTES 64u

/* Hashes a text with MD5 and stores the digest in `state`, which is initially the start value. */
GW_LANE void gw_md5_finish(gw_md5 *state, gw_text text)
{
    gw_u32 w[16];
    gw_u32 at = 0;
    for (; at + GW_MD5_BLOCK_BYTES <= text.bytes; at += GW_MD5_BLOCK_BYTES) {
        for (gw_u32 i = 0; i < 16; i++) {
            w[i] = gw_load_le32(text.data + at + 4 * i);
        }
        gw_md5_block(state, w);
    }
    /* The rest of the text, 0x80, zeros and the length fill one or two blocks (RFC 1321, sections
     * 3.1 and 3.2). */
    const gw_u32 end = at + (text.bytes - at + 9 > GW_MD5_BLOCK_BYTES ? 2 : 1) * GW_MD5_BLOCK_BYTES;
    for (; at < end; at += GW_MD5_BLOCK_BYTES) {
        for (gw_u32 i = 0; i < 16; i++) {
            w[i] = gw_reverse32(gw_text_word(text, at + 4 * i, 0x80u));
        }
        if (at + GW_MD5_BLOCK_BYTES == end) {
            /* The bit length occupies two words. A frame is far shorter than 2^29 bytes, so the
             * upper word is 0. */
            w[14] = 8 * text.bytes;
        }
        gw_md5_block(state, w);
    }
}

#endif
