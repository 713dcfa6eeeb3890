/*
 * Writes the headers of sixteen simple outbound packets (../simple.h) at once. Each register holds
 * one header word of each packet.
 *
 *              | 2 | L2          | outer IPv4 | SPI, sequence | IV         | inner packet ...
 *   bytes      | 16              | 20         | 8             | 0, 8 or 16 | 48 or 64 in total
 *   words                          0 to 4       5, 6            7 ...        unchanged
 */
#ifndef GODWIT_IPSEC_AVX512_SIMPLE_H
#define GODWIT_IPSEC_AVX512_SIMPLE_H

#include "avx512_cbc_hmac.h"
#include "avx512_words.h"

/* Bytes before a frame that are loaded with the frame, so that the words after the L2 header are
 * aligned in the registers. */
#define GW_AVX512_LEAD 2u

/* Mask that selects all sixteen SIMD lanes. */
#define GW_AVX512_ALL 0xffffu

typedef struct gw_avx512_simple {
    gw_avx512_upcoming *upcoming; /* input; head_length or sequence[1] is also a result */
    __m512i l2[4];                /* first 16 bytes, from 2 bytes before the frame */
    __m512i ip[4];                /* first words of the IP packet, in host byte order */
    gw_words_16 ether_type;
    gw_u32 same_length; /* see gw_avx512_same_length */
    gw_u32 icv_bytes;   /* of all lanes; 0: different */
    gw_u32 extended;    /* mask of the lanes with extended sequence numbers */
    gw_u32 accepts_any; /* inbound: see gw_avx512_group */
    gw_words_16 ecn;    /* inbound: ECN of the outer headers */
    /* Results, one element for each packet. */
    gw_u32 spi[GW_AVX512_LANES] __attribute__((aligned(64)));
    gw_u32 total_bytes[GW_AVX512_LANES] __attribute__((aligned(64)));
    gw_u32 data_bytes[GW_AVX512_LANES] __attribute__((aligned(64)));
} gw_avx512_simple;

GW_AVX512 __m512i gw_avx512_set(gw_u32 value)
{
    return _mm512_set1_epi32((int)value);
}

/* Converts 16-byte blocks of packets to words in host byte order. */
GW_AVX512 void gw_avx512_host_words(__m512i words[4], const __m512i blocks[4])
{
    __m512i swapped[4];
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        swapped[j] = gw_avx512_swap32(blocks[j]);
    }
    gw_avx512_words(words, swapped);
}

/* Loads the L2 headers of sixteen packets, and the first 16 bytes of their IP headers. */
GW_AVX512 void gw_avx512_simple_read(gw_avx512_simple *simple)
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
    simple->ether_type = (gw_words_16)words[3] & 0xffffu;
}

/* Loads the first cache line of each of sixteen packets' SAs. */
GW_AVX512 gw_ipsec_sa_words_16 gw_avx512_simple_sa(const gw_avx512_simple *simple,
                                                   __m512i line[4][4])
{
    __m512i words[12];
    gw_ipsec_sa_words_16 sa;
    gw_avx512_load_sa_line(line, &simple->upcoming->sas, 0);
    GW_AVX512_UNROLL
    for (gw_u32 k = 0; k < 3; k++) {
        gw_avx512_words(&words[4 * k], line[k]);
    }
    sa.spi = (gw_words_16)words[0];
    sa.flags = (gw_words_16)words[1];
    sa.bytes = (gw_words_16)words[3];
    sa.source = (gw_words_16)words[4];
    sa.destination = (gw_words_16)words[8];
    return sa;
}

/* Returns one of the four 16-byte blocks in a register. */
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

/* Writes the new headers of sixteen packets. Each has `row_blocks` blocks of 16 bytes (3 or 4). The
 * first two bytes precede the frame and are not written. */
GW_AVX512 void gw_avx512_simple_write(const gw_avx512_simple *simple, __m512i blocks[4][4],
                                      gw_u32 row_blocks, gw_u32 added)
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
            if (row_blocks == 3) {
                _mm_storeu_si128((__m128i *)(to[i] + 32), gw_avx512_quarter(blocks[2][j], i));
            }
        }
        if (row_blocks == 4) {
            gw_avx512_store_two(blocks[2][j], blocks[3][j], to[0] + 32, to[1] + 32, to[2] + 32,
                                to[3] + 32);
        }
    }
}

GW_AVX512 gw_u32 gw_avx512_first_lanes(gw_u32 count)
{
    return (1u << count) - 1;
}

GW_AVX512 gw_words_16 gw_avx512_load_words(const gw_u32 *words)
{
    return (gw_words_16)_mm512_load_si512(words);
}

GW_AVX512 void gw_avx512_store_words(gw_u32 *words, gw_words_16 value)
{
    _mm512_store_si512(words, (__m512i)value);
}

GW_AVX512 gw_u32 gw_avx512_all_equal(__m512i numbers)
{
    const __m512i first = _mm512_broadcastd_epi32(_mm512_castsi512_si128(numbers));
    return _mm512_cmpeq_epu32_mask(numbers, first) == 0xffff;
}

/* Returns the common value of a register's words, or 0 if the words differ. */
GW_AVX512 gw_u32 gw_avx512_common_value(__m512i numbers)
{
    return gw_avx512_all_equal(numbers) ? (gw_u32)_mm512_cvtsi512_si32(numbers) : 0;
}

GW_AVX512 void gw_avx512_simple_results(gw_avx512_simple *simple, const gw_ipsec_sa_words_16 *sa,
                                        gw_words_16 cipher_bytes, gw_words_16 icv_bytes)
{
    const gw_u32 extended = GW_HAS(sa->flags, GW_IPSEC_SA_ESN);
    gw_avx512_store_words(simple->spi, sa->spi);
    gw_avx512_store_words(simple->data_bytes, cipher_bytes);
    simple->extended = extended;
    simple->icv_bytes = gw_avx512_common_value((__m512i)icv_bytes);
    simple->same_length =
        (extended == 0 || extended == GW_AVX512_ALL) && gw_avx512_all_equal((__m512i)cipher_bytes);
}

/* Checks sixteen outbound packets, writes their headers and stores the results. Returns 0 and
 * changes nothing unless all of them are simple IPv4 packets in a tunnel (../simple.h). */
static __attribute__((noinline)) gw_u32
gw_avx512_simple_encapsulate(gw_avx512_simple *simple, gw_u32 variant, gw_ipsec_suite suite)
{
    const gw_u32 added = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    gw_avx512_upcoming *upcoming = simple->upcoming;
    const gw_words_16 head_length = gw_avx512_load_words(upcoming->head_length);
    gw_ipsec_simple_out_16 out;
    out.head = head_length & 0xffffu;
    out.frame_bytes = head_length >> 16;
    if ((GW_AT_LEAST(out.head, added) &
         GW_AT_LEAST(out.frame_bytes, GW_ETHERNET_BYTES + GW_IPV4_BYTES)) != GW_AVX512_ALL) {
        return 0;
    }
    __m512i line[4][4];
    gw_avx512_simple_read(simple);
    out.sa = gw_avx512_simple_sa(simple, line);
    out.room_bytes = gw_avx512_load_words(upcoming->room) * GW_BUFFER_UNIT;
    out.ether_type = simple->ether_type;
    out.ip[0] = (gw_words_16)simple->ip[0];
    out.ip[1] = (gw_words_16)simple->ip[1];
    out.sequence[0] = gw_avx512_load_words(upcoming->sequence[0]);
    out.sequence[1] = gw_avx512_load_words(upcoming->sequence[1]);
    if (gw_ipsec_simple_encapsulate_begin_16(&out, variant, suite) != GW_AVX512_ALL) {
        return 0;
    }

    gw_words_16 words[12];
    __m512i numbers[12];
    const gw_u32 count = added / 4;
    const gw_u32 row_blocks = count < 8 ? 3 : 4;
    GW_AVX512_UNROLL
    for (gw_u32 i = 7; i < 12; i++) {
        words[i] = (gw_words_16)simple->ip[i < count ? 0 : (i - count) % 4];
    }
    gw_ipsec_simple_headers_16(words, &out, suite);
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 12; i++) {
        numbers[i] = (__m512i)words[i];
    }
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        line[0][j] = simple->l2[j];
    }
    GW_AVX512_UNROLL
    for (gw_u32 k = 0; k < 3; k++) {
        gw_avx512_host_words(line[1 + k], &numbers[4 * k]);
    }
    gw_avx512_simple_write(simple, line, row_blocks, added);
    gw_avx512_store_words(upcoming->head_length,
                          (out.head - added) | (out.outer_bytes + GW_ETHERNET_BYTES) << 16);
    gw_avx512_store_words(simple->total_bytes, out.total_bytes);
    gw_avx512_simple_results(simple, &out.sa, out.cipher_bytes, out.icv_bytes);
    return 1;
}

#endif
