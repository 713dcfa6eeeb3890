/* The stream cipher ChaCha20 (RFC 8439, sections 2.3 and 2.4). The run time does not depend on keys
 * or data. */
#ifndef GODWIT_CHACHA20_H
#define GODWIT_CHACHA20_H

#define GW_CHACHA20_BLOCK_BYTES 64u
#define GW_CHACHA20_WORDS       16u

/* 96-bit ChaCha20 nonce (RFC 8439, section 2.3) in memory order. In ESP, it consists of the
 * salt of the SA and the packet's IV. */
typedef struct gw_chacha20_nonce {
    gw_u32 words[3];
} gw_chacha20_nonce;

#define GW_CHACHA20_QUARTER(a, b, c, d)                                                            \
    a += b;                                                                                        \
    d = gw_rotate_left32(d ^ a, 16);                                                               \
    c += d;                                                                                        \
    b = gw_rotate_left32(b ^ c, 12);                                                               \
    a += b;                                                                                        \
    d = gw_rotate_left32(d ^ a, 8);                                                                \
    c += d;                                                                                        \
    b = gw_rotate_left32(b ^ c, 7)

/* Computes one ChaCha20 key stream block as little-endian words. `key` points to eight words. */
GW_LANE void gw_chacha20_block(const GW_GLOBAL gw_u32 *key, gw_chacha20_nonce nonce, gw_u32 counter,
                               gw_u32 *stream)
{
    gw_u32 x0 = 0x61707865u;
    gw_u32 x1 = 0x3320646eu;
    gw_u32 x2 = 0x79622d32u;
    gw_u32 x3 = 0x6b206574u;
    gw_u32 x4 = key[0];
    gw_u32 x5 = key[1];
    gw_u32 x6 = key[2];
    gw_u32 x7 = key[3];
    gw_u32 x8 = key[4];
    gw_u32 x9 = key[5];
    gw_u32 x10 = key[6];
    gw_u32 x11 = key[7];
    gw_u32 x12 = counter;
    gw_u32 x13 = nonce.words[0];
    gw_u32 x14 = nonce.words[1];
    gw_u32 x15 = nonce.words[2];
    for (gw_u32 i = 0; i < 10; i++) {
        GW_CHACHA20_QUARTER(x0, x4, x8, x12);
        GW_CHACHA20_QUARTER(x1, x5, x9, x13);
        GW_CHACHA20_QUARTER(x2, x6, x10, x14);
        GW_CHACHA20_QUARTER(x3, x7, x11, x15);
        GW_CHACHA20_QUARTER(x0, x5, x10, x15);
        GW_CHACHA20_QUARTER(x1, x6, x11, x12);
        GW_CHACHA20_QUARTER(x2, x7, x8, x13);
        GW_CHACHA20_QUARTER(x3, x4, x9, x14);
    }
    stream[0] = x0 + 0x61707865u;
    stream[1] = x1 + 0x3320646eu;
    stream[2] = x2 + 0x79622d32u;
    stream[3] = x3 + 0x6b206574u;
    stream[4] = x4 + key[0];
    stream[5] = x5 + key[1];
    stream[6] = x6 + key[2];
    stream[7] = x7 + key[3];
    stream[8] = x8 + key[4];
    stream[9] = x9 + key[5];
    stream[10] = x10 + key[6];
    stream[11] = x11 + key[7];
    stream[12] = x12 + counter;
    stream[13] = x13 + nonce.words[0];
    stream[14] = x14 + nonce.words[1];
    stream[15] = x15 + nonce.words[2];
}

/* Encrypts or decrypts data in place with ChaCha20. The last block of the data may be partial. */
GW_LANE void gw_chacha20(const GW_GLOBAL gw_u32 *key, gw_chacha20_nonce nonce, gw_u32 counter,
                         GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    gw_u32 stream[GW_CHACHA20_WORDS];
    gw_u32 at = 0;
    for (; at + GW_CHACHA20_BLOCK_BYTES <= bytes; at += GW_CHACHA20_BLOCK_BYTES) {
        gw_chacha20_block(key, nonce, counter++, stream);
        for (gw_u32 i = 0; i < GW_CHACHA20_WORDS; i++) {
            GW_GLOBAL gw_u8 *word = data + at + 4 * i;
            gw_store_le32(word, gw_load_le32(word) ^ stream[i]);
        }
    }
    if (at == bytes) {
        return;
    }
    gw_chacha20_block(key, nonce, counter, stream);
    for (gw_u32 i = 0; i < GW_CHACHA20_WORDS; i++) {
        GW_GLOBAL gw_u8 *word = data + at + 4 * i;
        if (at + 4 * i + 4 <= bytes) {
            gw_store_le32(word, gw_load_le32(word) ^ stream[i]);
        } else {
            for (gw_u32 j = 0; at + 4 * i + j < bytes; j++) {
                word[j] ^= (gw_u8)(stream[i] >> 8 * j);
            }
        }
    }
}

#endif
