/*
 * Fast path for the headers of simple outbound packets (simple.h) at an even address, for GPU
 * work-groups. All other packets stay unchanged.
 *
 * A GPU thread waits hundreds of cycles for a load. The waits add up when loads depend on each
 * other, or follow stores that might change the loaded data. All loads therefore come first,
 * together. No branch comes before the stores, which write whole words.
 *
 *               | 2 | L2        | outer IPv4 | SPI, sequence | IV, with a counter | ...
 *   words       0           1..3  4..8         9, 10           11, 12
 */
#ifndef GODWIT_IPSEC_GROUP_SIMPLE_H
#define GODWIT_IPSEC_GROUP_SIMPLE_H

#include "simple.h"

/* Header sizes in words: up to the outer IP header (GW_IPSEC_L2_WORDS), and up to the end of an
 * 8-byte IV (GW_IPSEC_SIMPLE_FRONT). */
#define GW_IPSEC_L2_WORDS     4u
#define GW_IPSEC_SIMPLE_FRONT 13u

/* Writes the ESP trailer like gw_ipsec_pad, but with whole-word stores where possible. The
 * addresses of the trailer and of its pad length must be even. */
GW_LANE void gw_ipsec_pad_words(GW_GLOBAL gw_u8 *trailer, gw_u32 pad_bytes, gw_u32 next_header)
{
    gw_u32 at = 0;
    while (at < pad_bytes && ((gw_u32)(gw_u64)(trailer + at) & 3u) != 0) {
        trailer[at] = (gw_u8)(at + 1);
        at++;
    }
    while (at + 4 <= pad_bytes) {
        *(GW_GLOBAL gw_u32 *)(trailer + at) = 0x01010101u * at + 0x04030201u;
        at += 4;
    }
    if (at < pad_bytes) {
        *(GW_GLOBAL gw_u16 *)(trailer + at) = (gw_u16)(0x0101u * at + 0x0201u);
    }
    *(GW_GLOBAL gw_u16 *)(trailer + pad_bytes) = (gw_u16)(next_header << 8 | pad_bytes);
}

/* Encapsulates packet `index` of a batch if it is an IPv4 packet in a tunnel, without VLAN tag and
 * UDP header. Writes the headers and the padding, and sets `out`. Returns the packet's ESP header.
 * For any other packet, returns 0 and writes nothing. */
GW_LANE GW_GLOBAL gw_u8 *gw_ipsec_encapsulate_simple(const gw_work *work, gw_ipsec_suite suite,
                                                     gw_ipsec_sas sas, gw_u32 index,
                                                     gw_ipsec_simple_out *out)
{
    const gw_u64 parameter = work->parameters[index];
    const GW_GLOBAL gw_u8 *sa = (const GW_GLOBAL gw_u8 *)gw_ipsec_named_sa(sas, parameter);
    const gw_block sa_front = gw_load_block(sa);
    out->sa.spi = sa_front.word0;
    out->sa.flags = sa_front.word1;
    out->sa.bytes = sa_front.word3;
    /* GW_ONCE forces the compiler to issue these loads together, before the branch below. */
    out->sa.source = GW_ONCE(gw_u32, sa + 16);
    out->sa.destination = GW_ONCE(gw_u32, sa + 32);
    /* words of a descriptor: buffer | head, length | room, ... */
    const gw_block descriptor = gw_load_block((const GW_GLOBAL gw_u8 *)&work->descriptors[index]);
    const gw_u32 head = descriptor.word1 & 0xffffu;
    GW_GLOBAL gw_u8 *buffer = work->arena + (gw_u64)descriptor.word0 * GW_BUFFER_UNIT;
    out->head = head;
    out->frame_bytes = descriptor.word1 >> 16;
    out->room_bytes = (descriptor.word2 & 0xffu) * GW_BUFFER_UNIT;
    gw_u32 simple =
        out->frame_bytes >= GW_ETHERNET_BYTES + GW_IPV4_BYTES && head >= 4 && head % 2 == 0;

    /* Load the header words, from two bytes before the frame. If the frame is too short, load and
     * ignore the first words of the buffer. */
    const gw_u32 from = simple ? head - 2 : 0;
    const gw_u32 shift = 8 * (from & 2u);
    const GW_GLOBAL gw_u32 *words = (const GW_GLOBAL gw_u32 *)(buffer + (from & ~3u));
    gw_u32 raw[GW_IPSEC_L2_WORDS + 3];
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_L2_WORDS + 3; i++) {
        raw[i] = words[i];
    }
    gw_u32 front[GW_IPSEC_L2_WORDS + GW_IPSEC_SIMPLE_WORDS] = {0};
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_L2_WORDS; i++) {
        front[i] = gw_funnel_right32(raw[i], raw[i + 1], shift);
    }
    out->ether_type = gw_swap32(front[3]) & 0xffffu;
    out->ip[0] = gw_swap32(gw_funnel_right32(raw[4], raw[5], shift));
    out->ip[1] = gw_swap32(gw_funnel_right32(raw[5], raw[6], shift));
    out->sequence[0] = (gw_u32)(gw_ipsec_sequence(parameter) >> 32);
    out->sequence[1] = (gw_u32)parameter;
    simple &= gw_ipsec_sa_index(parameter) < sas.count;
    simple &= gw_ipsec_simple_encapsulate_begin(out, work->variant, suite);

    const gw_u32 iv_bytes = gw_ipsec_iv_bytes(suite);
    const gw_u32 added = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + iv_bytes;
    if (!simple) {
        return 0;
    }

    gw_ipsec_simple_headers(front + GW_IPSEC_L2_WORDS, out, suite);
    GW_UNROLL
    for (gw_u32 i = GW_IPSEC_L2_WORDS; i < GW_IPSEC_SIMPLE_FRONT; i++) {
        front[i] = gw_swap32(front[i]);
    }
    /* Depending on the frame's alignment, the first or the last store has only two bytes. With CBC,
     * other threads write the IV. */
    const gw_u32 count = GW_IPSEC_SIMPLE_FRONT - (iv_bytes == 8 ? 0 : 2);
    GW_GLOBAL gw_u8 *to = buffer + head - 2 - added + shift / 8;
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_SIMPLE_FRONT; i++) {
        const gw_u32 next = i + 1 < GW_IPSEC_SIMPLE_FRONT ? front[i + 1] : 0;
        const gw_u32 word = gw_funnel_right32(front[i], next, shift);
        const gw_u32 whole = shift == 0 ? i != 0 : i + 1 != count;
        if (i < count && whole) {
            *(GW_GLOBAL gw_u32 *)(to + 4 * i) = word;
        }
    }
    const gw_u32 last = iv_bytes == 8 ? front[12] : front[10];
    *(GW_GLOBAL gw_u16 *)(shift == 0 ? to + 2 : to + 4 * (count - 1)) =
        (gw_u16)((shift == 0 ? front[0] : last) >> 16);
    gw_ipsec_pad_words(buffer + head + GW_ETHERNET_BYTES + out->total_bytes,
                       out->cipher_bytes - GW_ESP_TAIL_BYTES - out->total_bytes, GW_PROTOCOL_IPV4);
    gw_descriptor *changed = &work->descriptors[index];
    gw_outcome outcome = {0, 0, 0, 0};
    gw_verdict(&outcome, GW_IPSEC_ENCRYPTED, 0, out->sa.spi);
    changed->head = (gw_u16)(head - added);
    changed->length = (gw_u16)(GW_ETHERNET_BYTES + out->outer_bytes);
    work->outcomes[index] = outcome;
    return buffer + head + GW_ETHERNET_BYTES - added + GW_IPV4_BYTES;
}

#endif
