/*
 * Decapsulation of simple packets, one or sixteen at a time. The inner packet is IPv4 with an
 * expected header and padding.
 *
 *   data        | inner packet ... | 1, 2, 3 ... | pad length | next header | ICV
 */
#ifndef GODWIT_IPSEC_AVX512_SIMPLE_FINISH_H
#define GODWIT_IPSEC_AVX512_SIMPLE_FINISH_H

#include "avx512_next.h"
#include "avx512_simple_inbound.h"

/* Offset of the protocol field in an IPv4 header. */
#define GW_AVX512_NEXT_HEADER_AT 9u

/* Writes descriptors and outcomes of sixteen consecutive packets, from `first` on. */
GW_AVX512 void gw_avx512_simple_store_results_consecutive(const gw_bin_call *call, gw_u32 first,
                                                          __m512i head_length, __m512i spi,
                                                          gw_u8 verdict)
{
    const gw_outcome outcome = {verdict, 0, 0, 0};
    gw_u64 outcome_bits;
    __builtin_memcpy(&outcome_bits, &outcome, sizeof(outcome_bits));
    GW_AVX512_UNROLL
    for (gw_u32 half = 0; half < 2; half++) {
        const __m512i value = _mm512_slli_epi64(gw_avx512_to_u64(spi, half), 32);
        _mm512_storeu_si512(&call->outcomes[first + 8 * half],
                            _mm512_or_si512(value, _mm512_set1_epi64((long long)outcome_bits)));
    }
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        /* Head and length are the second word of a descriptor. */
        const __m512i lanes = _mm512_set1_epi32((int)(4 * j));
        const __m512i from = _mm512_add_epi32(
            lanes, _mm512_setr_epi32(0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0));
        _mm512_mask_storeu_epi32(&call->descriptors[first + 4 * j], 0x2222,
                                 _mm512_permutexvar_epi32(from, head_length));
    }
}

/* Writes the descriptors and outcomes of sixteen packets. head_length holds the new second words of
 * the descriptors. */
GW_AVX512 void gw_avx512_simple_store_results(const gw_avx512_batch *batch,
                                              const gw_u32 indices[GW_AVX512_LANES],
                                              __m512i head_length, __m512i spi, gw_u32 count,
                                              gw_u8 verdict)
{
    const gw_bin_call *call = batch->call;
    if (count == GW_AVX512_LANES && batch->consecutive) {
        gw_avx512_simple_store_results_consecutive(call, indices[0], head_length, spi, verdict);
        return;
    }
    gw_u32 head_lengths[GW_AVX512_LANES];
    gw_u32 spis[GW_AVX512_LANES];
    _mm512_storeu_si512(head_lengths, head_length);
    _mm512_storeu_si512(spis, spi);
    for (gw_u32 i = 0; i < count; i++) {
        const gw_outcome outcome = {verdict, 0, 0, spis[i]};
        /* One copy writes head and length. */
        __builtin_memcpy(&call->descriptors[indices[i]].head, &head_lengths[i],
                         sizeof(head_lengths[i]));
        call->outcomes[indices[i]] = outcome;
    }
}

/* Fills the packet slots of a group that gw_avx512_simple_decapsulate_begin has checked. */
GW_AVX512 void gw_avx512_fill_slots(gw_avx512_group *group, const gw_avx512_batch *batch,
                                    gw_ipsec_suite suite)
{
    const gw_u32 front = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    for (gw_u32 i = 0; i < group->count && !group->slots_filled; i++) {
        gw_avx512_packet *packet = &group->slots[i];
        packet->found.sa = group->sas.sa[i];
        packet->found.l2_bytes = GW_ETHERNET_BYTES;
        packet->found.version = 4;
        packet->data = group->data[i];
        packet->text = packet->data - front;
        packet->sequence = (gw_u64)group->sequence[0][i] << 32 | group->sequence[1][i];
        packet->text_bytes = front + group->data_bytes[i];
        packet->data_bytes = group->data_bytes[i];
        packet->next_header_at = GW_AVX512_NEXT_HEADER_AT;
        packet->index = (gw_u16)(group->index[i] - batch->first);
        packet->authentic = 1;
        packet->ah = 0;
    }
    group->slots_filled = 1;
}

/* Returns whether all packets of a group are authentic. While its slots are not filled, no packet
 * is known to be wrong. */
GW_AVX512 gw_u32 gw_avx512_all_authentic(const gw_avx512_group *group)
{
    gw_u32 all = 1;
    for (gw_u32 i = 0; i < group->count && group->slots_filled; i++) {
        all &= group->slots[i].authentic;
    }
    return all;
}

/* Loads the blocks at offset `from` of sixteen addresses. */
GW_AVX512 void gw_avx512_blocks_at(__m512i blocks[4], gw_u8 *const *at, long long from)
{
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        blocks[j] =
            gw_avx512_gather(at[j] + from, at[j + 4] + from, at[j + 8] + from, at[j + 12] + from);
    }
}

/* Returns whether the padding bytes of sixteen ESP packets are 1, 2, 3 and so on. `tails` holds the
 * last block of each packet. There are at most 14 padding bytes. */
GW_AVX512 gw_u32 gw_avx512_paddings_valid(const __m512i tails[4])
{
    const __m512i pad_at = _mm512_set1_epi8(14);
    const __m512i distance = _mm512_broadcast_i32x4(
        _mm_setr_epi8(-13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1, 0, -128, -128));
    __mmask64 wrong = 0;
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        const __m512i expected = _mm512_add_epi8(_mm512_shuffle_epi8(tails[j], pad_at), distance);
        const __mmask64 is_padding = _mm512_cmpgt_epi8_mask(expected, _mm512_setzero_si512());
        wrong |= _mm512_mask_cmpneq_epi8_mask(is_padding, tails[j], expected);
    }
    return wrong == 0;
}

/* Decapsulates a group of sixteen simple packets. Returns 0 and changes nothing if any of them must
 * be dropped or is not simple. */
static __attribute__((noinline)) gw_u32
gw_avx512_simple_decapsulate_end_all(const gw_avx512_group *group, const gw_avx512_batch *batch,
                                     gw_ipsec_suite suite)
{
    const gw_u32 removed = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const __m512i ones = gw_avx512_set(0xffff);
    const __m512i data_bytes = _mm512_load_si512(group->data_bytes);
    if (!group->accepts_any || !gw_avx512_all_authentic(group) ||
        _mm512_cmplt_epu32_mask(data_bytes, gw_avx512_set(16)) != 0) {
        return 0;
    }
    gw_u8 *ends[GW_AVX512_LANES] __attribute__((aligned(64)));
    __m512i blocks[4];
    __m512i words[4];
    GW_AVX512_UNROLL
    for (gw_u32 half = 0; half < 2; half++) {
        _mm512_store_si512(&ends[8 * half],
                           _mm512_add_epi64(_mm512_load_si512(&group->data[8 * half]),
                                            gw_avx512_to_u64(data_bytes, half)));
    }
    gw_avx512_blocks_at(blocks, group->data, 0);
    gw_avx512_host_words(words, blocks);
    const __m512i first = words[0];
    gw_avx512_blocks_at(blocks, ends, -16);
    gw_avx512_host_words(words, blocks);
    const __m512i next_header = _mm512_and_si512(words[3], gw_avx512_set(0xff));
    const __m512i pad_bytes = _mm512_and_si512(_mm512_srli_epi32(words[3], 8), gw_avx512_set(0xff));
    const __m512i total = _mm512_and_si512(first, ones);
    const __m512i header_bytes =
        _mm512_and_si512(_mm512_srli_epi32(first, 22), gw_avx512_set(0x3c));
    const __m512i ecn = _mm512_and_si512(_mm512_srli_epi32(first, 16), gw_avx512_set(GW_IPSEC_ECN));
    const __m512i outer_ecn = _mm512_load_si512(group->ecn);
    const __m512i inner_bytes =
        _mm512_add_epi32(_mm512_add_epi32(total, pad_bytes), gw_avx512_set(GW_ESP_TAIL_BYTES));
    __mmask16 valid = _mm512_cmple_epu32_mask(pad_bytes, gw_avx512_set(14));
    valid &= _mm512_cmpeq_epu32_mask(next_header, gw_avx512_set(GW_PROTOCOL_IPV4));
    valid &= _mm512_cmpeq_epu32_mask(_mm512_srli_epi32(first, 28), gw_avx512_set(4));
    valid &= _mm512_cmpge_epu32_mask(header_bytes, gw_avx512_set(GW_IPV4_BYTES));
    valid &= _mm512_cmpge_epu32_mask(total, header_bytes);
    valid &= _mm512_cmple_epu32_mask(inner_bytes, data_bytes);
    valid &= (__mmask16)~_mm512_mask_cmpneq_epu32_mask(_mm512_test_epi32_mask(outer_ecn, outer_ecn),
                                                       outer_ecn, ecn);
    if (valid != 0xffff || !gw_avx512_paddings_valid(blocks)) {
        return 0;
    }
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
        /* Unused lanes repeat the last packet. */
        gw_u8 *to = group->data[i];
        const __m128i l2 =
            _mm_loadu_si128((const __m128i *)(to - removed - GW_ETHERNET_BYTES - GW_AVX512_LEAD));
        _mm_mask_storeu_epi8(to - 16, (__mmask16)(0xffff << GW_AVX512_LEAD), l2);
    }
    const __m512i head = _mm512_add_epi32(
        _mm512_and_si512(_mm512_load_si512(group->head_length), ones), gw_avx512_set(removed));
    const __m512i length = _mm512_add_epi32(total, gw_avx512_set(GW_ETHERNET_BYTES));
    gw_avx512_simple_store_results(batch, group->index,
                                   _mm512_or_si512(head, _mm512_slli_epi32(length, 16)),
                                   _mm512_load_si512(group->spi), group->count, GW_IPSEC_DECRYPTED);
    return 1;
}

/* Returns whether the padding bytes before an ESP trailer are 1, 2, 3 and so on. There are at most
 * 15. */
GW_AVX512 gw_u32 gw_avx512_padding_valid(const gw_u8 *trailer, gw_u32 pad_bytes)
{
    /* Table of paddings: the 16 bytes from index pad_bytes on end with the expected padding. */
    static const gw_u8 numbers[32] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0,  0,  0,  0,
                                      1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const __m128i received = _mm_loadu_si128((const __m128i *)(trailer - 16));
    const __m128i expected = _mm_loadu_si128((const __m128i *)(numbers + pad_bytes));
    return _mm_mask_cmpneq_epi8_mask((__mmask16)(0xffff0000u >> pad_bytes), received, expected) ==
           0;
}

static __attribute__((noinline)) gw_u32 gw_avx512_matches_sa(const gw_u8 *packet,
                                                             gw_u32 total_bytes,
                                                             const gw_ipsec_sa *sa,
                                                             const gw_bin_call *call)
{
    const gw_lane lane = {.image = call->image, .variant = call->variant};
    const gw_ipsec_ip ip = gw_ipsec_ip_parse(packet, total_bytes, 4);
    const gw_ipsec_upper upper =
        gw_ipsec_upper_of(packet, total_bytes, gw_ipsec_walk_packet(packet, ip));
    return gw_ipsec_matches_sa(&lane, sa, packet, 4, upper);
}

/* Returns whether an SA accepts an inner IPv4 packet. Most SAs accept any packet. */
GW_AVX512 gw_u32 gw_avx512_accepts(const gw_u8 *packet, gw_u32 total_bytes, const gw_ipsec_sa *sa,
                                   const gw_bin_call *call)
{
    if (sa->selector_count != 0 && gw_avx512_selector_accepts_any(call, sa->selector_first)) {
        return 1;
    }
    return gw_avx512_matches_sa(packet, total_bytes, sa, call);
}

/* Decapsulates one simple packet that gw_avx512_simple_decapsulate_begin has checked. The result is
 * that of gw_ipsec_esp_decapsulate_end. Returns 0 and changes nothing if the packet must be dropped
 * or is not simple. */
GW_AVX512 gw_u32 gw_avx512_simple_decapsulate_end(const gw_avx512_packet *packet,
                                                  const gw_bin_call *call, gw_ipsec_suite suite,
                                                  gw_descriptor *descriptor,
                                                  gw_outcome *outcome_out)
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
    /* The padding of a packet is checked only if its ICV is correct, so an attacker learns nothing
     * from the check. */
    if (!packet->authentic || pad_bytes > 15 || trailer[1] != GW_PROTOCOL_IPV4 ||
        !gw_avx512_padding_valid(trailer, pad_bytes)) {
        return 0;
    }
    if (first >> 28 != 4 || header_bytes < GW_IPV4_BYTES || total_bytes < header_bytes ||
        total_bytes + pad_bytes + GW_ESP_TAIL_BYTES > packet->data_bytes ||
        (outer_ecn != 0 && outer_ecn != ecn) ||
        !gw_avx512_accepts(packet->data, total_bytes, sa, call)) {
        return 0;
    }
    const gw_outcome outcome = {GW_IPSEC_DECRYPTED, 0, 0, sa->spi};
    const __m128i l2 = _mm_loadu_si128((const __m128i *)(frame - GW_AVX512_LEAD));
    _mm_mask_storeu_epi8(packet->data - 16, (__mmask16)(0xffff << GW_AVX512_LEAD), l2);
    descriptor->head = (gw_u16)(descriptor->head + removed);
    descriptor->length = (gw_u16)(GW_ETHERNET_BYTES + total_bytes);
    *outcome_out = outcome;
    return 1;
}

#endif
