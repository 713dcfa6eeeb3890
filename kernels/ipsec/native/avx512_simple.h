/*
 * Headers of sixteen simple outbound packets at once. A simple packet is IPv4 in a tunnel between
 * IPv4 endpoints, without VLAN tag and UDP. The fields are those of gw_ipsec_esp_encapsulate_begin.
 * A register holds one header word of all lanes.
 *
 *              | 2 | L2          | outer IPv4 | SPI, sequence | IV      | inner packet ...
 *   bytes      | 16              | 20         | 8             | 8 or 16 | up to 64 in total
 *   words                          0 to 4       5, 6            7 ...     unchanged
 */
#ifndef GODWIT_IPSEC_AVX512_SIMPLE_H
#define GODWIT_IPSEC_AVX512_SIMPLE_H

#include "avx512_cbc_hmac.h"

/* Number of bytes before a frame that are loaded with it. With two bytes, the words after the L2
 * header are aligned in the registers. */
#define GW_AVX512_LEAD 2u

typedef struct gw_avx512_simple {
    gw_avx512_upcoming *upcoming; /* input; head_length or sequence[1] is also a result */
    __m512i l2[4];                /* first 16 bytes, from 2 bytes before the frame */
    __m512i ip[4];                /* first words of the IP packet, in host byte order */
    gw_u32 same_length;           /* result of gw_avx512_same_length */
    gw_u32 icv_bytes;             /* of all lanes; 0: different */
    gw_u32 extended;              /* mask of the lanes with extended sequence numbers */
    gw_u32 accepts_any;           /* inbound: see gw_avx512_group */
    __m512i ecn;                  /* inbound: ECN of the outer headers */
    /* Results, one for each lane. */
    gw_u32 spi[GW_AVX512_LANES] __attribute__((aligned(64)));
    gw_u32 total_bytes[GW_AVX512_LANES] __attribute__((aligned(64)));
    gw_u32 data_bytes[GW_AVX512_LANES] __attribute__((aligned(64)));
} gw_avx512_simple;

GW_AVX512 __m512i gw_avx512_set(gw_u32 value)
{
    return _mm512_set1_epi32((int)value);
}

/* Returns a mask of the lanes whose `flags` have a bit of `flag`. */
GW_AVX512 __mmask16 gw_avx512_has(__m512i flags, gw_u32 flag)
{
    return _mm512_test_epi32_mask(flags, gw_avx512_set(flag));
}

/* Converts blocks to words in host byte order. */
GW_AVX512 void gw_avx512_host_words(__m512i words[4], const __m512i blocks[4])
{
    __m512i swapped[4];
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        swapped[j] = gw_avx512_swap32(blocks[j]);
    }
    gw_avx512_words(words, swapped);
}

/* Loads the L2 headers of sixteen packets and the 16 bytes after them. Returns a mask of the lanes
 * that contain IPv4. */
GW_AVX512 __mmask16 gw_avx512_simple_read(gw_avx512_simple *simple)
{
    __m512i blocks[4];
    __m512i words[4];
    gw_u8 *const *frame = simple->upcoming->frame;
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        const __m512i ab =
            gw_avx512_load_halves(frame[j] - GW_AVX512_LEAD, frame[j + 4] - GW_AVX512_LEAD);
        const __m512i cd =
            gw_avx512_load_halves(frame[j + 8] - GW_AVX512_LEAD, frame[j + 12] - GW_AVX512_LEAD);
        simple->l2[j] = _mm512_shuffle_i32x4(ab, cd, 0x88);
        blocks[j] = _mm512_shuffle_i32x4(ab, cd, 0xdd);
    }
    gw_avx512_host_words(simple->ip, blocks);
    gw_avx512_host_words(words, simple->l2);
    const __m512i ether_type = _mm512_and_si512(words[3], gw_avx512_set(0xffff));
    return _mm512_cmpeq_epu32_mask(ether_type, gw_avx512_set(GW_ETHER_TYPE_IPV4));
}

/* Returns the sum of the halves of two words, not folded, for a ones' complement checksum. */
GW_AVX512 __m512i gw_avx512_halves_sum(__m512i a, __m512i b)
{
    const __m512i low = gw_avx512_set(0xffff);
    return _mm512_add_epi32(_mm512_add_epi32(_mm512_srli_epi32(a, 16), _mm512_and_si512(a, low)),
                            _mm512_add_epi32(_mm512_srli_epi32(b, 16), _mm512_and_si512(b, low)));
}

/* Returns the block of one of a register's four lanes. */
GW_AVX512 __m128i gw_avx512_quarter(__m512i value, gw_u32 lane)
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

/* Writes rows of 64 bytes, except the first two bytes. */
GW_AVX512 void gw_avx512_simple_write(const gw_avx512_simple *simple, __m512i blocks[4][4],
                                      gw_u32 added)
{
    const __mmask16 front = (__mmask16)(0xffff << GW_AVX512_LEAD);
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        gw_u8 *to[4];
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < 4; i++) {
            to[i] = simple->upcoming->frame[j + 4 * i] - added - GW_AVX512_LEAD;
            _mm_mask_storeu_epi8(to[i], front, gw_avx512_quarter(blocks[0][j], i));
            _mm_storeu_si128((__m128i *)(to[i] + 16), gw_avx512_quarter(blocks[1][j], i));
        }
        gw_avx512_store_two(blocks[2][j], blocks[3][j], to[0] + 32, to[1] + 32, to[2] + 32,
                            to[3] + 32);
    }
}

/* Returns whether all lanes have the same value. */
GW_AVX512 gw_u32 gw_avx512_all_equal(__m512i numbers)
{
    const __m512i first = _mm512_broadcastd_epi32(_mm512_castsi512_si128(numbers));
    return _mm512_cmpeq_epu32_mask(numbers, first) == 0xffff;
}

/* Returns what gw_avx512_same_length would return. */
GW_AVX512 gw_u32 gw_avx512_simple_same_length(__m512i flags, __m512i data_bytes)
{
    const __mmask16 extended = gw_avx512_has(flags, GW_IPSEC_SA_ESN);
    return (extended == 0 || extended == 0xffff) && gw_avx512_all_equal(data_bytes);
}

/* Returns the value that all lanes have, or 0 if they differ. */
GW_AVX512 gw_u32 gw_avx512_common_value(__m512i numbers)
{
    return gw_avx512_all_equal(numbers) ? (gw_u32)_mm512_cvtsi512_si32(numbers) : 0;
}

/* Checks sixteen outbound packets. If all are simple, writes their headers and results. Otherwise
 * returns 0 and changes nothing. */
static __attribute__((noinline)) gw_u32
gw_avx512_simple_encapsulate(gw_avx512_simple *simple, gw_u32 variant, gw_ipsec_suite suite)
{
    const gw_u32 front = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const gw_u32 added = GW_IPV4_BYTES + front;
    const gw_u32 block_bytes = gw_ipsec_block_bytes(suite);
    const gw_u32 checked = GW_IPSEC_SA_USED | GW_IPSEC_SA_INBOUND | GW_IPSEC_SA_TRANSPORT |
                           GW_IPSEC_SA_OUTER_IPV6 | GW_IPSEC_SA_UDP;
    const __m512i ones = gw_avx512_set(0xffff);
    const __m512i head_length = _mm512_load_si512(simple->upcoming->head_length);
    const __m512i head = _mm512_and_si512(head_length, ones);
    const __m512i length = _mm512_srli_epi32(head_length, 16);
    if ((_mm512_cmpge_epu32_mask(head, gw_avx512_set(added)) &
         _mm512_cmpge_epu32_mask(length, gw_avx512_set(GW_ETHERNET_BYTES + GW_IPV4_BYTES))) !=
        0xffff) {
        return 0;
    }
    __mmask16 valid = gw_avx512_simple_read(simple);
    __m512i line[4][4];
    __m512i sa[12]; /* words 0 to 11 of gw_ipsec_sa */
    gw_avx512_load_sa_line(line, &simple->upcoming->sas, 0);
    GW_AVX512_UNROLL
    for (gw_u32 k = 0; k < 3; k++) {
        gw_avx512_words(&sa[4 * k], line[k]);
    }
    const __m512i spi = sa[0];
    const __m512i flags = sa[1];
    const __m512i sa_suite = _mm512_and_si512(sa[3], gw_avx512_set(0xff));
    const __m512i icv_bytes = _mm512_and_si512(_mm512_srli_epi32(sa[3], 8), gw_avx512_set(0xff));
    const __m512i hop_limit = _mm512_and_si512(_mm512_srli_epi32(sa[3], 16), gw_avx512_set(0xff));
    const __m512i dscp = _mm512_srli_epi32(sa[3], 24);
    valid &= _mm512_cmpeq_epu32_mask(_mm512_and_si512(flags, gw_avx512_set(checked)),
                                     gw_avx512_set(GW_IPSEC_SA_USED));
    valid &= _mm512_cmpeq_epu32_mask(sa_suite, gw_avx512_set(variant >> 1));

    /* Checks of gw_ipsec_ip_parse. */
    const __m512i total = _mm512_and_si512(simple->ip[0], ones);
    const __m512i header_bytes =
        _mm512_and_si512(_mm512_srli_epi32(simple->ip[0], 22), gw_avx512_set(0x3c));
    valid &= _mm512_cmpeq_epu32_mask(_mm512_srli_epi32(simple->ip[0], 28), gw_avx512_set(4));
    valid &= _mm512_cmpge_epu32_mask(header_bytes, gw_avx512_set(GW_IPV4_BYTES));
    valid &= _mm512_cmpge_epu32_mask(total, header_bytes);
    valid &=
        _mm512_cmple_epu32_mask(_mm512_add_epi32(total, gw_avx512_set(GW_ETHERNET_BYTES)), length);

    const __m512i data_bytes = _mm512_and_si512(
        _mm512_add_epi32(total, gw_avx512_set(GW_ESP_TAIL_BYTES + block_bytes - 1)),
        gw_avx512_set(~(block_bytes - 1)));
    const __m512i packet_bytes =
        _mm512_add_epi32(_mm512_add_epi32(data_bytes, icv_bytes), gw_avx512_set(added));
    const __m512i bytes = _mm512_add_epi32(packet_bytes, gw_avx512_set(GW_ETHERNET_BYTES));
    const __m512i new_head = _mm512_sub_epi32(head, gw_avx512_set(added));
    const __m512i room = _mm512_slli_epi32(_mm512_load_si512(simple->upcoming->room), 6);
    valid &= _mm512_cmple_epu32_mask(_mm512_add_epi32(new_head, bytes), room);
    if (valid != 0xffff) {
        return 0;
    }

    /* Compute the outer headers as gw_ipsec_outer_tos, gw_ipsec_outer_df and gw_ipsec_write_outer
     * do. */
    const __m512i sequence_high = _mm512_load_si512(simple->upcoming->sequence[0]);
    const __m512i sequence_low = _mm512_load_si512(simple->upcoming->sequence[1]);
    const __m512i tos = _mm512_and_si512(_mm512_srli_epi32(simple->ip[0], 16), gw_avx512_set(0xff));
    const __m512i copied = _mm512_and_si512(tos, gw_avx512_set(0xff & ~GW_IPSEC_ECN));
    const __m512i ecn =
        _mm512_maskz_and_epi32((__mmask16)~gw_avx512_has(flags, GW_IPSEC_SA_ECN_IGNORED), tos,
                               gw_avx512_set(GW_IPSEC_ECN));
    const __m512i outer_tos = _mm512_or_si512(
        ecn, _mm512_mask_slli_epi32(copied, gw_avx512_has(flags, GW_IPSEC_SA_DSCP_SET), dscp, 2));
    const __mmask16 df = (__mmask16)(gw_avx512_has(flags, GW_IPSEC_SA_DF_SET) |
                                     (gw_avx512_has(simple->ip[1], GW_IPSEC_IPV4_DF) &
                                      ~gw_avx512_has(flags, GW_IPSEC_SA_DF_CLEAR)));
    __m512i numbers[12];
    numbers[0] = _mm512_or_si512(_mm512_or_si512(gw_avx512_set(0x45000000u), packet_bytes),
                                 _mm512_slli_epi32(outer_tos, 16));
    numbers[1] = _mm512_or_si512(_mm512_slli_epi32(sequence_low, 16),
                                 _mm512_maskz_set1_epi32(df, (int)GW_IPSEC_IPV4_DF));
    numbers[2] =
        _mm512_or_si512(_mm512_slli_epi32(hop_limit, 24), gw_avx512_set(GW_IPSEC_ESP << 16));
    numbers[3] = sa[4];
    numbers[4] = sa[8];
    __m512i sum = _mm512_add_epi32(gw_avx512_halves_sum(numbers[0], numbers[1]),
                                   gw_avx512_halves_sum(numbers[3], numbers[4]));
    sum = _mm512_add_epi32(sum, _mm512_srli_epi32(numbers[2], 16));
    sum = _mm512_add_epi32(_mm512_and_si512(sum, ones), _mm512_srli_epi32(sum, 16));
    sum = _mm512_add_epi32(sum, _mm512_srli_epi32(sum, 16));
    numbers[2] = _mm512_or_si512(numbers[2], _mm512_andnot_si512(sum, ones));
    numbers[5] = spi;
    numbers[6] = sequence_low;
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        /* Nonce of gw_ipsec_cbc_iv, which is encrypted later. */
        numbers[7] = spi;
        numbers[8] = sequence_high;
        numbers[9] = sequence_low;
        numbers[10] = sa[8];
        numbers[11] = simple->ip[0];
    } else {
        numbers[7] = sequence_high;
        numbers[8] = sequence_low;
        numbers[9] = simple->ip[0];
        numbers[10] = simple->ip[1];
        numbers[11] = simple->ip[2];
    }
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        line[0][j] = simple->l2[j];
    }
    GW_AVX512_UNROLL
    for (gw_u32 k = 0; k < 3; k++) {
        gw_avx512_host_words(line[1 + k], &numbers[4 * k]);
    }
    gw_avx512_simple_write(simple, line, added);
    _mm512_store_si512(simple->upcoming->head_length,
                       _mm512_or_si512(new_head, _mm512_slli_epi32(bytes, 16)));
    _mm512_store_si512(simple->spi, spi);
    _mm512_store_si512(simple->total_bytes, total);
    _mm512_store_si512(simple->data_bytes, data_bytes);
    simple->same_length = gw_avx512_simple_same_length(flags, data_bytes);
    simple->icv_bytes = gw_avx512_common_value(icv_bytes);
    simple->extended = gw_avx512_has(flags, GW_IPSEC_SA_ESN);
    return 1;
}

#endif
