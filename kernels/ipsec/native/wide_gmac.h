/*
 * AES-GMAC of one ESP packet (RFC 4543): GHASH as wide_gcm.h has it, over all of the packet, and
 * the one counter block that hides the sum.
 *
 *   text     | SPI, sequence, IV | data ...          | ICV
 *   hashed   | ................. | data, zeros up to a block | lengths
 */
#ifndef GODWIT_IPSEC_WIDE_GMAC_H
#define GODWIT_IPSEC_WIDE_GMAC_H

#include "wide_gcm.h"

/* `count` rows with their bytes turned round; what lies behind the data is 0. */
GW_WIDE void gw_gmac_rows(const gw_gcm *gcm, __m512i wire[GW_GCM_ROWS], gw_u32 offset, gw_u32 count)
{
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < count; k++) {
        const gw_u32 at = offset + GW_GCM_ROW * k;
        const __mmask64 there = gw_wide_mask(gcm->bytes, at);
        wire[k] = gw_wide_swap128(_mm512_maskz_loadu_epi8(there, gcm->text + at));
    }
}

/* The tag of a packet whose header and IV are a block. */
GW_WIDE __m128i gw_gmac_run(const gw_wide_packet *packet, gw_u32 rounds)
{
    gw_gcm gcm;
    __m512i wire[GW_GCM_ROWS];
    const gw_u32 group = GW_GCM_ROWS * GW_GCM_ROW;
    gcm.text = packet->data - GW_GCM_BLOCK;
    gcm.bytes = packet->data_bytes + GW_GCM_BLOCK;
    gcm.rounds = rounds;
    gcm.many = 0;
    gw_gcm_begin(&gcm, packet->found.sa);
    const __m512i lengths = gw_gcm_lengths(8 * (gw_u64)gcm.bytes, 0);
    __m128i mask = _mm512_castsi512_si128(_mm512_xor_si512(gcm.counter, gcm.round[0]));
    GW_WIDE_UNROLL
    for (gw_u32 i = 1; i < rounds; i++) {
        mask = _mm_aesenc_si128(mask, _mm512_castsi512_si128(gcm.round[i]));
    }
    mask = _mm_aesenclast_si128(mask, _mm512_castsi512_si128(gcm.round[rounds]));
    gw_u32 offset = 0;
    for (; offset + group < gcm.bytes; offset += group) {
        gw_gmac_rows(&gcm, wire, offset, GW_GCM_ROWS);
        gw_gcm_sum_two(&gcm, wire[0], wire[1]);
        gw_gcm_sum_two(&gcm, wire[2], wire[3]);
    }
    __m128i sum = _mm_setzero_si128();

#define GW_GMAC_LAST(count)                                                                        \
    gw_gmac_rows(&gcm, wire, offset, count);                                                       \
    sum = gw_gcm_end(&gcm, wire, count, 0, lengths);                                               \
    break;

    switch ((gcm.bytes - offset + GW_GCM_ROW - 1) / GW_GCM_ROW) {
    case 1:
        GW_GMAC_LAST(1)
    case 2:
        GW_GMAC_LAST(2)
    case 3:
        GW_GMAC_LAST(3)
    default:
        GW_GMAC_LAST(4)
    }
#undef GW_GMAC_LAST
    const __m128i turned = _mm512_castsi512_si128(gw_wide_swap128(_mm512_castsi128_si512(sum)));
    return _mm_xor_si128(turned, mask);
}

static __attribute__((noinline)) __m128i gw_gmac_128(const gw_wide_packet *packet)
{
    return gw_gmac_run(packet, 10);
}

static __attribute__((noinline)) __m128i gw_gmac_192(const gw_wide_packet *packet)
{
    return gw_gmac_run(packet, 12);
}

static __attribute__((noinline)) __m128i gw_gmac_256(const gw_wide_packet *packet)
{
    return gw_gmac_run(packet, 14);
}

/* With the upper half of its sequence number, which is not sent, nothing lies as it is hashed. */
static __attribute__((noinline)) __m128i gw_gmac_extended(const gw_wide_packet *packet,
                                                          gw_u32 rounds)
{
    const gw_ipsec_tag tag =
        gw_ipsec_gmac_esp(packet->found.sa, rounds, gw_load_be64(packet->data - 8),
                          packet->sequence, packet->data, packet->data_bytes);
    gw_u8 bytes[16];
    gw_ipsec_tag_store(bytes, tag, sizeof(bytes));
    return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

/* A packet's tag as it goes over the wire. */
GW_WIDE __m128i gw_gmac_packet(const gw_wide_packet *packet, gw_u32 rounds)
{
    if ((packet->found.sa->flags & GW_IPSEC_SA_ESN) != 0) {
        return gw_gmac_extended(packet, rounds);
    }
    return rounds == 10   ? gw_gmac_128(packet)
           : rounds == 12 ? gw_gmac_192(packet)
                          : gw_gmac_256(packet);
}

#endif
