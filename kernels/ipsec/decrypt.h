/* Inbound: an ESP packet for one of our endpoints becomes the IPv4 packet inside. */
#ifndef GODWIT_IPSEC_DECRYPT_H
#define GODWIT_IPSEC_DECRYPT_H

/* Whether the ICV at `bytes` is this one. Takes the same time wherever it differs. */
GW_LANE gw_u32 gw_ipsec_same_icv(const GW_GLOBAL gw_u8 *bytes, gw_sha1 icv)
{
    const gw_u32 difference = (icv.a ^ gw_load_be32(bytes)) | (icv.b ^ gw_load_be32(bytes + 4)) |
                              (icv.c ^ gw_load_be32(bytes + 8));
    return difference == 0;
}

/* Whether the padding is 1, 2, 3 and so on, as RFC 4303 section 2.4 says it should be inspected. */
GW_LANE gw_u32 gw_ipsec_padding_right(const GW_GLOBAL gw_u8 *padding, gw_u32 bytes)
{
    gw_u32 difference = 0;
    for (gw_u32 i = 0; i < bytes; i++) {
        difference |= padding[i] ^ (i + 1);
    }
    return difference == 0;
}

/* Protocols whose header begins with two ports: TCP, UDP, DCCP, SCTP, UDP-Lite. */
GW_LANE gw_u32 gw_ipsec_has_ports(gw_u32 protocol)
{
    return protocol == 6 || protocol == 17 || protocol == 33 || protocol == 132 || protocol == 136;
}

/* The mask of an IPv4 prefix. */
GW_LANE gw_u32 gw_ipsec_mask(gw_u32 bits)
{
    return bits == 0 ? 0 : 0xffffffffu << (32 - bits);
}

/* Whether the packet inside is one the SA is for (RFC 4301, section 5.2, step 4). */
GW_LANE gw_u32 gw_ipsec_selected(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                                 const GW_GLOBAL gw_u8 *packet, gw_ipsec_ipv4 ip)
{
    const GW_GLOBAL gw_ipsec_image *image = (const GW_GLOBAL gw_ipsec_image *)lane->image;
    const GW_GLOBAL gw_ipsec_selector *selectors =
        (const GW_GLOBAL gw_ipsec_selector *)(lane->image + image->selector_offset);
    const gw_u32 source = gw_load_be32(packet + 12);
    const gw_u32 destination = gw_load_be32(packet + 16);
    const gw_u32 protocol = packet[9];
    /* A fragment that is not the first shows no ports (RFC 4301, section 7). */
    const gw_u32 shows_ports = gw_ipsec_has_ports(protocol) &&
                               (gw_load_be16(packet + 6) & 0x1fffu) == 0 &&
                               ip.total_bytes >= ip.header_bytes + 4;
    const gw_u32 ports = shows_ports ? gw_load_be32(packet + ip.header_bytes) : 0;
    const gw_u32 source_port = ports >> 16;
    const gw_u32 destination_port = ports & 0xffffu;
    for (gw_u32 i = 0; i < sa->selector_count; i++) {
        const GW_GLOBAL gw_ipsec_selector *selector = &selectors[sa->selector_first + i];
        if (selector->family != 6 &&
            ((source ^ selector->source[0]) & gw_ipsec_mask(selector->source_bits)) == 0 &&
            ((destination ^ selector->destination[0]) &
             gw_ipsec_mask(selector->destination_bits)) == 0 &&
            (selector->protocol == GW_IPSEC_PROTOCOL_ANY || selector->protocol == protocol) &&
            (!selector->ports || (shows_ports && source_port >= selector->source_port_first &&
                                  source_port <= selector->source_port_last &&
                                  destination_port >= selector->destination_port_first &&
                                  destination_port <= selector->destination_port_last))) {
            return 1;
        }
    }
    return 0;
}

/*
 * ECN of the packet that leaves the tunnel (RFC 6040, section 4.2, figure 4).
 * Returns 0 where the packet must be dropped instead.
 */
GW_LANE gw_u32 gw_ipsec_leave_ecn(GW_GLOBAL gw_u8 *packet, gw_u32 outer_ecn)
{
    const gw_u32 inner_ecn = packet[1] & 3u;
    gw_u32 ecn = inner_ecn;
    if (outer_ecn == 3) {
        if (inner_ecn == 0) {
            return 0;
        }
        ecn = 3;
    } else if (outer_ecn == 1 && inner_ecn == 2) {
        ecn = 1;
    }
    if (ecn != inner_ecn) {
        /* RFC 1624, equation 3. */
        const gw_u32 old = gw_load_be16(packet);
        const gw_u32 new_word = (old & 0xfffcu) | ecn;
        gw_u32 sum = (~gw_load_be16(packet + 10) & 0xffffu) + (~old & 0xffffu) + new_word;
        sum = (sum & 0xffffu) + (sum >> 16);
        sum = (sum & 0xffffu) + (sum >> 16);
        gw_store_be16(packet, new_word);
        gw_store_be16(packet + 10, ~sum & 0xffffu);
    }
    return 1;
}

/* Whether the outer header is one of an ESP packet for the SA; GW_IPSEC_FINE or the drop reason. */
GW_LANE gw_u32 gw_ipsec_check_outer(const GW_GLOBAL gw_ipsec_sa *sa, const GW_GLOBAL gw_u8 *outer,
                                    gw_ipsec_ipv4 ip)
{
    if (ip.error != GW_IPSEC_FINE) {
        return ip.error;
    }
    if (outer[9] != GW_PROTOCOL_ESP || gw_ones_sum(outer, ip.header_bytes) != 0xffffu) {
        return GW_IPSEC_MALFORMED;
    }
    if ((gw_load_be16(outer + 6) & 0x3fffu) != 0) {
        return GW_IPSEC_FRAGMENT;
    }
    return gw_load_be32(outer + 16) == sa->destination[0] ? GW_IPSEC_FINE : GW_IPSEC_NO_SA;
}

/* What is left to do once the outer header is checked. */
typedef struct gw_ipsec_opening {
    GW_GLOBAL gw_u8
        *data;      /* what is encrypted; IV and ESP header lie in front of it, the ICV behind */
    gw_u32 blocks;  /* 0: the packet is settled */
    gw_u32 removed; /* bytes between the L2 header and `data` */
} gw_ipsec_opening;

/* Finds what is to be authenticated and decrypted; writes nothing. */
GW_LANE gw_ipsec_opening gw_ipsec_open_begin(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                                             gw_u32 l2_bytes, const gw_descriptor *descriptor,
                                             gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *outer = gw_frame(lane, descriptor) + l2_bytes;
    const gw_ipsec_ipv4 ip = gw_ipsec_ipv4_parse(outer, descriptor->length - l2_bytes);
    const gw_u32 before = GW_ESP_HEADER_BYTES + GW_AES_BLOCK_BYTES;
    const gw_u32 esp_bytes = ip.total_bytes - ip.header_bytes;
    gw_ipsec_opening opening;
    opening.removed = ip.header_bytes + before;
    opening.data = outer + opening.removed;
    opening.blocks = 0;
    gw_u32 reason = gw_ipsec_check_outer(sa, outer, ip);
    if (reason == GW_IPSEC_FINE) {
        if (esp_bytes < before + GW_AES_BLOCK_BYTES + GW_ESP_ICV_BYTES ||
            (esp_bytes - before - GW_ESP_ICV_BYTES) % GW_AES_BLOCK_BYTES != 0) {
            reason = GW_IPSEC_MALFORMED;
        } else if (gw_load_be32(outer + ip.header_bytes) != sa->spi) {
            reason = GW_IPSEC_NO_SA;
        }
    }
    if (reason != GW_IPSEC_FINE) {
        gw_drop(outcome, reason);
        return opening;
    }
    opening.blocks = (esp_bytes - before - GW_ESP_ICV_BYTES) / GW_AES_BLOCK_BYTES;
    return opening;
}

/* The payload's length behind the padding; GW_IPSEC_FINE or the drop reason. */
GW_LANE gw_u32 gw_ipsec_unpad(const GW_GLOBAL gw_u8 *data, gw_u32 cipher_bytes,
                              gw_u32 *payload_bytes)
{
    const gw_u32 pad_bytes = data[cipher_bytes - 2];
    const gw_u32 next_header = data[cipher_bytes - 1];
    if (pad_bytes > cipher_bytes - GW_ESP_TAIL_BYTES) {
        return GW_IPSEC_PADDING;
    }
    *payload_bytes = cipher_bytes - GW_ESP_TAIL_BYTES - pad_bytes;
    if (!gw_ipsec_padding_right(data + *payload_bytes, pad_bytes)) {
        return GW_IPSEC_PADDING;
    }
    /* RFC 4303, section 2.6: sent only to hide how much traffic there is. */
    if (next_header == GW_PROTOCOL_NONE) {
        return GW_IPSEC_DUMMY;
    }
    return next_header == GW_PROTOCOL_IPV4 ? GW_IPSEC_FINE : GW_IPSEC_POLICY_MISMATCH;
}

/* Settles a packet that is authentic and decrypted. */
GW_LANE void gw_ipsec_open_end(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                               gw_u32 l2_bytes, gw_ipsec_opening opening, gw_descriptor *descriptor,
                               gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    GW_GLOBAL gw_u8 *packet = opening.data;
    gw_u32 payload_bytes = 0;
    const gw_u32 reason =
        gw_ipsec_unpad(packet, opening.blocks * GW_AES_BLOCK_BYTES, &payload_bytes);
    if (reason != GW_IPSEC_FINE) {
        gw_drop(outcome, reason);
        return;
    }
    /* What follows the packet inside hides its length (RFC 4303, section 2.7) and is left behind.
     */
    const gw_ipsec_ipv4 ip = gw_ipsec_ipv4_parse(packet, payload_bytes);
    if (ip.error != GW_IPSEC_FINE) {
        gw_drop(outcome, GW_IPSEC_MALFORMED);
        return;
    }
    if (!gw_ipsec_selected(lane, sa, packet, ip)) {
        gw_drop(outcome, GW_IPSEC_POLICY_MISMATCH);
        return;
    }
    if (!gw_ipsec_leave_ecn(packet, frame[l2_bytes + 1] & 3u)) {
        gw_drop(outcome, GW_IPSEC_CONGESTION);
        return;
    }
    gw_ipsec_move_l2(frame + opening.removed, frame, l2_bytes);
    descriptor->head = (gw_u16)(descriptor->head + opening.removed);
    descriptor->length = (gw_u16)(l2_bytes + ip.total_bytes);
    gw_verdict(outcome, GW_IPSEC_DECRYPTED, 0, sa->spi);
}

GW_LANE void gw_ipsec_decrypt(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 l2_bytes,
                              gw_descriptor *descriptor, gw_outcome *outcome)
{
    const gw_ipsec_opening opening = gw_ipsec_open_begin(lane, sa, l2_bytes, descriptor, outcome);
    if (opening.blocks == 0) {
        return;
    }
    GW_GLOBAL gw_u8 *iv = opening.data - GW_AES_BLOCK_BYTES;
    GW_GLOBAL gw_u8 *esp = iv - GW_ESP_HEADER_BYTES;
    const gw_u32 cipher_bytes = opening.blocks * GW_AES_BLOCK_BYTES;
    /* Before decryption: what is not authentic costs no more (RFC 4303, section 3.4.4.1). */
    if (!gw_ipsec_same_icv(
            opening.data + cipher_bytes,
            gw_ipsec_icv(sa, esp, GW_ESP_HEADER_BYTES + GW_AES_BLOCK_BYTES + cipher_bytes))) {
        gw_drop(outcome, GW_IPSEC_AUTHENTICATION);
        return;
    }
    gw_aes_cbc_decrypt((const GW_GLOBAL gw_u8 *)sa->keys, 10, gw_aes_load(iv), opening.data,
                       opening.blocks);
    gw_ipsec_open_end(lane, sa, l2_bytes, opening, descriptor, outcome);
}

#endif
