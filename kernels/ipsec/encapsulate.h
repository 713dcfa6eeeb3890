/*
 * ESP, outbound (RFC 4303, section 3.3), around a transform: `begin` writes headers and padding and
 * says where what is to be encrypted lies, `end` comes after its ICV is written.
 */
#ifndef GODWIT_IPSEC_ENCAPSULATE_H
#define GODWIT_IPSEC_ENCAPSULATE_H

/* RFC 4303, section 2.4: as much padding as the cipher needs, 1, 2, 3 and so on. */
GW_LANE void gw_ipsec_pad(GW_GLOBAL gw_u8 *trailer, gw_u32 pad_bytes, gw_u32 next_header)
{
    for (gw_u32 i = 0; i < pad_bytes; i++) {
        trailer[i] = (gw_u8)(i + 1);
    }
    trailer[pad_bytes] = (gw_u8)pad_bytes;
    trailer[pad_bytes + 1] = (gw_u8)next_header;
}

/* What is left to do once a packet's headers and padding are written. */
typedef struct gw_ipsec_sealing {
    GW_GLOBAL gw_u8 *esp; /* the ESP header; IV, what is to be encrypted, and ICV come behind */
    gw_u64 sequence;
    gw_u32 cipher_bytes; /* 0: the packet is settled */
} gw_ipsec_sealing;

/* Settles the packet, but for IV, encryption and ICV. */
GW_APART gw_ipsec_sealing gw_ipsec_seal_begin(const gw_lane *lane, gw_ipsec_found found,
                                              gw_ipsec_suite suite, gw_descriptor *descriptor,
                                              gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    GW_GLOBAL gw_u8 *packet = frame + found.l2_bytes;
    const gw_ipsec_ip ip =
        gw_ipsec_ip_parse(packet, descriptor->length - found.l2_bytes, found.version);
    const gw_ipsec_wrapping wrapping = gw_ipsec_plan(sa, packet, ip);
    gw_ipsec_sealing sealing;
    sealing.esp = packet;
    sealing.sequence = gw_ipsec_sequence(lane->parameter);
    sealing.cipher_bytes = 0;
    if (wrapping.error != GW_IPSEC_FINE) {
        gw_drop(outcome, wrapping.error);
        return sealing;
    }
    const gw_u32 esp_front = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const gw_u32 udp_bytes = gw_ipsec_udp_bytes(sa);
    const gw_u32 added = wrapping.outer_bytes + udp_bytes + esp_front;
    const gw_u32 payload_bytes = ip.total_bytes - wrapping.kept;
    const gw_u32 block_bytes = gw_ipsec_block_bytes(suite);
    const gw_u32 cipher_bytes =
        (payload_bytes + GW_ESP_TAIL_BYTES + block_bytes - 1) & ~(block_bytes - 1);
    const gw_u32 length = added + found.l2_bytes + wrapping.kept + cipher_bytes + sa->icv_bytes;
    /* A buffer is far smaller than 2^16 bytes, so what fits into it fits into an IP packet. */
    if (descriptor->head < added ||
        descriptor->head - added + length > descriptor->room * GW_BUFFER_UNIT) {
        gw_drop(outcome, GW_IPSEC_NO_ROOM);
        return sealing;
    }

    GW_GLOBAL gw_u8 *payload = packet + wrapping.kept;
    GW_GLOBAL gw_u8 *header =
        gw_ipsec_wrap(sa, wrapping, frame, found.l2_bytes, found.version, added, sealing.sequence,
                      length - found.l2_bytes, udp_bytes != 0 ? GW_PROTOCOL_UDP : GW_IPSEC_ESP);
    sealing.esp = payload - esp_front;
    if (udp_bytes != 0) {
        gw_ipsec_udp(sealing.esp - GW_UDP_BYTES, sa,
                     udp_bytes + esp_front + cipher_bytes + sa->icv_bytes, header);
    }
    gw_store_be32(sealing.esp, sa->spi);
    gw_store_be32(sealing.esp + 4, (gw_u32)sealing.sequence);
    gw_ipsec_pad(payload + payload_bytes, cipher_bytes - GW_ESP_TAIL_BYTES - payload_bytes,
                 wrapping.next_header);
    sealing.cipher_bytes = cipher_bytes;
    gw_ipsec_entered(sa, added, length, descriptor, outcome);
    return sealing;
}

/* What can be written only when everything behind it is. */
GW_APART void gw_ipsec_seal_end(gw_ipsec_found found, gw_ipsec_suite suite,
                                gw_ipsec_sealing sealing)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    if (gw_ipsec_has(sa, GW_IPSEC_SA_UDP) && gw_ipsec_has(sa, GW_IPSEC_SA_OUTER_IPV6)) {
        gw_ipsec_udp_finish(sealing.esp - GW_UDP_BYTES, GW_UDP_BYTES + GW_ESP_HEADER_BYTES +
                                                            gw_ipsec_iv_bytes(suite) +
                                                            sealing.cipher_bytes + sa->icv_bytes);
    }
}

#endif
