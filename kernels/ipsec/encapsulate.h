/* Encapsulates outbound packets with ESP (RFC 4303, section 3.3). First,
 * gw_ipsec_esp_encapsulate_begin writes headers and padding and locates the data to encrypt. The
 * caller then encrypts the data and writes the ICV. Finally, gw_ipsec_esp_encapsulate_end completes
 * the packet. */
#ifndef GODWIT_IPSEC_ENCAPSULATE_H
#define GODWIT_IPSEC_ENCAPSULATE_H

/* Writes the ESP trailer: the padding bytes 1, 2, 3 and so on, the pad length, and the next header
 * (RFC 4303, section 2.4). */
GW_LANE void gw_ipsec_pad(GW_GLOBAL gw_u8 *trailer, gw_u32 pad_bytes, gw_u32 next_header)
{
    for (gw_u32 i = 0; i < pad_bytes; i++) {
        trailer[i] = (gw_u8)(i + 1);
    }
    trailer[pad_bytes] = (gw_u8)pad_bytes;
    trailer[pad_bytes + 1] = (gw_u8)next_header;
}

/* Outbound ESP packet with headers and padding, ready for encryption. */
typedef struct gw_ipsec_encryption {
    GW_GLOBAL gw_u8 *esp; /* ESP header; IV, data and ICV follow */
    gw_u64 sequence;
    gw_u32 cipher_bytes; /* length of the data to encrypt; 0: the packet is dropped */
} gw_ipsec_encryption;

/* Writes the headers and the padding of an outbound ESP packet, and updates its descriptor and
 * outcome. The caller then writes the IV, encrypts the data, and writes the ICV. */
GW_APART gw_ipsec_encryption gw_ipsec_esp_encapsulate_begin(const gw_lane *lane,
                                                            gw_ipsec_found found,
                                                            gw_ipsec_suite suite,
                                                            gw_descriptor *descriptor,
                                                            gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    GW_GLOBAL gw_u8 *packet = frame + found.l2_bytes;
    const gw_ipsec_ip ip =
        gw_ipsec_ip_parse(packet, descriptor->length - found.l2_bytes, found.version);
    const gw_ipsec_layout layout = gw_ipsec_layout_of(sa, packet, ip);
    gw_ipsec_encryption encryption;
    encryption.esp = packet;
    encryption.sequence = gw_ipsec_sequence(lane->parameter);
    encryption.cipher_bytes = 0;
    if (layout.error != GW_IPSEC_OK) {
        gw_drop(outcome, layout.error);
        return encryption;
    }
    const gw_u32 esp_front = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const gw_u32 udp_bytes = gw_ipsec_udp_bytes(sa);
    const gw_u32 added = layout.outer_bytes + udp_bytes + esp_front;
    const gw_u32 payload_bytes = ip.total_bytes - layout.kept_bytes;
    const gw_u32 cipher_bytes = gw_ipsec_cipher_bytes(suite, payload_bytes);
    const gw_u32 length = added + found.l2_bytes + layout.kept_bytes + cipher_bytes + sa->icv_bytes;
    if (descriptor->head < added ||
        descriptor->head - added + length > descriptor->room * GW_BUFFER_UNIT) {
        gw_drop(outcome, GW_IPSEC_NO_ROOM);
        return encryption;
    }

    GW_GLOBAL gw_u8 *payload = packet + layout.kept_bytes;
    GW_GLOBAL gw_u8 *header = gw_ipsec_write_headers(
        sa, layout, frame, found.l2_bytes, found.version, added, encryption.sequence,
        length - found.l2_bytes, udp_bytes != 0 ? GW_PROTOCOL_UDP : GW_IPSEC_ESP);
    encryption.esp = payload - esp_front;
    if (udp_bytes != 0) {
        gw_ipsec_write_udp(encryption.esp - GW_UDP_BYTES, sa,
                           udp_bytes + esp_front + cipher_bytes + sa->icv_bytes, header);
    }
    gw_store_be32(encryption.esp, sa->spi);
    gw_store_be32(encryption.esp + 4, (gw_u32)encryption.sequence);
    gw_ipsec_pad(payload + payload_bytes, cipher_bytes - GW_ESP_TAIL_BYTES - payload_bytes,
                 layout.next_header);
    encryption.cipher_bytes = cipher_bytes;
    gw_ipsec_encapsulated(sa, added, length, descriptor, outcome);
    return encryption;
}

/* Writes the UDP checksum of ESP in UDP over IPv6. The checksum covers the ICV, so it comes last.
 * Other packets stay unchanged. */
GW_APART void gw_ipsec_esp_encapsulate_end(gw_ipsec_found found, gw_ipsec_suite suite,
                                           gw_ipsec_encryption encryption)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    if (gw_ipsec_has(sa, GW_IPSEC_SA_UDP) && gw_ipsec_has(sa, GW_IPSEC_SA_OUTER_IPV6)) {
        gw_ipsec_finish_udp(encryption.esp - GW_UDP_BYTES,
                            GW_UDP_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite) +
                                encryption.cipher_bytes + sa->icv_bytes);
    }
}

#endif
