/* AES modes for sixteen packets at once. Each packet has a separate key. The code uses the vector
 * AES instructions (VAES). */
#ifndef GODWIT_IPSEC_AVX512_AES_H
#define GODWIT_IPSEC_AVX512_AES_H

#include "avx512.h"

/* Cipher modes for the data of sixteen packets. */
#define GW_AVX512_NONE        0u
#define GW_AVX512_CBC_ENCRYPT 1u
#define GW_AVX512_CBC_DECRYPT 2u
#define GW_AVX512_CTR         3u

/* AES round keys of sixteen packets. AES-256 needs 15 round keys, and a cache line of an SA holds
 * four. */
typedef struct gw_avx512_keys {
    __m512i round[16][4];
    gw_u32 rounds;
} gw_avx512_keys;

#define GW_AVX512_KEY_LINE (offsetof(gw_ipsec_sa, keys) / GW_AVX512_ROW_BYTES)

#define GW_AVX512_MORE_LINE (offsetof(gw_ipsec_sa, more) / GW_AVX512_ROW_BYTES)

/* Loads round keys that begin with cache line `first` of the SAs. */
GW_AVX512 void gw_avx512_key_lines_load(gw_avx512_keys *keys, const gw_avx512_sas *sas,
                                        gw_u32 first, gw_u32 rounds)
{
    keys->rounds = rounds;
    for (gw_u32 line = 0; line < (rounds + 4) / 4; line++) {
        gw_avx512_load_sa_line(&keys->round[4 * line], sas, first + line);
    }
}

GW_AVX512 void gw_avx512_keys_load(gw_avx512_keys *keys, const gw_avx512_sas *sas, gw_u32 rounds)
{
    gw_avx512_key_lines_load(keys, sas, GW_AVX512_KEY_LINE, rounds);
}

/* Computes one quarter of the AES rounds on one block of each packet, without the first
 * AddRoundKey. AES instructions have a long latency, so callers place other instructions between
 * the quarters. */
GW_AVX512 void gw_avx512_rounds(__m512i x[4], const gw_avx512_keys *keys, gw_u32 part,
                                gw_u32 decrypt)
{
    static const gw_u32 first[5] = {1, 3, 6, 8, 10};
    GW_AVX512_UNROLL
    for (gw_u32 round = first[part]; round < first[part + 1]; round++) {
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            x[j] = decrypt ? _mm512_aesdec_epi128(x[j], keys->round[round][j])
                           : _mm512_aesenc_epi128(x[j], keys->round[round][j]);
        }
    }
    if (part < 3) {
        return;
    }
    for (gw_u32 round = 10; round < keys->rounds; round++) {
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            x[j] = decrypt ? _mm512_aesdec_epi128(x[j], keys->round[round][j])
                           : _mm512_aesenc_epi128(x[j], keys->round[round][j]);
        }
    }
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        x[j] = decrypt ? _mm512_aesdeclast_epi128(x[j], keys->round[keys->rounds][j])
                       : _mm512_aesenclast_epi128(x[j], keys->round[keys->rounds][j]);
    }
}

/* Returns the first counter block of each packet (RFC 3686, section 4; SP 800-38D, section 7.1):
 * the salt, the IV before the packet data, and the counter `first` in host byte order. */
GW_AVX512 void gw_avx512_first_counters(__m512i counters[4], gw_u8 *const *at,
                                        const gw_avx512_sas *sas, gw_u32 first)
{
    const gw_ipsec_sa *const *sa = sas->sa;
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        /* Words 2 and 3 of each loaded block are a packet's IV. Word 2 of an SA is its salt. */
        const __m512i ivs =
            gw_avx512_gather(at[j] - 16, at[j + 4] - 16, at[j + 8] - 16, at[j + 12] - 16);
        const __m512i salts = gw_avx512_gather((const gw_u8 *)sa[j], (const gw_u8 *)sa[j + 4],
                                               (const gw_u8 *)sa[j + 8], (const gw_u8 *)sa[j + 12]);
        const __m512i moved = _mm512_shuffle_epi32(ivs, _MM_PERM_DDCB);
        const __m512i named = _mm512_mask_shuffle_epi32(moved, 0x1111, salts, _MM_PERM_CCCC);
        counters[j] = _mm512_mask_set1_epi32(named, 0x8888, (int)first);
    }
}

GW_AVX512 __m512i gw_avx512_counter_block(__m512i counter)
{
    return _mm512_shuffle_epi8(counter, _mm512_broadcast_i32x4(_mm_set_epi8(
                                            12, 13, 14, 15, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)));
}

GW_AVX512 __m512i gw_avx512_next_counter(__m512i counter)
{
    return _mm512_add_epi32(counter, _mm512_maskz_set1_epi32(0x8888, 1));
}

/* Cipher state of sixteen packets. Each step processes 64 bytes of each packet. */
typedef struct gw_avx512_cipher {
    gw_avx512_lanes lanes;
    gw_avx512_keys keys;
    __m512i blocks[4][4]; /* blocks of the current step */
    __m512i chain[4];     /* previous ciphertext block (CBC) or next counter block (CTR) */
    gw_u32 offset;
    gw_u32 count; /* number of blocks in the current step */
} gw_avx512_cipher;

GW_AVX512 void gw_avx512_load_ivs(gw_avx512_cipher *cipher)
{
    gw_u8 *const *at = cipher->lanes.at;
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        cipher->chain[j] =
            gw_avx512_gather(at[j] - 16, at[j + 4] - 16, at[j + 8] - 16, at[j + 12] - 16);
    }
}

GW_AVX512 gw_u32 gw_avx512_cipher_left(const gw_avx512_cipher *cipher)
{
    return cipher->offset < cipher->lanes.longest;
}

/* Loads the next 64 bytes of each packet, or all remaining bytes. */
GW_AVX512 void gw_avx512_cipher_load(gw_avx512_cipher *cipher)
{
    const gw_u32 left = cipher->lanes.longest - cipher->offset;
    cipher->count = left >= GW_AVX512_ROW_BYTES ? 4 : (left + 15) / 16;
    if (cipher->offset + 16 * cipher->count <= cipher->lanes.shortest) {
        if (left > 2 * GW_AVX512_ROW_BYTES) {
            gw_avx512_prefetch_rows(&cipher->lanes, cipher->offset);
        }
        gw_avx512_load_blocks(cipher->blocks, &cipher->lanes, cipher->offset, cipher->count);
    } else {
        gw_avx512_load_partial(cipher->blocks, &cipher->lanes, cipher->offset);
    }
}

/* Computes one sixteenth of a step: a quarter of the rounds for one of four blocks of each packet.
 * `x` holds the AES state between calls. */
GW_AVX512 void gw_avx512_cipher_part(gw_avx512_cipher *cipher, __m512i x[4], gw_u32 mode,
                                     gw_u32 part)
{
    const gw_avx512_keys *keys = &cipher->keys;
    const gw_u32 k = part / 4;
    if (k >= cipher->count) {
        return;
    }
    if (part % 4 == 0) {
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            const __m512i block = cipher->blocks[k][j];
            if (mode == GW_AVX512_CBC_ENCRYPT) {
                x[j] = _mm512_ternarylogic_epi64(cipher->chain[j], block, keys->round[0][j], 0x96);
            } else if (mode == GW_AVX512_CBC_DECRYPT) {
                x[j] = _mm512_xor_si512(block, keys->round[0][j]);
            } else {
                x[j] =
                    _mm512_xor_si512(gw_avx512_counter_block(cipher->chain[j]), keys->round[0][j]);
                cipher->chain[j] = gw_avx512_next_counter(cipher->chain[j]);
            }
        }
    }
    gw_avx512_rounds(x, keys, part % 4, mode == GW_AVX512_CBC_DECRYPT);
    if (part % 4 == 3) {
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            const __m512i block = cipher->blocks[k][j];
            if (mode == GW_AVX512_CBC_ENCRYPT) {
                cipher->chain[j] = x[j];
                cipher->blocks[k][j] = x[j];
            } else if (mode == GW_AVX512_CBC_DECRYPT) {
                cipher->blocks[k][j] = _mm512_xor_si512(x[j], cipher->chain[j]);
                cipher->chain[j] = block;
            } else {
                cipher->blocks[k][j] = _mm512_xor_si512(x[j], block);
            }
        }
    }
}

GW_AVX512 void gw_avx512_cipher_store(gw_avx512_cipher *cipher)
{
    if (cipher->offset + 16 * cipher->count <= cipher->lanes.shortest) {
        gw_avx512_store_blocks(cipher->blocks, &cipher->lanes, cipher->offset, cipher->count);
    } else {
        gw_avx512_store_partial(cipher->blocks, &cipher->lanes, cipher->offset);
    }
    cipher->offset += GW_AVX512_ROW_BYTES;
}

#endif
