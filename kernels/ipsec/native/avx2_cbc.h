/* CBC encryption of eight packets at once. The blocks of one packet depend on each other, so the
 * instructions of eight packets alternate. */
#ifndef GODWIT_IPSEC_AVX2_CBC_H
#define GODWIT_IPSEC_AVX2_CBC_H

#include "avx2.h"

/* Maximum number of round keys (FIPS 197, section 5). */
#define GW_AVX2_ROUND_KEYS 15u

/* Data of eight packets. It begins with a nonce, whose encryption is the IV (gw_ipsec_cbc_iv).
 * Unused lanes repeat a used lane, which is harmless, because each step reads all its input before
 * it writes. */
typedef struct gw_avx2_cbc {
    __m128i keys[GW_AVX2_ROUND_KEYS][GW_AVX2_LANES];
    gw_u8 *at[GW_AVX2_LANES];
    gw_u32 blocks[GW_AVX2_LANES];
    gw_u32 shortest; /* smallest number of blocks */
    gw_u32 longest;
    __m128i unused; /* block that lanes without data encrypt */
} gw_avx2_cbc;

GW_NATIVE void gw_avx2_cbc_lane(gw_avx2_cbc *cbc, gw_u32 i, const gw_native_packet *packet,
                                gw_u32 rounds)
{
    const gw_u8 *keys = (const gw_u8 *)packet->found.sa->keys;
    const gw_u32 blocks = 1 + packet->data_bytes / 16;
    for (gw_u32 round = 0; round <= rounds; round++) {
        cbc->keys[round][i] = gw_aes_load(keys + 16 * round);
    }
    cbc->at[i] = packet->data - 16;
    cbc->blocks[i] = blocks;
    cbc->shortest = blocks < cbc->shortest ? blocks : cbc->shortest;
    cbc->longest = blocks > cbc->longest ? blocks : cbc->longest;
}

/* Encrypts block `step` of each packet. If `ended` is 1, some packets may have no such block. */
GW_NATIVE void gw_avx2_cbc_step(gw_avx2_cbc *cbc, __m128i chain[GW_AVX2_LANES], gw_u32 step,
                                gw_u32 rounds, gw_u32 ended)
{
    gw_u8 *to[GW_AVX2_LANES];
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        to[i] = cbc->at[i] + 16 * step;
        if (ended) {
            to[i] = step < cbc->blocks[i] ? to[i] : (gw_u8 *)&cbc->unused;
        }
        chain[i] = _mm_xor_si128(chain[i], gw_aes_load(to[i]));
        chain[i] = _mm_xor_si128(chain[i], cbc->keys[0][i]);
    }
    GW_AVX2_UNROLL
    for (gw_u32 round = 1; round < rounds; round++) {
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
            chain[i] = _mm_aesenc_si128(chain[i], cbc->keys[round][i]);
        }
    }
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        chain[i] = _mm_aesenclast_si128(chain[i], cbc->keys[rounds][i]);
        gw_aes_store(to[i], chain[i]);
    }
}

GW_NATIVE void gw_avx2_cbc_rounds(gw_avx2_cbc *cbc, gw_u32 rounds)
{
    __m128i chain[GW_AVX2_LANES];
    gw_u32 step = 0;
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        chain[i] = _mm_setzero_si128();
    }
    for (; step < cbc->shortest; step++) {
        gw_avx2_cbc_step(cbc, chain, step, rounds, 0);
    }
    for (; step < cbc->longest; step++) {
        gw_avx2_cbc_step(cbc, chain, step, rounds, 1);
    }
}

/* Encrypts the data of eight packets in place. */
static __attribute__((noinline)) void gw_avx2_cbc_encrypt(gw_avx2_cbc *cbc, gw_u32 rounds)
{
    if (rounds == 10) {
        gw_avx2_cbc_rounds(cbc, 10);
    } else if (rounds == 12) {
        gw_avx2_cbc_rounds(cbc, 12);
    } else {
        gw_avx2_cbc_rounds(cbc, 14);
    }
}

#endif
