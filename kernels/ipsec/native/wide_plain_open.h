/*
 * The headers of sixteen packets at once, inbound, where all of them are what most packets are: ESP
 * in IPv4, behind a header without options, between IPv4 endpoints, without VLAN tag and UDP. As
 * gw_ipsec_open_begin, field by field: a number of each lane is a word of a register.
 *
 *              | 2 | L2          | outer IPv4 | SPI, sequence | IV, data ...
 *   row        | 16              | 20         | 8             | 4
 *   number                         0 to 4       5, 6            7
 *
 * And the way out of the tunnel for one that holds what most packets hold: IPv4 without surprises.
 */
#ifndef GODWIT_IPSEC_WIDE_PLAIN_OPEN_H
#define GODWIT_IPSEC_WIDE_PLAIN_OPEN_H

#include "wide_plain.h"

/* The byte of an IPv4 header that says what follows. */
#define GW_WIDE_NAMED_AT 9u

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

/* Checks all packets; returns whether every one is plain, and what is to be authenticated and
 * decrypted in the results. Writes nothing else. */
static __attribute__((noinline)) gw_u32 gw_wide_plain_open(gw_wide_plain *plain, gw_u32 variant,
                                                           gw_ipsec_suite suite)
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
                                    gw_wide_set(variant >> 1));

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
    return 1;
}

/* Whether the up to 15 bytes of padding in front of a trailer are 1, 2, 3 and so on. */
GW_WIDE gw_u32 gw_wide_padding_right(const gw_u8 *trailer, gw_u32 pad_bytes)
{
    /* From byte `pad_bytes` on, it ends with the padding. */
    static const gw_u8 numbers[32] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0,  0,  0,  0,
                                      1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const __m128i came = _mm_loadu_si128((const __m128i *)(trailer - 16));
    const __m128i right = _mm_loadu_si128((const __m128i *)(numbers + pad_bytes));
    return _mm_mask_cmpneq_epi8_mask((__mmask16)(0xffff0000u >> pad_bytes), came, right) == 0;
}

static __attribute__((noinline)) gw_u32 gw_wide_selected(const gw_u8 *packet, gw_u32 total_bytes,
                                                         const gw_ipsec_sa *sa,
                                                         const gw_bin_call *call)
{
    const gw_lane lane = {.image = call->image, .variant = call->variant};
    const gw_ipsec_ip ip = gw_ipsec_ip_parse(packet, total_bytes, 4);
    const gw_ipsec_shown shown =
        gw_ipsec_show(packet, total_bytes, gw_ipsec_extensions(packet, ip));
    return gw_ipsec_selected(&lane, sa, packet, 4, shown);
}

/* Whether an SA is for the IPv4 packet that came out of it; most are for any. */
GW_WIDE gw_u32 gw_wide_is_for(const gw_u8 *packet, gw_u32 total_bytes, const gw_ipsec_sa *sa,
                              const gw_bin_call *call)
{
    const gw_ipsec_image *image = (const gw_ipsec_image *)call->image;
    const gw_ipsec_selector *first =
        (const gw_ipsec_selector *)(call->image + image->selector_offset) + sa->selector_first;
    if (sa->selector_count != 0 && first->family == 0 && first->ports == 0 &&
        first->protocol == GW_IPSEC_PROTOCOL_ANY) {
        return 1;
    }
    return gw_wide_selected(packet, total_bytes, sa, call);
}

/*
 * Takes an IPv4 packet out of its tunnel, as gw_ipsec_open_end and gw_ipsec_leave_tunnel, after
 * gw_wide_plain_open. Returns 0 where it is to be dropped, or is not that simple: nothing is done
 * then.
 */
GW_WIDE gw_u32 gw_wide_plain_leave(const gw_wide_packet *packet, const gw_bin_call *call,
                                   gw_ipsec_suite suite, gw_descriptor *descriptor,
                                   gw_outcome *at_outcome)
{
    const gw_u32 removed = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const gw_ipsec_sa *sa = packet->found.sa;
    const gw_u8 *trailer = packet->data + packet->data_bytes - GW_ESP_TAIL_BYTES;
    const gw_u8 *frame = packet->data - removed - GW_ETHERNET_BYTES;
    const gw_u32 pad_bytes = trailer[0];
    const gw_u32 first = gw_load_be32(packet->data);
    const gw_u32 total_bytes = first & 0xffff;
    const gw_u32 header_bytes = first >> 22 & 0x3c;
    const gw_u32 ecn = first >> 16 & GW_IPSEC_ECN;
    const gw_u32 outer_ecn = frame[GW_ETHERNET_BYTES + 1] & GW_IPSEC_ECN;
    /* The padding is looked at only where the packet is authentic: nobody learns of any other. */
    if (!packet->authentic || pad_bytes > 15 || trailer[1] != GW_PROTOCOL_IPV4 ||
        !gw_wide_padding_right(trailer, pad_bytes)) {
        return 0;
    }
    if (first >> 28 != 4 || header_bytes < GW_IPV4_BYTES || total_bytes < header_bytes ||
        total_bytes + pad_bytes + GW_ESP_TAIL_BYTES > packet->data_bytes ||
        (outer_ecn != 0 && outer_ecn != ecn) ||
        !gw_wide_is_for(packet->data, total_bytes, sa, call)) {
        return 0;
    }
    const gw_outcome outcome = {GW_IPSEC_DECRYPTED, 0, 0, sa->spi};
    const __m128i l2 = _mm_loadu_si128((const __m128i *)(frame - GW_WIDE_LEAD));
    _mm_mask_storeu_epi8(packet->data - 16, (__mmask16)(0xffff << GW_WIDE_LEAD), l2);
    descriptor->head = (gw_u16)(descriptor->head + removed);
    descriptor->length = (gw_u16)(GW_ETHERNET_BYTES + total_bytes);
    *at_outcome = outcome;
    return 1;
}

#endif
