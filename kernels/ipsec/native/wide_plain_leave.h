/*
 * The way out of a tunnel for packets that hold what most packets hold, IPv4 without surprises:
 * sixteen at once, or one.
 *
 *   data        | inner packet ... | 1, 2, 3 ... | pad length | next header | ICV
 */
#ifndef GODWIT_IPSEC_WIDE_PLAIN_LEAVE_H
#define GODWIT_IPSEC_WIDE_PLAIN_LEAVE_H

#include "wide_next.h"
#include "wide_plain_open.h"

/* The byte of an IPv4 header that says what follows. */
#define GW_WIDE_NAMED_AT 9u

/* The places and verdicts of sixteen packets that follow each other, from `first` on. */
GW_WIDE void gw_wide_plain_said_in_row(const gw_bin_call *call, gw_u32 first, __m512i place,
                                       __m512i spi, gw_u8 said)
{
    const gw_outcome none = {said, 0, 0, 0};
    gw_u64 verdict;
    __builtin_memcpy(&verdict, &none, sizeof(verdict));
    GW_WIDE_UNROLL
    for (gw_u32 half = 0; half < 2; half++) {
        const __m512i value = _mm512_slli_epi64(gw_wide_long(spi, half), 32);
        _mm512_storeu_si512(&call->outcomes[first + 8 * half],
                            _mm512_or_si512(value, _mm512_set1_epi64((long long)verdict)));
    }
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        /* Head and length are the second word of a descriptor. */
        const __m512i lanes = _mm512_set1_epi32((int)(4 * j));
        const __m512i from = _mm512_add_epi32(
            lanes, _mm512_setr_epi32(0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0));
        _mm512_mask_storeu_epi32(&call->descriptors[first + 4 * j], 0x2222,
                                 _mm512_permutexvar_epi32(from, place));
    }
}

/* Where frames are now, as a descriptor has it, and verdicts. */
GW_WIDE void gw_wide_plain_said(const gw_wide_batch *batch, const gw_u32 indices[GW_WIDE_LANES],
                                __m512i place, __m512i spi, gw_u32 count, gw_u8 verdict)
{
    const gw_bin_call *call = batch->call;
    if (count == GW_WIDE_LANES && batch->in_row) {
        gw_wide_plain_said_in_row(call, indices[0], place, spi, verdict);
        return;
    }
    gw_u32 places[GW_WIDE_LANES];
    gw_u32 spis[GW_WIDE_LANES];
    _mm512_storeu_si512(places, place);
    _mm512_storeu_si512(spis, spi);
    for (gw_u32 i = 0; i < count; i++) {
        const gw_outcome outcome = {verdict, 0, 0, spis[i]};
        /* Both fields at once. */
        __builtin_memcpy(&call->descriptors[indices[i]].head, &places[i], sizeof(places[i]));
        call->outcomes[indices[i]] = outcome;
    }
}

/* Fills the places of a group that gw_wide_plain_open has read. */
GW_WIDE void gw_wide_place_open(gw_wide_group *group, const gw_wide_batch *batch,
                                gw_ipsec_suite suite)
{
    const gw_u32 front = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    for (gw_u32 i = 0; i < group->count && !group->placed; i++) {
        gw_wide_packet *packet = &group->places[i];
        packet->found.sa = group->sas.sa[i];
        packet->found.l2_bytes = GW_ETHERNET_BYTES;
        packet->found.version = 4;
        packet->data = group->data[i];
        packet->text = packet->data - front;
        packet->sequence = (gw_u64)group->numbers[0][i] << 32 | group->numbers[1][i];
        packet->text_bytes = front + group->data_bytes[i];
        packet->data_bytes = group->data_bytes[i];
        packet->named_at = GW_WIDE_NAMED_AT;
        packet->index = (gw_u16)(group->index[i] - batch->first);
        packet->authentic = 1;
        packet->ah = 0;
    }
    group->placed = 1;
}

/* Whether all packets of a group are authentic; where places are not filled, they are. */
GW_WIDE gw_u32 gw_wide_all_authentic(const gw_wide_group *group)
{
    gw_u32 all = 1;
    for (gw_u32 i = 0; i < group->count && group->placed; i++) {
        all &= group->places[i].authentic;
    }
    return all;
}

/* The blocks that begin `from` bytes behind these places, of sixteen lanes. */
GW_WIDE void gw_wide_blocks_at(__m512i blocks[4], gw_u8 *const *at, long long from)
{
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        blocks[j] =
            gw_wide_gather(at[j] + from, at[j + 4] + from, at[j + 8] + from, at[j + 12] + from);
    }
}

/* Whether the padding in front of trailers, of which these are the last blocks, is 1, 2, 3 and so
 * on. There are at most 14 bytes of it. */
GW_WIDE gw_u32 gw_wide_paddings_right(const __m512i tails[4])
{
    const __m512i pad_at = _mm512_set1_epi8(14);
    const __m512i behind = _mm512_broadcast_i32x4(
        _mm_setr_epi8(-13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1, 0, -128, -128));
    __mmask64 wrong = 0;
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        const __m512i right = _mm512_add_epi8(_mm512_shuffle_epi8(tails[j], pad_at), behind);
        const __mmask64 is_padding = _mm512_cmpgt_epi8_mask(right, _mm512_setzero_si512());
        wrong |= _mm512_mask_cmpneq_epi8_mask(is_padding, tails[j], right);
    }
    return wrong == 0;
}

/*
 * Takes the packets of a group out of their tunnels, as gw_wide_plain_leave each. Returns 0 where
 * one is to be dropped, or is not that simple: nothing is done then.
 */
static __attribute__((noinline)) gw_u32 gw_wide_plain_leave_all(const gw_wide_group *group,
                                                                const gw_wide_batch *batch,
                                                                gw_ipsec_suite suite)
{
    const gw_u32 removed = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const __m512i ones = gw_wide_set(0xffff);
    const __m512i data_bytes = _mm512_load_si512(group->data_bytes);
    if (!group->for_any || !gw_wide_all_authentic(group) ||
        _mm512_cmplt_epu32_mask(data_bytes, gw_wide_set(16)) != 0) {
        return 0;
    }
    gw_u8 *ends[GW_WIDE_LANES] __attribute__((aligned(64)));
    __m512i blocks[4];
    __m512i words[4];
    GW_WIDE_UNROLL
    for (gw_u32 half = 0; half < 2; half++) {
        _mm512_store_si512(&ends[8 * half],
                           _mm512_add_epi64(_mm512_load_si512(&group->data[8 * half]),
                                            gw_wide_long(data_bytes, half)));
    }
    gw_wide_blocks_at(blocks, group->data, 0);
    gw_wide_numbers(words, blocks);
    const __m512i first = words[0];
    gw_wide_blocks_at(blocks, ends, -16);
    gw_wide_numbers(words, blocks);
    const __m512i next_header = _mm512_and_si512(words[3], gw_wide_set(0xff));
    const __m512i pad_bytes = _mm512_and_si512(_mm512_srli_epi32(words[3], 8), gw_wide_set(0xff));
    const __m512i total = _mm512_and_si512(first, ones);
    const __m512i header_bytes = _mm512_and_si512(_mm512_srli_epi32(first, 22), gw_wide_set(0x3c));
    const __m512i ecn = _mm512_and_si512(_mm512_srli_epi32(first, 16), gw_wide_set(GW_IPSEC_ECN));
    const __m512i outer_ecn = _mm512_load_si512(group->ecn);
    const __m512i inside =
        _mm512_add_epi32(_mm512_add_epi32(total, pad_bytes), gw_wide_set(GW_ESP_TAIL_BYTES));
    __mmask16 fine = _mm512_cmple_epu32_mask(pad_bytes, gw_wide_set(14));
    fine &= _mm512_cmpeq_epu32_mask(next_header, gw_wide_set(GW_PROTOCOL_IPV4));
    fine &= _mm512_cmpeq_epu32_mask(_mm512_srli_epi32(first, 28), gw_wide_set(4));
    fine &= _mm512_cmpge_epu32_mask(header_bytes, gw_wide_set(GW_IPV4_BYTES));
    fine &= _mm512_cmpge_epu32_mask(total, header_bytes);
    fine &= _mm512_cmple_epu32_mask(inside, data_bytes);
    fine &= (__mmask16)~_mm512_mask_cmpneq_epu32_mask(_mm512_test_epi32_mask(outer_ecn, outer_ecn),
                                                      outer_ecn, ecn);
    if (fine != 0xffff || !gw_wide_paddings_right(blocks)) {
        return 0;
    }
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
        /* Lanes that are left do what the last one does. */
        gw_u8 *to = group->data[i];
        const __m128i l2 =
            _mm_loadu_si128((const __m128i *)(to - removed - GW_ETHERNET_BYTES - GW_WIDE_LEAD));
        _mm_mask_storeu_epi8(to - 16, (__mmask16)(0xffff << GW_WIDE_LEAD), l2);
    }
    const __m512i head = _mm512_add_epi32(_mm512_and_si512(_mm512_load_si512(group->place), ones),
                                          gw_wide_set(removed));
    const __m512i length = _mm512_add_epi32(total, gw_wide_set(GW_ETHERNET_BYTES));
    gw_wide_plain_said(batch, group->index, _mm512_or_si512(head, _mm512_slli_epi32(length, 16)),
                       _mm512_load_si512(group->spi), group->count, GW_IPSEC_DECRYPTED);
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
    if (sa->selector_count != 0 && gw_wide_is_any(call, sa->selector_first)) {
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
