/* ChaCha20 for eight packets at once (RFC 8439, sections 2.3 and 2.4). Each lane computes one block
 * of the key stream, and the blocks of a step may belong to different packets. */
#ifndef GODWIT_IPSEC_AVX2_CHACHA_H
#define GODWIT_IPSEC_AVX2_CHACHA_H

#include "avx2.h"

/* Eight blocks of key streams, and the data that they encrypt or decrypt. */
typedef struct gw_avx2_chacha {
    gw_u32 counters[GW_AVX2_LANES][4]; /* words 12 to 15 of the state: block counter and nonce */
    const gw_u8 *keys[GW_AVX2_LANES];
    gw_u8 *data[GW_AVX2_LANES];
    gw_u32 bytes[GW_AVX2_LANES]; /* at most 64, and a multiple of 4; unused lanes: 0 */
    gw_u32 count;
} gw_avx2_chacha;

/* Rotates by 8 or 16 bits. */
GW_NATIVE gw_words_8 gw_avx2_rotate_bytes(gw_words_8 words, gw_u32 bits)
{
    const __m128i eight = _mm_setr_epi8(3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14);
    const __m128i sixteen = _mm_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    return (gw_words_8)_mm256_shuffle_epi8(
        (__m256i)words, _mm256_broadcastsi128_si256(bits == 8 ? eight : sixteen));
}

GW_NATIVE void gw_avx2_chacha_quarter(gw_words_8 x[16], gw_u32 a, gw_u32 b, gw_u32 c, gw_u32 d)
{
    x[a] += x[b];
    x[d] = gw_avx2_rotate_bytes(x[d] ^ x[a], 16);
    x[c] += x[d];
    x[b] = gw_avx2_rotate_left(x[b] ^ x[c], 12);
    x[a] += x[b];
    x[d] = gw_avx2_rotate_bytes(x[d] ^ x[a], 8);
    x[c] += x[d];
    x[b] = gw_avx2_rotate_left(x[b] ^ x[c], 7);
}

/* Computes eight blocks. Block i consists of the blocks[k][i] (k < 4) in the layout of avx2.h. */
GW_NATIVE void gw_avx2_chacha_blocks(const gw_avx2_chacha *chacha, __m256i blocks[4][4])
{
    gw_words_8 start[16];
    gw_words_8 x[16];
    const gw_u8 *counters[GW_AVX2_LANES];
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        counters[i] = (const gw_u8 *)chacha->counters[i];
    }
    start[0] = gw_avx2_set(0x61707865u);
    start[1] = gw_avx2_set(0x3320646eu);
    start[2] = gw_avx2_set(0x79622d32u);
    start[3] = gw_avx2_set(0x6b206574u);
    gw_avx2_load(start + 4, chacha->keys, 0);
    gw_avx2_load(start + 8, chacha->keys, 16);
    gw_avx2_load(start + 12, counters, 0);
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        x[i] = start[i];
    }
    for (gw_u32 i = 0; i < 10; i++) {
        gw_avx2_chacha_quarter(x, 0, 4, 8, 12);
        gw_avx2_chacha_quarter(x, 1, 5, 9, 13);
        gw_avx2_chacha_quarter(x, 2, 6, 10, 14);
        gw_avx2_chacha_quarter(x, 3, 7, 11, 15);
        gw_avx2_chacha_quarter(x, 0, 5, 10, 15);
        gw_avx2_chacha_quarter(x, 1, 6, 11, 12);
        gw_avx2_chacha_quarter(x, 2, 7, 8, 13);
        gw_avx2_chacha_quarter(x, 3, 4, 9, 14);
    }
    GW_AVX2_UNROLL
    for (gw_u32 k = 0; k < 4; k++) {
        gw_words_8 rows[4];
        __m256i words[4];
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < 4; i++) {
            words[i] = (__m256i)(x[4 * k + i] + start[4 * k + i]);
        }
        gw_avx2_transpose(rows, words);
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < 4; i++) {
            blocks[k][i] = (__m256i)rows[i];
        }
    }
}

/* Returns 16 bytes of the block of a lane. */
GW_NATIVE __m128i gw_avx2_lane_block(const __m256i blocks[4], gw_u32 lane)
{
    return lane < 4 ? _mm256_castsi256_si128(blocks[lane])
                    : _mm256_extracti128_si256(blocks[lane & 3], 1);
}

/* Encrypts or decrypts the data of eight blocks in place. */
static __attribute__((noinline)) void gw_avx2_chacha_apply(gw_avx2_chacha *chacha)
{
    __m256i blocks[4][4];
    gw_avx2_chacha_blocks(chacha, blocks);
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        gw_u8 *data = chacha->data[i];
        if (chacha->bytes[i] == GW_CHACHA20_BLOCK_BYTES) {
            GW_AVX2_UNROLL
            for (gw_u32 k = 0; k < 4; k++) {
                gw_u8 *at = data + 16 * k;
                gw_aes_store(at, _mm_xor_si128(gw_aes_load(at), gw_avx2_lane_block(blocks[k], i)));
            }
            continue;
        }
        gw_u8 stream[GW_CHACHA20_BLOCK_BYTES];
        GW_AVX2_UNROLL
        for (gw_u32 k = 0; k < 4; k++) {
            gw_aes_store(stream + 16 * k, gw_avx2_lane_block(blocks[k], i));
        }
        for (gw_u32 at = 0; at < chacha->bytes[i]; at += 4) {
            gw_store_le32(data + at, gw_load_le32(data + at) ^ gw_load_le32(stream + at));
        }
    }
    chacha->count = 0;
}

/* Adds a block of a packet. */
GW_NATIVE void gw_avx2_chacha_add(gw_avx2_chacha *chacha, const gw_native_packet *packet,
                                  gw_u32 counter, gw_u8 *data, gw_u32 bytes)
{
    const gw_u32 i = chacha->count++;
    const gw_ipsec_sa *sa = packet->found.sa;
    const gw_chacha20_nonce nonce = gw_ipsec_chacha20_nonce(sa, packet->data - 8);
    chacha->keys[i] = (const gw_u8 *)sa->keys;
    chacha->counters[i][0] = counter;
    chacha->counters[i][1] = nonce.words[0];
    chacha->counters[i][2] = nonce.words[1];
    chacha->counters[i][3] = nonce.words[2];
    chacha->data[i] = data;
    chacha->bytes[i] = bytes;
}

/* Adds all blocks of a packet's data, and encrypts or decrypts after every eighth block. */
GW_NATIVE void gw_avx2_chacha_packet(gw_avx2_chacha *chacha, const gw_native_packet *packet)
{
    gw_u32 counter = 1;
    for (gw_u32 at = 0; at < packet->data_bytes; at += GW_CHACHA20_BLOCK_BYTES) {
        const gw_u32 left = packet->data_bytes - at;
        gw_avx2_chacha_add(chacha, packet, counter++, packet->data + at,
                           left < GW_CHACHA20_BLOCK_BYTES ? left : GW_CHACHA20_BLOCK_BYTES);
        if (chacha->count == GW_AVX2_LANES) {
            gw_avx2_chacha_apply(chacha);
        }
    }
}

/* Encrypts or decrypts the blocks that were added last. */
GW_NATIVE void gw_avx2_chacha_end(gw_avx2_chacha *chacha)
{
    if (chacha->count == 0) {
        return;
    }
    for (gw_u32 i = chacha->count; i < GW_AVX2_LANES; i++) {
        chacha->keys[i] = chacha->keys[0];
        chacha->data[i] = chacha->data[0];
        chacha->bytes[i] = 0;
    }
    gw_avx2_chacha_apply(chacha);
}

#endif
