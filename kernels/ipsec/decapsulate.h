/*
 * ESP, inbound (RFC 4303, section 3.4), around a transform: `begin` checks headers and finds what
 * is to be authenticated and decrypted, `end` takes the packet out.
 */
#ifndef GODWIT_IPSEC_DECAPSULATE_H
#define GODWIT_IPSEC_DECAPSULATE_H

/* What is left to do once the headers in front are checked. */
typedef struct gw_ipsec_opening {
    GW_GLOBAL gw_u8 *esp; /* the ESP header; IV, what is encrypted, and ICV come behind */
    gw_u64 sequence;
    gw_u32 cipher_bytes; /* 0: the packet is settled */
    gw_u32 named_at;     /* gw_ipsec_content's */
} gw_ipsec_opening;

/* Whether the UDP header at `udp`, `bytes` in front of the packet's end, is that of the SA's
 * packets (RFC 3948, section 2.1); its checksum does not matter. */
GW_LANE gw_u32 gw_ipsec_check_udp(const GW_GLOBAL gw_ipsec_sa *sa, const GW_GLOBAL gw_u8 *udp,
                                  gw_u32 bytes)
{
    if (bytes < GW_UDP_BYTES || gw_load_be16(udp + 4) != bytes) {
        return GW_IPSEC_MALFORMED;
    }
    return gw_load_be16(udp + 2) == sa->udp_destination ? GW_IPSEC_FINE : GW_IPSEC_NO_SA;
}

/* Finds what is to be authenticated and decrypted; writes nothing. */
GW_APART gw_ipsec_opening gw_ipsec_open_begin(const gw_lane *lane, gw_ipsec_found found,
                                              gw_ipsec_suite suite, const gw_descriptor *descriptor,
                                              gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    GW_GLOBAL gw_u8 *outer = gw_frame(lane, descriptor) + found.l2_bytes;
    const gw_u32 udp_bytes = gw_ipsec_udp_bytes(sa);
    const gw_ipsec_arrival arrival =
        gw_ipsec_arrive(sa, outer, descriptor->length - found.l2_bytes, found.version,
                        udp_bytes != 0 ? GW_PROTOCOL_UDP : GW_IPSEC_ESP);
    const gw_u32 block_bytes = gw_ipsec_block_bytes(suite);
    const gw_u32 around = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite) + sa->icv_bytes;
    gw_ipsec_opening opening;
    opening.esp = outer + arrival.at + udp_bytes;
    opening.sequence = 0;
    opening.cipher_bytes = 0;
    opening.named_at = arrival.named_at;
    gw_u32 reason = arrival.error;
    if (reason == GW_IPSEC_FINE && udp_bytes != 0) {
        reason = gw_ipsec_check_udp(sa, outer + arrival.at, arrival.total_bytes - arrival.at);
    }
    if (reason == GW_IPSEC_FINE) {
        const gw_u32 esp_bytes = arrival.total_bytes - arrival.at - udp_bytes;
        if (esp_bytes < around + block_bytes || ((esp_bytes - around) & (block_bytes - 1)) != 0) {
            reason = GW_IPSEC_MALFORMED;
        } else if (gw_load_be32(opening.esp) != sa->spi) {
            reason = GW_IPSEC_NO_SA;
        } else {
            /* The packet carries the lower half; the host half knows the upper. */
            opening.sequence = (gw_ipsec_sequence(lane->parameter) & ~(gw_u64)0xffffffffu) |
                               gw_load_be32(opening.esp + 4);
            opening.cipher_bytes = esp_bytes - around;
            return opening;
        }
    }
    gw_drop(outcome, reason);
    return opening;
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

/* Settles a packet that is authentic and decrypted. */
GW_APART void gw_ipsec_open_end(const gw_lane *lane, gw_ipsec_found found, gw_ipsec_suite suite,
                                gw_ipsec_opening opening, gw_descriptor *descriptor,
                                gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *l3 = gw_frame(lane, descriptor) + found.l2_bytes;
    gw_ipsec_content content;
    content.data = opening.esp + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    content.named_at = opening.named_at;
    content.kept = (gw_u32)(opening.esp - l3) - gw_ipsec_udp_bytes(found.sa);
    const gw_u32 pad_bytes = content.data[opening.cipher_bytes - 2];
    content.next_header = content.data[opening.cipher_bytes - 1];
    if (pad_bytes > opening.cipher_bytes - GW_ESP_TAIL_BYTES) {
        gw_drop(outcome, GW_IPSEC_PADDING);
        return;
    }
    content.bytes = opening.cipher_bytes - GW_ESP_TAIL_BYTES - pad_bytes;
    if (!gw_ipsec_padding_right(content.data + content.bytes, pad_bytes)) {
        gw_drop(outcome, GW_IPSEC_PADDING);
        return;
    }
    /* RFC 4303, section 2.6: sent only to hide how much traffic there is. */
    if (content.next_header == GW_PROTOCOL_NONE) {
        gw_drop(outcome, GW_IPSEC_DUMMY);
        return;
    }
    gw_ipsec_leave(lane, found.sa, found.l2_bytes, found.version, content, descriptor, outcome);
}

#endif
