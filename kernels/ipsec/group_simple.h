/*
 * Fast path of the group form for the headers of simple outbound packets. A simple packet is IPv4
 * in a tunnel between IPv4 endpoints, without VLAN tag and UDP, at an even address. The code
 * computes the same fields as gw_ipsec_find and gw_ipsec_esp_encapsulate_begin. Those functions
 * process all other packets and all drops, and the fast path leaves such packets unchanged.
 *
 * A GPU lane waits hundreds of cycles for a load. The waits add up when loads depend on each other,
 * or follow stores that might change the loaded data. So all loads come first, together, and no
 * branch comes before the stores, which write whole words.
 *
 *               | 2 | L2        | outer IPv4 | SPI, sequence | IV, with a counter | ...
 *   words       0           1..3  4..8         9, 10           11, 12
 */
#ifndef GODWIT_IPSEC_GROUP_SIMPLE_H
#define GODWIT_IPSEC_GROUP_SIMPLE_H

#define GW_IPSEC_SIMPLE_WORDS 11u

/* A packet whose headers and padding are written. */
typedef struct gw_ipsec_simple {
    GW_GLOBAL gw_u8 *esp; /* ESP header; IV, data and ICV follow */
    gw_u64 sequence;
    gw_u32 cipher_bytes; /* 0: the packet is not simple, and nothing was written */
    gw_u32 spi;
    gw_u32 flags; /* flags of the SA */
    gw_u32 icv_bytes;
} gw_ipsec_simple;

/* Writes the ESP trailer as gw_ipsec_pad does, but in words. `trailer` and the end of the padding
 * must have even addresses. */
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

/* Returns the sum of a word's two halves. */
GW_LANE gw_u32 gw_ipsec_halves(gw_u32 word)
{
    return (word >> 16) + (word & 0xffffu);
}

/* Encapsulates packet `index` of the bin, if it is simple. */
GW_LANE gw_ipsec_simple gw_ipsec_encapsulate_simple(const gw_work *work, gw_ipsec_suite suite,
                                                    gw_ipsec_sas sas, gw_u32 index)
{
    const gw_u64 parameter = work->parameters[index];
    const GW_GLOBAL gw_u8 *sa = (const GW_GLOBAL gw_u8 *)gw_ipsec_named_sa(sas, parameter);
    const gw_block sa_front = gw_load_block(sa);
    /* GW_ONCE forces these loads to happen here. The compiler would otherwise move them after the
     * branch below, where the lane would wait again. */
    const gw_u32 source = GW_ONCE(gw_u32, sa + 16);
    const gw_u32 destination = GW_ONCE(gw_u32, sa + 32);
    /* words of a descriptor: buffer | head, length | room, ... */
    const gw_block descriptor = gw_load_block((const GW_GLOBAL gw_u8 *)&work->descriptors[index]);
    const gw_u32 head = descriptor.word1 & 0xffffu;
    const gw_u32 frame_bytes = descriptor.word1 >> 16;
    const gw_u32 room_bytes = (descriptor.word2 & 0xffu) * GW_BUFFER_UNIT;
    GW_GLOBAL gw_u8 *buffer = work->arena + (gw_u64)descriptor.word0 * GW_BUFFER_UNIT;
    gw_u32 simple = frame_bytes >= GW_ETHERNET_BYTES + GW_IPV4_BYTES && head >= 4 && head % 2 == 0;

    /* Load the words of the headers, from two bytes before the frame. If the frame is too short,
     * load the buffer's first words instead and ignore them. */
    const gw_u32 from = simple ? head - 2 : 0;
    const gw_u32 shift = 8 * (from & 2u);
    const GW_GLOBAL gw_u32 *words = (const GW_GLOBAL gw_u32 *)(buffer + (from & ~3u));
    gw_u32 raw[7];
    GW_UNROLL
    for (gw_u32 i = 0; i < 7; i++) {
        raw[i] = words[i];
    }
    gw_u32 front[GW_IPSEC_SIMPLE_WORDS + 2];
    GW_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        front[i] = gw_funnel_right32(raw[i], raw[i + 1], shift);
    }
    const gw_u32 ip_first = gw_swap32(gw_funnel_right32(raw[4], raw[5], shift));
    const gw_u32 ip_second = gw_swap32(gw_funnel_right32(raw[5], raw[6], shift));
    const gw_u32 ether_type = gw_swap32(front[3]) & 0xffffu;
    const gw_u32 header_bytes = (ip_first >> 24 & 0x0fu) * 4;
    const gw_u32 total_bytes = ip_first & 0xffffu;
    const gw_u32 flags = sa_front.word1;
    const gw_u32 expected = GW_IPSEC_SA_USED;
    const gw_u32 checked = GW_IPSEC_SA_USED | GW_IPSEC_SA_INBOUND | GW_IPSEC_SA_TRANSPORT |
                           GW_IPSEC_SA_OUTER_IPV6 | GW_IPSEC_SA_UDP;
    simple &= gw_ipsec_sa_index(parameter) < sas.count && (flags & checked) == expected;
    /* suite, icv_bytes, hop_limit, dscp */
    simple &= (sa_front.word3 & 0xffu) == work->variant >> 1;
    simple &= ether_type == GW_ETHER_TYPE_IPV4 && ip_first >> 28 == 4;
    simple &= header_bytes >= GW_IPV4_BYTES && total_bytes >= header_bytes &&
              total_bytes + GW_ETHERNET_BYTES <= frame_bytes;

    const gw_u32 iv_bytes = gw_ipsec_iv_bytes(suite);
    const gw_u32 block_bytes = gw_ipsec_block_bytes(suite);
    gw_ipsec_simple packet;
    packet.sequence = gw_ipsec_sequence(parameter);
    packet.spi = sa_front.word0;
    packet.flags = flags;
    packet.icv_bytes = sa_front.word3 >> 8 & 0xffu;
    packet.cipher_bytes = (total_bytes + GW_ESP_TAIL_BYTES + block_bytes - 1) & ~(block_bytes - 1);
    const gw_u32 added = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + iv_bytes;
    const gw_u32 outer_bytes = added + packet.cipher_bytes + packet.icv_bytes;
    simple &= head >= added && head - added + GW_ETHERNET_BYTES + outer_bytes <= room_bytes;
    packet.esp = buffer + head + GW_ETHERNET_BYTES - added + GW_IPV4_BYTES;
    if (!simple) {
        packet.cipher_bytes = 0;
        return packet;
    }

    /* Compute the outer header as gw_ipsec_outer_tos, gw_ipsec_outer_df and gw_ipsec_write_outer
     * do. */
    const gw_u32 inner_tos = ip_first >> 16 & 0xffu;
    const gw_u32 dscp =
        (flags & GW_IPSEC_SA_DSCP_SET) != 0 ? sa_front.word3 >> 24 << 2 : inner_tos & ~GW_IPSEC_ECN;
    const gw_u32 ecn = (flags & GW_IPSEC_SA_ECN_IGNORED) != 0 ? 0 : inner_tos & GW_IPSEC_ECN;
    gw_u32 df = (flags & GW_IPSEC_SA_DF_CLEAR) != 0 ? 0 : ip_second & GW_IPSEC_IPV4_DF;
    df = (flags & GW_IPSEC_SA_DF_SET) != 0 ? GW_IPSEC_IPV4_DF : df;
    const gw_u32 first = 0x45000000u | (dscp | ecn) << 16 | outer_bytes;
    const gw_u32 second = (gw_u32)packet.sequence << 16 | df;
    const gw_u32 third = (sa_front.word3 >> 16 & 0xffu) << 24 | GW_IPSEC_ESP << 16;
    const gw_u32 sum =
        gw_ipsec_fold(gw_ipsec_halves(first) + gw_ipsec_halves(second) + gw_ipsec_halves(third) +
                      gw_ipsec_halves(source) + gw_ipsec_halves(destination));
    front[4] = gw_swap32(first);
    front[5] = gw_swap32(second);
    front[6] = gw_swap32(third | (~sum & 0xffffu));
    front[7] = gw_swap32(source);
    front[8] = gw_swap32(destination);
    front[9] = gw_swap32(packet.spi);
    front[10] = gw_swap32((gw_u32)packet.sequence);
    front[11] = gw_swap32((gw_u32)(packet.sequence >> 32));
    front[12] = front[10];
    /* If the frame's address is a multiple of 4, each stored word combines halves of two
     * neighbouring array words, and the last store is a half word. Otherwise, words are stored as
     * they are, and the first store is a half word. */
    const gw_u32 count = GW_IPSEC_SIMPLE_WORDS + (iv_bytes == 8 ? 2 : 0);
    GW_GLOBAL gw_u8 *to = buffer + head - 2 - added + shift / 8;
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_SIMPLE_WORDS + 2; i++) {
        const gw_u32 next = i + 1 < GW_IPSEC_SIMPLE_WORDS + 2 ? front[i + 1] : 0;
        const gw_u32 word = gw_funnel_right32(front[i], next, shift);
        const gw_u32 whole = shift == 0 ? i != 0 : i + 1 != count;
        if (i < count && whole) {
            *(GW_GLOBAL gw_u32 *)(to + 4 * i) = word;
        }
    }
    *(GW_GLOBAL gw_u16 *)(shift == 0 ? to + 2 : to + 4 * (count - 1)) =
        (gw_u16)(shift == 0 ? front[0] >> 16
                            : (count == GW_IPSEC_SIMPLE_WORDS ? front[10] : front[12]) >> 16);
    gw_ipsec_pad_words(buffer + head + GW_ETHERNET_BYTES + total_bytes,
                       packet.cipher_bytes - GW_ESP_TAIL_BYTES - total_bytes, GW_PROTOCOL_IPV4);
    gw_descriptor *changed = &work->descriptors[index];
    gw_outcome outcome = {0, 0, 0, 0};
    gw_verdict(&outcome, GW_IPSEC_ENCRYPTED, 0, packet.spi);
    changed->head = (gw_u16)(head - added);
    changed->length = (gw_u16)(GW_ETHERNET_BYTES + outer_bytes);
    work->outcomes[index] = outcome;
    return packet;
}

#endif
