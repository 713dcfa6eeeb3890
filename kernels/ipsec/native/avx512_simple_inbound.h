/*
 * Checks the headers of sixteen simple inbound packets (../simple.h) at once. Each register holds
 * one header word of each packet.
 *
 *              | 2 | L2          | outer IPv4 | SPI, sequence | IV, data ...
 *   bytes      | 16              | 20         | 8             | 4
 *   words                          0 to 4       5, 6            7
 */
#ifndef GODWIT_IPSEC_AVX512_SIMPLE_INBOUND_H
#define GODWIT_IPSEC_AVX512_SIMPLE_INBOUND_H

#include "avx512_simple.h"

/* Loads four more header words of each of sixteen packets: destination address, SPI, sequence
 * number and the next word. */
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

/* Returns whether the SAs of sixteen packets accept any inner packet. `words` contains words 12 to
 * 15 of each gw_ipsec_sa. The result is 1 only in the usual case that all SAs share the same first
 * selector. */
GW_AVX512 gw_u32 gw_avx512_sas_accept_any(const __m512i words[4], const gw_bin_call *call)
{
    return gw_avx512_all_equal(words[1]) && GW_HAS((gw_words_16)words[2], ~0u) == GW_AVX512_ALL &&
           gw_avx512_selector_accepts_any(call, (gw_u32)_mm512_cvtsi512_si32(words[1]));
}

/* Checks the headers of sixteen inbound packets without changing the packets. Returns whether all
 * of them are simple IPv4 packets in a tunnel (../simple.h). Sets the encrypted data length of each
 * packet. */
static __attribute__((noinline)) gw_u32 gw_avx512_simple_decapsulate_begin(gw_avx512_simple *simple,
                                                                           const gw_bin_call *call,
                                                                           gw_ipsec_suite suite)
{
    const gw_u32 row_bytes = 48 - GW_AVX512_LEAD;
    const gw_words_16 head_length = gw_avx512_load_words(simple->upcoming->head_length);
    gw_ipsec_simple_in_16 in;
    in.frame_bytes = head_length >> 16;
    if ((GW_AT_LEAST(head_length & 0xffffu, GW_AVX512_LEAD) &
         GW_AT_LEAST(in.frame_bytes, row_bytes)) != GW_AVX512_ALL) {
        return 0;
    }
    __m512i line[4][4];
    __m512i words[4]; /* words of the packet from the outer destination on */
    gw_avx512_simple_read(simple);
    in.sa = gw_avx512_simple_sa(simple, line);
    gw_avx512_simple_read_esp(simple, words);
    in.ether_type = simple->ether_type;
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        in.ip[i] = (gw_words_16)simple->ip[i];
    }
    in.ip[4] = (gw_words_16)words[0];
    in.spi = (gw_words_16)words[1];
    if (gw_ipsec_simple_decapsulate_begin_16(&in, call->variant, suite) != GW_AVX512_ALL) {
        return 0;
    }
    gw_avx512_simple_results(simple, &in.sa, in.cipher_bytes, in.icv_bytes);
    _mm512_store_si512(simple->upcoming->sequence[1], words[2]);
    simple->ecn = in.ip[0] >> 16 & GW_IPSEC_ECN;
    gw_avx512_words(words, line[3]);
    simple->accepts_any = gw_avx512_sas_accept_any(words, call);
    return 1;
}

#endif
