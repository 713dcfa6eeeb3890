/* AES in its modes for sixteen packets at once, each with a key of its own (VAES). */
#ifndef GODWIT_IPSEC_WIDE_AES_H
#define GODWIT_IPSEC_WIDE_AES_H

#include "wide.h"

/* What is done with the data of sixteen packets. */
#define GW_WIDE_NONE     0u
#define GW_WIDE_CBC_SEAL 1u
#define GW_WIDE_CBC_OPEN 2u
#define GW_WIDE_COUNTER  3u

/* Round keys of all lanes; 14 rounds at most take 15, a line of an SA holds four. */
typedef struct gw_wide_keys {
    __m512i round[16][4];
    gw_u32 rounds;
} gw_wide_keys;

#define GW_WIDE_KEY_LINE (offsetof(gw_ipsec_sa, keys) / GW_WIDE_ROW_BYTES)

GW_WIDE void gw_wide_keys_load(gw_wide_keys *keys, const gw_wide_sas *sas, gw_u32 rounds)
{
    keys->rounds = rounds;
    for (gw_u32 line = 0; line < (rounds + 4) / 4; line++) {
        gw_wide_line(&keys->round[4 * line], sas, GW_WIDE_KEY_LINE + line);
    }
}

/* One part of four of the rounds behind the first xor, on four registers that hold a block of each
 * lane. Rounds that all keys have are no loop, so that what is done between the parts fills their
 * waits. */
GW_WIDE void gw_wide_rounds(__m512i x[4], const gw_wide_keys *keys, gw_u32 part, gw_u32 decrypt)
{
    static const gw_u32 first[5] = {1, 3, 6, 8, 10};
    GW_WIDE_UNROLL
    for (gw_u32 round = first[part]; round < first[part + 1]; round++) {
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            x[j] = decrypt ? _mm512_aesdec_epi128(x[j], keys->round[round][j])
                           : _mm512_aesenc_epi128(x[j], keys->round[round][j]);
        }
    }
    if (part < 3) {
        return;
    }
    for (gw_u32 round = 10; round < keys->rounds; round++) {
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            x[j] = decrypt ? _mm512_aesdec_epi128(x[j], keys->round[round][j])
                           : _mm512_aesenc_epi128(x[j], keys->round[round][j]);
        }
    }
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        x[j] = decrypt ? _mm512_aesdeclast_epi128(x[j], keys->round[keys->rounds][j])
                       : _mm512_aesenclast_epi128(x[j], keys->round[keys->rounds][j]);
    }
}

/*
 * The first counter block of each lane: salt, the IV that lies in front of its data, and a number,
 * 1 (RFC 3686, section 4; SP 800-38D, section 7.1). The number is kept as one, in the last word.
 */
GW_WIDE void gw_wide_counters(__m512i counters[4], gw_u8 *const *at, const gw_wide_sas *sas,
                              gw_u32 first)
{
    const gw_ipsec_sa *const *sa = sas->sa;
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        /* Words 2 and 3 are the IV, word 2 of an SA is its salt. */
        const __m512i ivs =
            gw_wide_gather(at[j] - 16, at[j + 4] - 16, at[j + 8] - 16, at[j + 12] - 16);
        const __m512i salts = gw_wide_gather((const gw_u8 *)sa[j], (const gw_u8 *)sa[j + 4],
                                             (const gw_u8 *)sa[j + 8], (const gw_u8 *)sa[j + 12]);
        const __m512i moved = _mm512_shuffle_epi32(ivs, _MM_PERM_DDCB);
        const __m512i named = _mm512_mask_shuffle_epi32(moved, 0x1111, salts, _MM_PERM_CCCC);
        counters[j] = _mm512_mask_set1_epi32(named, 0x8888, (int)first);
    }
}

/* A counter block as it is encrypted: its number is big-endian. */
GW_WIDE __m512i gw_wide_counter_block(__m512i counter)
{
    return _mm512_shuffle_epi8(counter, _mm512_broadcast_i32x4(_mm_set_epi8(
                                            12, 13, 14, 15, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)));
}

/* The next one. */
GW_WIDE __m512i gw_wide_counted(__m512i counter)
{
    return _mm512_add_epi32(counter, _mm512_maskz_set1_epi32(0x8888, 1));
}

/* Sixteen stretches of data on their way through a cipher, 64 bytes of each at a time. */
typedef struct gw_wide_cipher {
    gw_wide_lanes lanes;
    gw_wide_keys keys;
    __m512i blocks[4][4]; /* of the step under way */
    __m512i chain[4];     /* CBC: the encrypted block before; counter modes: the next counter block,
                             its last word a number */
    gw_u32 offset;
    gw_u32 count; /* blocks of the step under way */
} gw_wide_cipher;

/* CBC's IV, which lies in front of each lane's data. */
GW_WIDE void gw_wide_chain_behind(gw_wide_cipher *cipher)
{
    gw_u8 *const *at = cipher->lanes.at;
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        cipher->chain[j] =
            gw_wide_gather(at[j] - 16, at[j + 4] - 16, at[j + 8] - 16, at[j + 12] - 16);
    }
}

GW_WIDE gw_u32 gw_wide_cipher_left(const gw_wide_cipher *cipher)
{
    return cipher->offset < cipher->lanes.longest;
}

/* Begins a step. */
GW_WIDE void gw_wide_cipher_load(gw_wide_cipher *cipher)
{
    const gw_u32 left = cipher->lanes.longest - cipher->offset;
    cipher->count = left >= GW_WIDE_ROW_BYTES ? 4 : (left + 15) / 16;
    if (cipher->offset + 16 * cipher->count <= cipher->lanes.shortest) {
        if (left > 2 * GW_WIDE_ROW_BYTES) {
            gw_wide_load_ahead(&cipher->lanes, cipher->offset);
        }
        gw_wide_chunks_load(cipher->blocks, &cipher->lanes, cipher->offset, cipher->count);
    } else {
        gw_wide_load_some(cipher->blocks, &cipher->lanes, cipher->offset);
    }
}

/* One part of sixteen of the step, four for each block, which is under way in x. */
GW_WIDE void gw_wide_cipher_part(gw_wide_cipher *cipher, __m512i x[4], gw_u32 mode, gw_u32 part)
{
    const gw_wide_keys *keys = &cipher->keys;
    const gw_u32 k = part / 4;
    if (k >= cipher->count) {
        return;
    }
    if (part % 4 == 0) {
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            const __m512i block = cipher->blocks[k][j];
            if (mode == GW_WIDE_CBC_SEAL) {
                x[j] = _mm512_ternarylogic_epi64(cipher->chain[j], block, keys->round[0][j], 0x96);
            } else if (mode == GW_WIDE_CBC_OPEN) {
                x[j] = _mm512_xor_si512(block, keys->round[0][j]);
            } else {
                x[j] = _mm512_xor_si512(gw_wide_counter_block(cipher->chain[j]), keys->round[0][j]);
                cipher->chain[j] = gw_wide_counted(cipher->chain[j]);
            }
        }
    }
    gw_wide_rounds(x, keys, part % 4, mode == GW_WIDE_CBC_OPEN);
    if (part % 4 == 3) {
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            const __m512i block = cipher->blocks[k][j];
            if (mode == GW_WIDE_CBC_SEAL) {
                cipher->chain[j] = x[j];
                cipher->blocks[k][j] = x[j];
            } else if (mode == GW_WIDE_CBC_OPEN) {
                cipher->blocks[k][j] = _mm512_xor_si512(x[j], cipher->chain[j]);
                cipher->chain[j] = block;
            } else {
                cipher->blocks[k][j] = _mm512_xor_si512(x[j], block);
            }
        }
    }
}

/* Ends a step. */
GW_WIDE void gw_wide_cipher_store(gw_wide_cipher *cipher)
{
    if (cipher->offset + 16 * cipher->count <= cipher->lanes.shortest) {
        gw_wide_chunks_store(cipher->blocks, &cipher->lanes, cipher->offset, cipher->count);
    } else {
        gw_wide_store_some(cipher->blocks, &cipher->lanes, cipher->offset);
    }
    cipher->offset += GW_WIDE_ROW_BYTES;
}

#endif
