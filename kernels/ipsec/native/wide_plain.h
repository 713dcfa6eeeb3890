/*
 * The headers of sixteen packets at once, outbound, where all of them are what most packets are:
 * IPv4 in a tunnel between IPv4 endpoints, without VLAN tag and UDP. As gw_ipsec_seal_begin, field
 * by field: a number of each lane is a word of a register.
 *
 *              | 2 | L2          | outer IPv4 | SPI, sequence | IV      | inner packet ...
 *   row        | 16              | 20         | 8             | 8 or 16 | up to 64 bytes
 *   number                         0 to 4       5, 6            7 ...     as it was
 */
#ifndef GODWIT_IPSEC_WIDE_PLAIN_H
#define GODWIT_IPSEC_WIDE_PLAIN_H

#include "wide_even.h"

/* Bytes in front of a frame that a row begins with, so that what is behind L2 lies in whole words.
 */
#define GW_WIDE_LEAD 2u

typedef struct gw_wide_plain {
    gw_wide_coming *coming; /* place: also a result, outbound; numbers[1]: inbound */
    __m512i l2[4];          /* the first chunk of a row */
    __m512i ip[4];          /* the first words of the packet inside, as numbers */
    gw_u32 even;            /* as gw_wide_even would say */
    gw_u32 icv_bytes;       /* of all lanes; 0: they differ */
    gw_u32 extended;        /* bits of lanes whose sequence numbers are extended */
    gw_u32 for_any;         /* inbound: as gw_wide_group */
    __m512i ecn;            /* inbound: of the outer headers */
    /* Results, one for each lane. */
    gw_u32 spi[GW_WIDE_LANES] __attribute__((aligned(64)));
    gw_u32 total_bytes[GW_WIDE_LANES] __attribute__((aligned(64)));
    gw_u32 data_bytes[GW_WIDE_LANES] __attribute__((aligned(64)));
} gw_wide_plain;

GW_WIDE __m512i gw_wide_set(gw_u32 value)
{
    return _mm512_set1_epi32((int)value);
}

/* Whether a lane has a bit of `flags` set. */
GW_WIDE __mmask16 gw_wide_has(__m512i flags, gw_u32 flag)
{
    return _mm512_test_epi32_mask(flags, gw_wide_set(flag));
}

/* The four words of a chunk of sixteen rows, as numbers. */
GW_WIDE void gw_wide_numbers(__m512i words[4], const __m512i blocks[4])
{
    __m512i swapped[4];
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        swapped[j] = gw_wide_swap32(blocks[j]);
    }
    gw_wide_words(words, swapped);
}

/* Reads L2 and the beginning of what is behind it. */
GW_WIDE __mmask16 gw_wide_plain_read(gw_wide_plain *plain)
{
    __m512i blocks[4];
    __m512i words[4];
    gw_u8 *const *frame = plain->coming->frame;
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        const __m512i ab = gw_wide_halves(frame[j] - GW_WIDE_LEAD, frame[j + 4] - GW_WIDE_LEAD);
        const __m512i cd =
            gw_wide_halves(frame[j + 8] - GW_WIDE_LEAD, frame[j + 12] - GW_WIDE_LEAD);
        plain->l2[j] = _mm512_shuffle_i32x4(ab, cd, 0x88);
        blocks[j] = _mm512_shuffle_i32x4(ab, cd, 0xdd);
    }
    gw_wide_numbers(plain->ip, blocks);
    gw_wide_numbers(words, plain->l2);
    const __m512i ether_type = _mm512_and_si512(words[3], gw_wide_set(0xffff));
    return _mm512_cmpeq_epu32_mask(ether_type, gw_wide_set(GW_ETHER_TYPE_IPV4));
}

/* Ones' complement sums of the halves of two numbers, not folded. */
GW_WIDE __m512i gw_wide_halves_sum(__m512i a, __m512i b)
{
    const __m512i low = gw_wide_set(0xffff);
    return _mm512_add_epi32(_mm512_add_epi32(_mm512_srli_epi32(a, 16), _mm512_and_si512(a, low)),
                            _mm512_add_epi32(_mm512_srli_epi32(b, 16), _mm512_and_si512(b, low)));
}

/* The block of one of a register's four lanes. */
GW_WIDE __m128i gw_wide_quarter(__m512i value, gw_u32 lane)
{
    switch (lane) {
    case 0:
        return _mm512_castsi512_si128(value);
    case 1:
        return _mm512_extracti32x4_epi32(value, 1);
    case 2:
        return _mm512_extracti32x4_epi32(value, 2);
    default:
        return _mm512_extracti32x4_epi32(value, 3);
    }
}

/* Writes rows of four chunks, but for their first two bytes. */
GW_WIDE void gw_wide_plain_write(const gw_wide_plain *plain, __m512i chunks[4][4], gw_u32 added)
{
    const __mmask16 front = (__mmask16)(0xffff << GW_WIDE_LEAD);
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        gw_u8 *to[4];
        GW_WIDE_UNROLL
        for (gw_u32 i = 0; i < 4; i++) {
            to[i] = plain->coming->frame[j + 4 * i] - added - GW_WIDE_LEAD;
            _mm_mask_storeu_epi8(to[i], front, gw_wide_quarter(chunks[0][j], i));
            _mm_storeu_si128((__m128i *)(to[i] + 16), gw_wide_quarter(chunks[1][j], i));
        }
        gw_wide_store_two(chunks[2][j], chunks[3][j], to[0] + 32, to[1] + 32, to[2] + 32,
                          to[3] + 32);
    }
}

/* Whether all lanes have the same number. */
GW_WIDE gw_u32 gw_wide_same(__m512i numbers)
{
    const __m512i first = _mm512_broadcastd_epi32(_mm512_castsi512_si128(numbers));
    return _mm512_cmpeq_epu32_mask(numbers, first) == 0xffff;
}

/* As gw_wide_even. */
GW_WIDE gw_u32 gw_wide_plain_even(__m512i flags, __m512i data_bytes)
{
    const __mmask16 extended = gw_wide_has(flags, GW_IPSEC_SA_ESN);
    return (extended == 0 || extended == 0xffff) && gw_wide_same(data_bytes);
}

/* The number that all lanes have, or 0. */
GW_WIDE gw_u32 gw_wide_one_number(__m512i numbers)
{
    return gw_wide_same(numbers) ? (gw_u32)_mm512_cvtsi512_si32(numbers) : 0;
}

/* Checks all packets, and writes headers and results if every one is plain; else changes nothing
 * and returns 0. */
static __attribute__((noinline)) gw_u32 gw_wide_plain_seal(gw_wide_plain *plain, gw_u32 variant,
                                                           gw_ipsec_suite suite)
{
    const gw_u32 front = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const gw_u32 added = GW_IPV4_BYTES + front;
    const gw_u32 block_bytes = gw_ipsec_block_bytes(suite);
    const gw_u32 other = GW_IPSEC_SA_USED | GW_IPSEC_SA_INBOUND | GW_IPSEC_SA_TRANSPORT |
                         GW_IPSEC_SA_OUTER_IPV6 | GW_IPSEC_SA_UDP;
    const __m512i ones = gw_wide_set(0xffff);
    const __m512i place = _mm512_load_si512(plain->coming->place);
    const __m512i head = _mm512_and_si512(place, ones);
    const __m512i length = _mm512_srli_epi32(place, 16);
    if ((_mm512_cmpge_epu32_mask(head, gw_wide_set(added)) &
         _mm512_cmpge_epu32_mask(length, gw_wide_set(GW_ETHERNET_BYTES + GW_IPV4_BYTES))) !=
        0xffff) {
        return 0;
    }
    __mmask16 fine = gw_wide_plain_read(plain);
    __m512i line[4][4];
    __m512i sa[12]; /* words 0 to 11 of gw_ipsec_sa */
    gw_wide_line(line, &plain->coming->sas, 0);
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < 3; k++) {
        gw_wide_words(&sa[4 * k], line[k]);
    }
    const __m512i spi = sa[0];
    const __m512i flags = sa[1];
    const __m512i kind = _mm512_and_si512(sa[3], gw_wide_set(0xff));
    const __m512i icv_bytes = _mm512_and_si512(_mm512_srli_epi32(sa[3], 8), gw_wide_set(0xff));
    const __m512i hop_limit = _mm512_and_si512(_mm512_srli_epi32(sa[3], 16), gw_wide_set(0xff));
    const __m512i dscp = _mm512_srli_epi32(sa[3], 24);
    fine &= _mm512_cmpeq_epu32_mask(_mm512_and_si512(flags, gw_wide_set(other)),
                                    gw_wide_set(GW_IPSEC_SA_USED));
    fine &= _mm512_cmpeq_epu32_mask(kind, gw_wide_set(variant >> 1));

    /* As gw_ipsec_ip_parse. */
    const __m512i total = _mm512_and_si512(plain->ip[0], ones);
    const __m512i header_bytes =
        _mm512_and_si512(_mm512_srli_epi32(plain->ip[0], 22), gw_wide_set(0x3c));
    fine &= _mm512_cmpeq_epu32_mask(_mm512_srli_epi32(plain->ip[0], 28), gw_wide_set(4));
    fine &= _mm512_cmpge_epu32_mask(header_bytes, gw_wide_set(GW_IPV4_BYTES));
    fine &= _mm512_cmpge_epu32_mask(total, header_bytes);
    fine &=
        _mm512_cmple_epu32_mask(_mm512_add_epi32(total, gw_wide_set(GW_ETHERNET_BYTES)), length);

    const __m512i data_bytes =
        _mm512_and_si512(_mm512_add_epi32(total, gw_wide_set(GW_ESP_TAIL_BYTES + block_bytes - 1)),
                         gw_wide_set(~(block_bytes - 1)));
    const __m512i packet_bytes =
        _mm512_add_epi32(_mm512_add_epi32(data_bytes, icv_bytes), gw_wide_set(added));
    const __m512i bytes = _mm512_add_epi32(packet_bytes, gw_wide_set(GW_ETHERNET_BYTES));
    const __m512i new_head = _mm512_sub_epi32(head, gw_wide_set(added));
    const __m512i room = _mm512_slli_epi32(_mm512_load_si512(plain->coming->room), 6);
    fine &= _mm512_cmple_epu32_mask(_mm512_add_epi32(new_head, bytes), room);
    if (fine != 0xffff) {
        return 0;
    }

    /* As gw_ipsec_enter_tos, gw_ipsec_enter_df and gw_ipsec_outer. */
    const __m512i sequence_high = _mm512_load_si512(plain->coming->numbers[0]);
    const __m512i sequence_low = _mm512_load_si512(plain->coming->numbers[1]);
    const __m512i tos = _mm512_and_si512(_mm512_srli_epi32(plain->ip[0], 16), gw_wide_set(0xff));
    const __m512i copied = _mm512_and_si512(tos, gw_wide_set(0xff & ~GW_IPSEC_ECN));
    const __m512i ecn = _mm512_maskz_and_epi32(
        (__mmask16)~gw_wide_has(flags, GW_IPSEC_SA_ECN_IGNORED), tos, gw_wide_set(GW_IPSEC_ECN));
    const __m512i outer_tos = _mm512_or_si512(
        ecn, _mm512_mask_slli_epi32(copied, gw_wide_has(flags, GW_IPSEC_SA_DSCP_SET), dscp, 2));
    const __mmask16 df = (__mmask16)(gw_wide_has(flags, GW_IPSEC_SA_DF_SET) |
                                     (gw_wide_has(plain->ip[1], GW_IPSEC_IPV4_DF) &
                                      ~gw_wide_has(flags, GW_IPSEC_SA_DF_CLEAR)));
    __m512i numbers[12];
    numbers[0] = _mm512_or_si512(_mm512_or_si512(gw_wide_set(0x45000000u), packet_bytes),
                                 _mm512_slli_epi32(outer_tos, 16));
    numbers[1] = _mm512_or_si512(_mm512_slli_epi32(sequence_low, 16),
                                 _mm512_maskz_set1_epi32(df, (int)GW_IPSEC_IPV4_DF));
    numbers[2] = _mm512_or_si512(_mm512_slli_epi32(hop_limit, 24), gw_wide_set(GW_IPSEC_ESP << 16));
    numbers[3] = sa[4];
    numbers[4] = sa[8];
    __m512i sum = _mm512_add_epi32(gw_wide_halves_sum(numbers[0], numbers[1]),
                                   gw_wide_halves_sum(numbers[3], numbers[4]));
    sum = _mm512_add_epi32(sum, _mm512_srli_epi32(numbers[2], 16));
    sum = _mm512_add_epi32(_mm512_and_si512(sum, ones), _mm512_srli_epi32(sum, 16));
    sum = _mm512_add_epi32(sum, _mm512_srli_epi32(sum, 16));
    numbers[2] = _mm512_or_si512(numbers[2], _mm512_andnot_si512(sum, ones));
    numbers[5] = spi;
    numbers[6] = sequence_low;
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        /* As gw_ipsec_cbc_iv, before it is encrypted. */
        numbers[7] = spi;
        numbers[8] = sequence_high;
        numbers[9] = sequence_low;
        numbers[10] = sa[8];
        numbers[11] = plain->ip[0];
    } else {
        numbers[7] = sequence_high;
        numbers[8] = sequence_low;
        numbers[9] = plain->ip[0];
        numbers[10] = plain->ip[1];
        numbers[11] = plain->ip[2];
    }
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        line[0][j] = plain->l2[j];
    }
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < 3; k++) {
        gw_wide_numbers(line[1 + k], &numbers[4 * k]);
    }
    gw_wide_plain_write(plain, line, added);
    _mm512_store_si512(plain->coming->place,
                       _mm512_or_si512(new_head, _mm512_slli_epi32(bytes, 16)));
    _mm512_store_si512(plain->spi, spi);
    _mm512_store_si512(plain->total_bytes, total);
    _mm512_store_si512(plain->data_bytes, data_bytes);
    plain->even = gw_wide_plain_even(flags, data_bytes);
    plain->icv_bytes = gw_wide_one_number(icv_bytes);
    plain->extended = gw_wide_has(flags, GW_IPSEC_SA_ESN);
    return 1;
}

#endif
