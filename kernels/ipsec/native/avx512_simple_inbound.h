/*
 * Header check of sixteen simple inbound packets at once. A simple packet is ESP in IPv4 without
 * options, between IPv4 endpoints, without VLAN tag and UDP. The checks are those of
 * gw_ipsec_esp_decapsulate_begin. A register holds one header word of all lanes.
 *
 *              | 2 | L2          | outer IPv4 | SPI, sequence | IV, data ...
 *   bytes      | 16              | 20         | 8             | 4
 *   words                          0 to 4       5, 6            7
 */
#ifndef GODWIT_IPSEC_AVX512_SIMPLE_INBOUND_H
#define GODWIT_IPSEC_AVX512_SIMPLE_INBOUND_H

#include "avx512_simple.h"

/* Loads four more words of the headers of sixteen packets: outer destination, SPI, sequence number,
 * and the word that follows. */
GW_AVX512 void gw_avx512_simple_read_esp(const gw_avx512_simple *simple, __m512i words[4])
{
    const gw_u32 at = 32 - GW_AVX512_LEAD;
    gw_u8 *const *frame = simple->upcoming->frame;
    __m512i blocks[4];
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        blocks[j] = gw_avx512_gather(frame[j] + at, frame[j + 4] + at, frame[j + 8] + at,
                                     frame[j + 12] + at);
    }
    gw_avx512_host_words(words, blocks);
}

/* Returns whether a selector accepts any packet. */
GW_AVX512 gw_u32 gw_avx512_selector_accepts_any(const gw_bin_call *call, gw_u32 index)
{
    const gw_ipsec_image *image = (const gw_ipsec_image *)call->image;
    const gw_ipsec_selector *selector =
        (const gw_ipsec_selector *)(call->image + image->selector_offset) + index;
    return selector->family == 0 && selector->ports == 0 &&
           selector->protocol == GW_IPSEC_PROTOCOL_ANY;
}

/* Returns whether the SAs of sixteen packets accept any inner packet. `words` holds the words 12 to
 * 15 of gw_ipsec_sa. Most SAs share one selector. */
GW_AVX512 gw_u32 gw_avx512_sas_accept_any(const __m512i words[4], const gw_bin_call *call)
{
    return gw_avx512_all_equal(words[1]) &&
           _mm512_test_epi32_mask(words[2], gw_avx512_set(~0u)) == 0xffff &&
           gw_avx512_selector_accepts_any(call, (gw_u32)_mm512_cvtsi512_si32(words[1]));
}

/* Checks sixteen inbound packets. Returns whether all are simple, and sets the location and length
 * of their encrypted data. Writes nothing else. */
static __attribute__((noinline)) gw_u32 gw_avx512_simple_decapsulate_begin(gw_avx512_simple *simple,
                                                                           const gw_bin_call *call,
                                                                           gw_ipsec_suite suite)
{
    const gw_u32 overhead = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const gw_u32 block_bytes = gw_ipsec_block_bytes(suite);
    const gw_u32 row_bytes = 48 - GW_AVX512_LEAD;
    const gw_u32 expected = GW_IPSEC_SA_USED | GW_IPSEC_SA_INBOUND;
    const gw_u32 checked =
        expected | GW_IPSEC_SA_TRANSPORT | GW_IPSEC_SA_OUTER_IPV6 | GW_IPSEC_SA_UDP;
    const __m512i ones = gw_avx512_set(0xffff);
    const __m512i head_length = _mm512_load_si512(simple->upcoming->head_length);
    const __m512i length = _mm512_srli_epi32(head_length, 16);
    if ((_mm512_cmpge_epu32_mask(_mm512_and_si512(head_length, ones),
                                 gw_avx512_set(GW_AVX512_LEAD)) &
         _mm512_cmpge_epu32_mask(length, gw_avx512_set(row_bytes))) != 0xffff) {
        return 0;
    }
    __mmask16 valid = gw_avx512_simple_read(simple);
    __m512i line[4][4];
    __m512i sa[4];    /* words 0 to 3 of gw_ipsec_sa */
    __m512i peer[4];  /* words 8 to 11 of gw_ipsec_sa */
    __m512i words[4]; /* words of the packet from the outer destination on */
    gw_avx512_load_sa_line(line, &simple->upcoming->sas, 0);
    gw_avx512_words(sa, line[0]);
    gw_avx512_words(peer, line[2]);
    gw_avx512_simple_read_esp(simple, words);
    valid &= _mm512_cmpeq_epu32_mask(_mm512_and_si512(sa[1], gw_avx512_set(checked)),
                                     gw_avx512_set(expected));
    valid &= _mm512_cmpeq_epu32_mask(_mm512_and_si512(sa[3], gw_avx512_set(0xff)),
                                     gw_avx512_set(call->variant >> 1));

    /* Checks of gw_ipsec_ip_parse and gw_ipsec_locate. */
    const __m512i total = _mm512_and_si512(simple->ip[0], ones);
    valid &= _mm512_cmpeq_epu32_mask(_mm512_srli_epi32(simple->ip[0], 24), gw_avx512_set(0x45));
    valid &=
        _mm512_cmple_epu32_mask(_mm512_add_epi32(total, gw_avx512_set(GW_ETHERNET_BYTES)), length);
    valid &= (__mmask16)~gw_avx512_has(simple->ip[1], 0x3fff);
    valid &= _mm512_cmpeq_epu32_mask(_mm512_and_si512(simple->ip[2], gw_avx512_set(0xff0000)),
                                     gw_avx512_set(GW_IPSEC_ESP << 16));
    __m512i sum = _mm512_add_epi32(gw_avx512_halves_sum(simple->ip[0], simple->ip[1]),
                                   gw_avx512_halves_sum(simple->ip[2], simple->ip[3]));
    sum = _mm512_add_epi32(sum, gw_avx512_halves_sum(words[0], _mm512_setzero_si512()));
    sum = _mm512_add_epi32(_mm512_and_si512(sum, ones), _mm512_srli_epi32(sum, 16));
    sum = _mm512_add_epi32(_mm512_and_si512(sum, ones), _mm512_srli_epi32(sum, 16));
    valid &= _mm512_cmpeq_epu32_mask(sum, ones);
    valid &= _mm512_cmpeq_epu32_mask(words[0], peer[0]);

    /* Checks of gw_ipsec_esp_decapsulate_begin. */
    const __m512i icv_bytes = _mm512_and_si512(_mm512_srli_epi32(sa[3], 8), gw_avx512_set(0xff));
    const __m512i total_overhead = _mm512_add_epi32(icv_bytes, gw_avx512_set(overhead));
    const __m512i data_bytes = _mm512_sub_epi32(total, total_overhead);
    valid &= _mm512_cmpge_epu32_mask(total,
                                     _mm512_add_epi32(total_overhead, gw_avx512_set(block_bytes)));
    valid &= (__mmask16)~gw_avx512_has(data_bytes, block_bytes - 1);
    valid &= _mm512_cmpeq_epu32_mask(words[1], sa[0]);
    if (valid != 0xffff) {
        return 0;
    }
    _mm512_store_si512(simple->spi, sa[0]);
    _mm512_store_si512(simple->upcoming->sequence[1], words[2]);
    _mm512_store_si512(simple->data_bytes, data_bytes);
    simple->same_length = gw_avx512_simple_same_length(sa[1], data_bytes);
    simple->icv_bytes = gw_avx512_common_value(icv_bytes);
    simple->extended = gw_avx512_has(sa[1], GW_IPSEC_SA_ESN);
    simple->ecn =
        _mm512_and_si512(_mm512_srli_epi32(simple->ip[0], 16), gw_avx512_set(GW_IPSEC_ECN));
    gw_avx512_words(sa, line[3]);
    simple->accepts_any = gw_avx512_sas_accept_any(sa, call);
    return 1;
}

#endif
