/* AES-CTR and CBC decryption of one packet at a time (NIST SP 800-38A, sections 6.2 and 6.5), eight
 * blocks in a step. */
#ifndef GODWIT_IPSEC_AVX2_CTR_H
#define GODWIT_IPSEC_AVX2_CTR_H

#include "avx2_unit.h"

/* Returns the first counters of a packet. The counter is a number in the last word of a block. */
GW_NATIVE gw_avx2_unit gw_avx2_ctr_counters(__m128i front, gw_u32 first)
{
    return GW_AVX2_UNIT_ADD(GW_AVX2_UNIT_ALL(_mm_insert_epi32(front, (int)first, 3)),
                            GW_AVX2_UNIT_COUNTERS);
}

/* Returns the counters of the next step. */
GW_NATIVE gw_avx2_unit gw_avx2_ctr_next(gw_avx2_unit counters)
{
    return GW_AVX2_UNIT_ADD(counters,
                            GW_AVX2_UNIT_ALL(_mm_setr_epi32(0, 0, 0, (int)GW_AVX2_STEP_BLOCKS)));
}

/* Begins the encryption of eight counter blocks. */
GW_NATIVE void gw_avx2_ctr_begin(gw_avx2_unit stream[GW_AVX2_STEP_UNITS], gw_avx2_unit counters,
                                 const __m128i *keys)
{
    const __m128i order = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 14, 13, 12);
    const gw_avx2_unit next = GW_AVX2_UNIT_ALL(_mm_setr_epi32(0, 0, 0, (int)GW_AVX2_UNIT_BLOCKS));
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_STEP_UNITS; i++) {
        stream[i] = GW_AVX2_UNIT_XOR(GW_AVX2_UNIT_SHUFFLE(counters, GW_AVX2_UNIT_ALL(order)),
                                     GW_AVX2_UNIT_ALL(keys[0]));
        counters = GW_AVX2_UNIT_ADD(counters, next);
    }
}

GW_NATIVE void gw_avx2_ctr_round(gw_avx2_unit stream[GW_AVX2_STEP_UNITS], __m128i key)
{
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_STEP_UNITS; i++) {
        stream[i] = GW_AVX2_UNIT_ENCRYPT(stream[i], GW_AVX2_UNIT_ALL(key));
    }
}

GW_NATIVE void gw_avx2_ctr_last(gw_avx2_unit stream[GW_AVX2_STEP_UNITS], __m128i key)
{
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_STEP_UNITS; i++) {
        stream[i] = GW_AVX2_UNIT_LAST(stream[i], GW_AVX2_UNIT_ALL(key));
    }
}

/* XORs 128 bytes with the key stream. */
GW_NATIVE void gw_avx2_ctr_apply(gw_u8 *data, const gw_avx2_unit stream[GW_AVX2_STEP_UNITS])
{
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_STEP_UNITS; i++) {
        gw_u8 *at = data + GW_AVX2_UNIT_BYTES * i;
        GW_AVX2_UNIT_STORE(at, GW_AVX2_UNIT_XOR(GW_AVX2_UNIT_LOAD(at), stream[i]));
    }
}

/* Encrypts or decrypts the data of a packet in place. Its length is a multiple of 4. */
GW_NATIVE void gw_avx2_ctr_rounds(const gw_native_packet *packet, gw_u32 rounds)
{
    const gw_ipsec_sa *sa = packet->found.sa;
    const __m128i *keys = (const __m128i *)(const void *)sa->keys;
    const gw_aes_nonce nonce = gw_ipsec_aes_nonce(sa, gw_load_be64(packet->data - 8));
    gw_avx2_unit counters =
        gw_avx2_ctr_counters(gw_aes_words(nonce.salt, nonce.iv_high, nonce.iv_low, 0), 1);
    gw_avx2_unit stream[GW_AVX2_STEP_UNITS];
    gw_u8 *data = packet->data;
    gw_u32 left = packet->data_bytes;
    while (left != 0) {
        gw_avx2_ctr_begin(stream, counters, keys);
        GW_AVX2_UNROLL
        for (gw_u32 round = 1; round < rounds; round++) {
            gw_avx2_ctr_round(stream, keys[round]);
        }
        gw_avx2_ctr_last(stream, keys[rounds]);
        if (left < GW_AVX2_STEP_BYTES) {
            break;
        }
        gw_avx2_ctr_apply(data, stream);
        counters = gw_avx2_ctr_next(counters);
        data += GW_AVX2_STEP_BYTES;
        left -= GW_AVX2_STEP_BYTES;
    }
    for (gw_u32 at = 0; at < left; at += GW_AVX2_UNIT_BYTES) {
        const gw_avx2_unit mask = gw_avx2_unit_mask((int)(left - at) / 4);
        const gw_avx2_unit in = gw_avx2_unit_load_part(data + at, mask);
        gw_avx2_unit_store_part(data + at, GW_AVX2_UNIT_XOR(in, stream[at / GW_AVX2_UNIT_BYTES]),
                                left - at);
    }
}

/* Decrypts the data of a packet in place. The IV precedes the data, whose length is a multiple of
 * 16. */
GW_NATIVE void gw_avx2_cbc_decrypt_rounds(const gw_native_packet *packet, gw_u32 rounds)
{
    const __m128i *keys = (const __m128i *)(const void *)packet->found.sa->keys;
    gw_avx2_unit before = GW_AVX2_UNIT_END(gw_aes_load(packet->data - 16));
    gw_u8 *data = packet->data;
    for (gw_u32 at = 0; at < packet->data_bytes; at += GW_AVX2_STEP_BYTES) {
        const gw_u32 left = packet->data_bytes - at;
        gw_avx2_unit in[GW_AVX2_STEP_UNITS];
        gw_avx2_unit out[GW_AVX2_STEP_UNITS];
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < GW_AVX2_STEP_UNITS; i++) {
            const int words = (int)(left / 4) - (int)(GW_AVX2_UNIT_BYTES / 4 * i);
            gw_u8 *unit = data + at + GW_AVX2_UNIT_BYTES * i;
            in[i] = left >= GW_AVX2_STEP_BYTES
                        ? GW_AVX2_UNIT_LOAD(unit)
                        : gw_avx2_unit_load_part(unit, gw_avx2_unit_mask(words));
            out[i] = GW_AVX2_UNIT_XOR(in[i], GW_AVX2_UNIT_ALL(keys[0]));
        }
        GW_AVX2_UNROLL
        for (gw_u32 round = 1; round < rounds; round++) {
            GW_AVX2_UNROLL
            for (gw_u32 i = 0; i < GW_AVX2_STEP_UNITS; i++) {
                out[i] = GW_AVX2_UNIT_DECRYPT(out[i], GW_AVX2_UNIT_ALL(keys[round]));
            }
        }
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < GW_AVX2_STEP_UNITS; i++) {
            const gw_u32 unit_at = GW_AVX2_UNIT_BYTES * i;
            out[i] = GW_AVX2_UNIT_DECRYPT_LAST(out[i], GW_AVX2_UNIT_ALL(keys[rounds]));
            out[i] = GW_AVX2_UNIT_XOR(out[i], GW_AVX2_UNIT_BEFORE(before, in[i]));
            before = in[i];
            if (unit_at < left) {
                gw_avx2_unit_store_part(data + at + unit_at, out[i], left - unit_at);
            }
        }
    }
}

#define GW_AVX2_BY_ROUNDS(call)                                                                    \
    if (rounds == 10) {                                                                            \
        call(packet, 10);                                                                          \
    } else if (rounds == 12) {                                                                     \
        call(packet, 12);                                                                          \
    } else {                                                                                       \
        call(packet, 14);                                                                          \
    }

static __attribute__((noinline)) void gw_avx2_ctr(const gw_native_packet *packet, gw_u32 rounds)
{
    GW_AVX2_BY_ROUNDS(gw_avx2_ctr_rounds)
}

static __attribute__((noinline)) void gw_avx2_cbc_decrypt(const gw_native_packet *packet,
                                                          gw_u32 rounds)
{
    GW_AVX2_BY_ROUNDS(gw_avx2_cbc_decrypt_rounds)
}

#endif
