/* Decapsulates inbound ESP packets (RFC 4303, section 3.4). First, gw_ipsec_esp_decapsulate_begin
 * checks the headers and locates the encrypted data. The caller then verifies and decrypts this
 * data. Finally, gw_ipsec_esp_decapsulate_end removes the headers and the padding. */
#ifndef GODWIT_IPSEC_DECAPSULATE_H
#define GODWIT_IPSEC_DECAPSULATE_H

/* Inbound ESP packet with valid headers, ready for verification and decryption. */
typedef struct gw_ipsec_decryption {
    GW_GLOBAL gw_u8 *esp; /* ESP header; IV, data and ICV follow */
    gw_u64 sequence;
    gw_u32 cipher_bytes;   /* length of the encrypted data; 0: the packet is dropped */
    gw_u32 next_header_at; /* see gw_ipsec_content */
} gw_ipsec_decryption;

/* Checks that a UDP header before ESP belongs to the SA (RFC 3948, section 2.1). `bytes` includes
 * the header and its payload. The UDP checksum is ignored. Returns GW_IPSEC_OK or a drop reason. */
GW_LANE gw_u32 gw_ipsec_check_udp(const GW_GLOBAL gw_ipsec_sa *sa, const GW_GLOBAL gw_u8 *udp,
                                  gw_u32 bytes)
{
    if (bytes < GW_UDP_BYTES || gw_load_be16(udp + 4) != bytes) {
        return GW_IPSEC_MALFORMED;
    }
    return gw_load_be16(udp + 2) == sa->udp_destination ? GW_IPSEC_OK : GW_IPSEC_NO_SA;
}

/* Checks the headers of an inbound ESP packet and locates the encrypted data. Writes the packet's
 * outcome only if the packet must be dropped. */
GW_APART gw_ipsec_decryption gw_ipsec_esp_decapsulate_begin(const gw_lane *lane,
                                                            gw_ipsec_found found,
                                                            gw_ipsec_suite suite,
                                                            const gw_descriptor *descriptor,
                                                            gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    GW_GLOBAL gw_u8 *outer = gw_frame(lane, descriptor) + found.l2_bytes;
    const gw_u32 udp_bytes = gw_ipsec_udp_bytes(sa);
    const gw_ipsec_location location =
        gw_ipsec_locate(sa, outer, descriptor->length - found.l2_bytes, found.version,
                        udp_bytes != 0 ? GW_PROTOCOL_UDP : GW_IPSEC_ESP);
    const gw_u32 around = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite) + sa->icv_bytes;
    gw_ipsec_decryption decryption;
    decryption.esp = outer + location.at + udp_bytes;
    decryption.sequence = 0;
    decryption.cipher_bytes = 0;
    decryption.next_header_at = location.next_header_at;
    gw_u32 reason = location.error;
    if (reason == GW_IPSEC_OK && udp_bytes != 0) {
        reason = gw_ipsec_check_udp(sa, outer + location.at, location.total_bytes - location.at);
    }
    if (reason == GW_IPSEC_OK) {
        const gw_u32 esp_bytes = location.total_bytes - location.at - udp_bytes;
        if (!gw_ipsec_cipher_bytes_valid(suite, esp_bytes, around)) {
            reason = GW_IPSEC_MALFORMED;
        } else if (gw_load_be32(decryption.esp) != sa->spi) {
            reason = GW_IPSEC_NO_SA;
        } else {
            /* The packet contains only the lower 32 bits of an extended sequence number. The host
             * infers the upper bits and passes them as the packet's parameter. */
            decryption.sequence = (gw_ipsec_sequence(lane->parameter) & ~(gw_u64)0xffffffffu) |
                                  gw_load_be32(decryption.esp + 4);
            decryption.cipher_bytes = esp_bytes - around;
            return decryption;
        }
    }
    gw_drop(outcome, reason);
    return decryption;
}

/* Returns whether the ESP padding consists of the bytes 1, 2, 3 and so on (RFC 4303, section
 * 2.4). */
GW_LANE gw_u32 gw_ipsec_padding_valid(const GW_GLOBAL gw_u8 *padding, gw_u32 bytes)
{
    gw_u32 difference = 0;
    for (gw_u32 i = 0; i < bytes; i++) {
        difference |= padding[i] ^ (i + 1);
    }
    return difference == 0;
}

/* Removes the headers and the padding of an authentic, decrypted ESP packet. Writes its descriptor
 * and outcome. */
GW_APART void gw_ipsec_esp_decapsulate_end(const gw_lane *lane, gw_ipsec_found found,
                                           gw_ipsec_suite suite, gw_ipsec_decryption decryption,
                                           gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *l3 = gw_frame(lane, descriptor) + found.l2_bytes;
    gw_ipsec_content content;
    content.data = decryption.esp + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    content.next_header_at = decryption.next_header_at;
    content.kept_bytes = (gw_u32)(decryption.esp - l3) - gw_ipsec_udp_bytes(found.sa);
    const gw_u32 pad_bytes = content.data[decryption.cipher_bytes - 2];
    content.next_header = content.data[decryption.cipher_bytes - 1];
    if (pad_bytes > decryption.cipher_bytes - GW_ESP_TAIL_BYTES) {
        gw_drop(outcome, GW_IPSEC_PADDING);
        return;
    }
    content.bytes = decryption.cipher_bytes - GW_ESP_TAIL_BYTES - pad_bytes;
    if (!gw_ipsec_padding_valid(content.data + content.bytes, pad_bytes)) {
        gw_drop(outcome, GW_IPSEC_PADDING);
        return;
    }
    /* The next header 59 marks a dummy packet, which hides the traffic volume (RFC 4303, section
     * 2.6). */
    if (content.next_header == GW_PROTOCOL_NONE) {
        gw_drop(outcome, GW_IPSEC_DUMMY);
        return;
    }
    gw_ipsec_remove_headers(lane, found.sa, found.l2_bytes, found.version, content, descriptor,
                            outcome);
}

#endif
