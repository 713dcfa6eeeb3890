/*
 * Completes the decapsulation of sixteen simple packets (../simple.h) at once, after their
 * decryption. The decrypted data has this layout:
 *
 *   data        | inner packet ... | 1, 2, 3 ... | pad length | next header | ICV
 */
#ifndef GODWIT_IPSEC_AVX512_SIMPLE_FINISH_H
#define GODWIT_IPSEC_AVX512_SIMPLE_FINISH_H

#include "avx512_next.h"
#include "avx512_simple_inbound.h"

/* Offset of the protocol field in an IPv4 header. */
#define GW_AVX512_NEXT_HEADER_AT 9u

/* Writes the descriptors and outcomes of sixteen consecutive packets, from packet `first` on. */
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
        const __m512i lanes = _mm512_set1_epi32((int)(4 * j));
        const __m512i from = _mm512_add_epi32(
            lanes, _mm512_setr_epi32(0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0));
        _mm512_mask_storeu_epi32(&call->descriptors[first + 4 * j], 0x2222,
                                 _mm512_permutexvar_epi32(from, head_length));
    }
}

/* Writes the descriptors and outcomes of the packets that the mask `lanes` selects. head_length
 * holds the second word of each new descriptor. */
GW_AVX512 void gw_avx512_simple_store_results(const gw_avx512_batch *batch,
                                              const gw_u32 indices[GW_AVX512_LANES],
                                              __m512i head_length, __m512i spi, gw_u32 lanes,
                                              gw_u8 verdict)
{
    const gw_bin_call *call = batch->call;
    if (lanes == GW_AVX512_ALL && batch->consecutive) {
        gw_avx512_simple_store_results_consecutive(call, indices[0], head_length, spi, verdict);
        return;
    }
    gw_u32 head_lengths[GW_AVX512_LANES];
    gw_u32 spis[GW_AVX512_LANES];
    _mm512_storeu_si512(head_lengths, head_length);
    _mm512_storeu_si512(spis, spi);
    for (gw_u32 left = lanes; left != 0; left &= left - 1) {
        const gw_u32 i = (gw_u32)__builtin_ctz(left);
        const gw_outcome outcome = {verdict, 0, 0, spis[i]};
        /* One copy of four bytes writes both `head` and `length`. */
        __builtin_memcpy(&call->descriptors[indices[i]].head, &head_lengths[i],
                         sizeof(head_lengths[i]));
        call->outcomes[indices[i]] = outcome;
    }
}

/* Fills the packet states in `slots` for a group of simple IPv4 packets in a tunnel. Their headers
 * are already checked. */
GW_AVX512 void gw_avx512_fill_slots(gw_avx512_group *group, const gw_avx512_batch *batch,
                                    gw_ipsec_suite suite)
{
    const gw_u32 front = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    for (gw_u32 i = 0; i < group->count && !group->slots_filled; i++) {
        gw_native_packet *packet = &group->slots[i];
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

/* Returns a mask without the packets whose ICV is known to be wrong. The mask contains all packets
 * as long as `slots` is not filled. */
GW_AVX512 gw_u32 gw_avx512_authentic(const gw_avx512_group *group)
{
    gw_u32 wrong = 0;
    for (gw_u32 i = 0; i < group->count && group->slots_filled; i++) {
        wrong |= (group->slots[i].authentic ^ 1u) << i;
    }
    return gw_avx512_first_lanes(group->count) & ~wrong;
}

/* Loads one 16-byte block from each of sixteen addresses plus the offset `from`. */
GW_AVX512 void gw_avx512_blocks_at(__m512i blocks[4], gw_u8 *const *at, long long from)
{
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        blocks[j] =
            gw_avx512_gather(at[j] + from, at[j + 4] + from, at[j + 8] + from, at[j + 12] + from);
    }
}

/* Returns a mask of the packets whose padding consists of up to 15 bytes 1, 2, 3 and so on. `tails`
 * holds the last 16 bytes of each packet's data: all padding except the first byte of 15. */
GW_AVX512 gw_u32 gw_avx512_paddings_valid(const __m512i tails[4], gw_u8 *const *ends,
                                          gw_words_16 pad_bytes)
{
    const __m512i pad_at = _mm512_set1_epi8(14);
    const __m512i distance = _mm512_broadcast_i32x4(
        _mm_setr_epi8(-13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1, 0, -128, -128));
    gw_u64 wrong[4];
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        const __m512i expected = _mm512_add_epi8(_mm512_shuffle_epi8(tails[j], pad_at), distance);
        const __mmask64 is_padding = _mm512_cmpgt_epi8_mask(expected, _mm512_setzero_si512());
        wrong[j] = _mm512_mask_cmpneq_epi8_mask(is_padding, tails[j], expected);
    }
    const gw_u32 any_wrong = (wrong[0] | wrong[1] | wrong[2] | wrong[3]) != 0;
    const gw_u32 any_longest = GW_EQUAL(pad_bytes, 15) != 0;
    gw_u32 valid = GW_AVX512_ALL;
    for (gw_u32 i = 0; i < GW_AVX512_LANES && (any_wrong || any_longest); i++) {
        const gw_u32 first_wrong = pad_bytes[i] == 15 && ends[i][-17] != 1;
        const gw_u32 others_wrong = (wrong[i % 4] >> 16 * (i / 4) & 0xffff) != 0;
        valid &= ~((first_wrong | others_wrong) << i);
    }
    return valid;
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

/* Returns whether the selectors of an SA accept an inner IPv4 packet. Most SAs accept any packet.
 */
GW_AVX512 gw_u32 gw_avx512_accepts(const gw_u8 *packet, gw_u32 total_bytes, const gw_ipsec_sa *sa,
                                   const gw_bin_call *call)
{
    if (sa->selector_count != 0 && gw_avx512_selector_accepts_any(call, sa->selector_first)) {
        return 1;
    }
    return gw_avx512_matches_sa(packet, total_bytes, sa, call);
}

/* Moves a packet's L2 header by `removed` bytes, to the start of the inner packet. */
GW_AVX512 void gw_avx512_move_l2(gw_u8 *data, gw_u32 removed)
{
    const __m128i l2 =
        _mm_loadu_si128((const __m128i *)(data - removed - GW_ETHERNET_BYTES - GW_AVX512_LEAD));
    _mm_mask_storeu_epi8(data - 16, (__mmask16)(0xffff << GW_AVX512_LEAD), l2);
}

/* Decapsulates the simple IPv4 packets of a group that match the selectors of their SAs. Returns a
 * mask of these packets. Slower code processes or drops all other packets. */
static __attribute__((noinline)) gw_u32
gw_avx512_simple_decapsulate_end(const gw_avx512_group *group, const gw_avx512_batch *batch,
                                 gw_ipsec_suite suite)
{
    const gw_u32 removed = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    gw_ipsec_simple_content_16 content;
    content.cipher_bytes = gw_avx512_load_words(group->data_bytes);
    if (GW_AT_LEAST(content.cipher_bytes, 16) != GW_AVX512_ALL) {
        return 0;
    }
    gw_u8 *ends[GW_AVX512_LANES] __attribute__((aligned(64)));
    __m512i blocks[4];
    __m512i words[4];
    GW_AVX512_UNROLL
    for (gw_u32 half = 0; half < 2; half++) {
        _mm512_store_si512(&ends[8 * half],
                           _mm512_add_epi64(_mm512_load_si512(&group->data[8 * half]),
                                            gw_avx512_to_u64((__m512i)content.cipher_bytes, half)));
    }
    gw_avx512_blocks_at(blocks, group->data, 0);
    gw_avx512_host_words(words, blocks);
    content.first = (gw_words_16)words[0];
    gw_avx512_blocks_at(blocks, ends, -16);
    gw_avx512_host_words(words, blocks);
    content.last = (gw_words_16)words[3];
    content.outer_ecn = gw_avx512_load_words(group->ecn);
    /* Padding is checked only in packets with a correct ICV, so the check reveals nothing to an
     * attacker. */
    gw_u32 lanes = gw_avx512_authentic(group);
    lanes &= gw_ipsec_simple_decapsulate_end_16(&content);
    lanes &= gw_avx512_paddings_valid(blocks, ends, content.pad_bytes);
    for (gw_u32 i = 0; i < group->count && !group->accepts_any; i++) {
        if ((lanes >> i & 1u) != 0 && !gw_avx512_accepts(group->data[i], content.total_bytes[i],
                                                         group->sas.sa[i], batch->call)) {
            lanes &= ~(1u << i);
        }
    }
    if (lanes == GW_AVX512_ALL) {
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
            gw_avx512_move_l2(group->data[i], removed);
        }
    } else {
        for (gw_u32 left = lanes; left != 0; left &= left - 1) {
            gw_avx512_move_l2(group->data[__builtin_ctz(left)], removed);
        }
    }
    const gw_words_16 head = (gw_avx512_load_words(group->head_length) & 0xffffu) + removed;
    const gw_words_16 length = content.total_bytes + GW_ETHERNET_BYTES;
    gw_avx512_simple_store_results(batch, group->index, (__m512i)(head | length << 16),
                                   _mm512_load_si512(group->spi), lanes, GW_IPSEC_DECRYPTED);
    return lanes;
}

#endif
