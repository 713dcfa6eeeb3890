/*
 * The headers of sixteen packets at once, inbound, where all of them are what most packets are: ESP
 * in IPv4, behind a header without options, between IPv4 endpoints, without VLAN tag and UDP. As
 * gw_ipsec_open_begin, field by field: a number of each lane is a word of a register.
 *
 *              | 2 | L2          | outer IPv4 | SPI, sequence | IV, data ...
 *   row        | 16              | 20         | 8             | 4
 *   number                         0 to 4       5, 6            7
 */
#ifndef GODWIT_IPSEC_WIDE_PLAIN_OPEN_H
#define GODWIT_IPSEC_WIDE_PLAIN_OPEN_H

#include "wide_plain.h"

/* Behind the words that plain->ip holds: destination, SPI, sequence number, and one more. */
GW_WIDE void gw_wide_plain_read_esp(const gw_wide_plain *plain, __m512i words[4])
{
    const gw_u32 at = 32 - GW_WIDE_LEAD;
    gw_u8 *const *frame = plain->coming->frame;
    __m512i blocks[4];
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        blocks[j] =
            gw_wide_gather(frame[j] + at, frame[j + 4] + at, frame[j + 8] + at, frame[j + 12] + at);
    }
    gw_wide_numbers(words, blocks);
}

/* Whether a selector lets any packet pass. */
GW_WIDE gw_u32 gw_wide_is_any(const gw_bin_call *call, gw_u32 index)
{
    const gw_ipsec_image *image = (const gw_ipsec_image *)call->image;
    const gw_ipsec_selector *selector =
        (const gw_ipsec_selector *)(call->image + image->selector_offset) + index;
    return selector->family == 0 && selector->ports == 0 &&
           selector->protocol == GW_IPSEC_PROTOCOL_ANY;
}

/* Whether SAs are for any packet; `words`: 12 to 15 of gw_ipsec_sa. Most have one selector, which
 * they share. */
GW_WIDE gw_u32 gw_wide_are_for_any(const __m512i words[4], const gw_bin_call *call)
{
    return gw_wide_same(words[1]) && _mm512_test_epi32_mask(words[2], gw_wide_set(~0u)) == 0xffff &&
           gw_wide_is_any(call, (gw_u32)_mm512_cvtsi512_si32(words[1]));
}

/* Checks all packets; returns whether every one is plain, and what is to be authenticated and
 * decrypted in the results. Writes nothing else. */
static __attribute__((noinline)) gw_u32
gw_wide_plain_open(gw_wide_plain *plain, const gw_bin_call *call, gw_ipsec_suite suite)
{
    const gw_u32 around = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const gw_u32 block_bytes = gw_ipsec_block_bytes(suite);
    const gw_u32 row_bytes = 48 - GW_WIDE_LEAD;
    const gw_u32 is = GW_IPSEC_SA_USED | GW_IPSEC_SA_INBOUND;
    const gw_u32 other = is | GW_IPSEC_SA_TRANSPORT | GW_IPSEC_SA_OUTER_IPV6 | GW_IPSEC_SA_UDP;
    const __m512i ones = gw_wide_set(0xffff);
    const __m512i place = _mm512_load_si512(plain->coming->place);
    const __m512i length = _mm512_srli_epi32(place, 16);
    if ((_mm512_cmpge_epu32_mask(_mm512_and_si512(place, ones), gw_wide_set(GW_WIDE_LEAD)) &
         _mm512_cmpge_epu32_mask(length, gw_wide_set(row_bytes))) != 0xffff) {
        return 0;
    }
    __mmask16 fine = gw_wide_plain_read(plain);
    __m512i line[4][4];
    __m512i sa[4];    /* words 0 to 3 of gw_ipsec_sa */
    __m512i peer[4];  /* words 8 to 11 */
    __m512i words[4]; /* from the outer destination on */
    gw_wide_line(line, &plain->coming->sas, 0);
    gw_wide_words(sa, line[0]);
    gw_wide_words(peer, line[2]);
    gw_wide_plain_read_esp(plain, words);
    fine &= _mm512_cmpeq_epu32_mask(_mm512_and_si512(sa[1], gw_wide_set(other)), gw_wide_set(is));
    fine &= _mm512_cmpeq_epu32_mask(_mm512_and_si512(sa[3], gw_wide_set(0xff)),
                                    gw_wide_set(call->variant >> 1));

    /* As gw_ipsec_ip_parse and gw_ipsec_arrive. */
    const __m512i total = _mm512_and_si512(plain->ip[0], ones);
    fine &= _mm512_cmpeq_epu32_mask(_mm512_srli_epi32(plain->ip[0], 24), gw_wide_set(0x45));
    fine &=
        _mm512_cmple_epu32_mask(_mm512_add_epi32(total, gw_wide_set(GW_ETHERNET_BYTES)), length);
    fine &= (__mmask16)~gw_wide_has(plain->ip[1], 0x3fff);
    fine &= _mm512_cmpeq_epu32_mask(_mm512_and_si512(plain->ip[2], gw_wide_set(0xff0000)),
                                    gw_wide_set(GW_IPSEC_ESP << 16));
    __m512i sum = _mm512_add_epi32(gw_wide_halves_sum(plain->ip[0], plain->ip[1]),
                                   gw_wide_halves_sum(plain->ip[2], plain->ip[3]));
    sum = _mm512_add_epi32(sum, gw_wide_halves_sum(words[0], _mm512_setzero_si512()));
    sum = _mm512_add_epi32(_mm512_and_si512(sum, ones), _mm512_srli_epi32(sum, 16));
    sum = _mm512_add_epi32(_mm512_and_si512(sum, ones), _mm512_srli_epi32(sum, 16));
    fine &= _mm512_cmpeq_epu32_mask(sum, ones);
    fine &= _mm512_cmpeq_epu32_mask(words[0], peer[0]);

    /* As gw_ipsec_open_begin. */
    const __m512i icv_bytes = _mm512_and_si512(_mm512_srli_epi32(sa[3], 8), gw_wide_set(0xff));
    const __m512i without = _mm512_add_epi32(icv_bytes, gw_wide_set(around));
    const __m512i data_bytes = _mm512_sub_epi32(total, without);
    fine &= _mm512_cmpge_epu32_mask(total, _mm512_add_epi32(without, gw_wide_set(block_bytes)));
    fine &= (__mmask16)~gw_wide_has(data_bytes, block_bytes - 1);
    fine &= _mm512_cmpeq_epu32_mask(words[1], sa[0]);
    if (fine != 0xffff) {
        return 0;
    }
    _mm512_store_si512(plain->spi, sa[0]);
    _mm512_store_si512(plain->coming->numbers[1], words[2]);
    _mm512_store_si512(plain->data_bytes, data_bytes);
    plain->even = gw_wide_plain_even(sa[1], data_bytes);
    plain->icv_bytes = gw_wide_one_number(icv_bytes);
    plain->extended = gw_wide_has(sa[1], GW_IPSEC_SA_ESN);
    plain->ecn = _mm512_and_si512(_mm512_srli_epi32(plain->ip[0], 16), gw_wide_set(GW_IPSEC_ECN));
    gw_wide_words(sa, line[3]);
    plain->for_any = gw_wide_are_for_any(sa, call);
    return 1;
}

#endif
