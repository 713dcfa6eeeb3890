/*
 * The Authentication Header, AH (RFC 4302). The `begin` functions write or check the headers and
 * clear the mutable fields. The caller then computes the authentication tag. The `end` functions
 * restore the fields and finish the packet.
 *
 *   | IP header, extensions | AH: next header, length, SPI, sequence | IV | ICV | padding | ... |
 *   bytes                                      12                     0/8  12-32   0/4
 *
 * Only GMAC has an IV, which it authenticates unchanged (RFC 4543, section 4). The length of AH is
 * a multiple of 8 bytes for IPv6 and of 4 bytes for IPv4.
 */
#ifndef GODWIT_IPSEC_AH_H
#define GODWIT_IPSEC_AH_H

#define GW_AH_HEADER_BYTES 12u

GW_LANE gw_u32 gw_ipsec_ah_bytes(const GW_GLOBAL gw_ipsec_sa *sa, gw_ipsec_suite suite)
{
    const gw_u32 unit = gw_ipsec_outer_version(sa) == 4 ? 4 : 8;
    return (GW_AH_HEADER_BYTES + gw_ipsec_iv_bytes(suite) + sa->icv_bytes + unit - 1) & ~(unit - 1);
}

/* State of an AH packet before its tag is computed: the authenticated bytes, and the fields to
 * restore afterwards. */
typedef struct gw_ipsec_ah_input {
    GW_GLOBAL gw_u8 *header; /* IP header, where the authenticated bytes begin */
    GW_GLOBAL gw_u8 *ah;
    gw_u32 bytes; /* number of authenticated bytes; 0: the packet is dropped */
    gw_u32 next_header_at;
    gw_u64 iv;
    gw_u64 sequence;
    gw_u32 icv[8]; /* inbound: received ICV */
    gw_ipsec_saved saved;
} gw_ipsec_ah_input;

/* Writes the headers of an outbound AH packet and clears its mutable fields. The caller then calls
 * gw_ipsec_ah_tag and gw_ipsec_ah_encapsulate_end. */
GW_APART void gw_ipsec_ah_encapsulate_begin(const gw_lane *lane, gw_ipsec_found found,
                                            gw_ipsec_suite suite, gw_ipsec_ah_input *input,
                                            gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    GW_GLOBAL gw_u8 *packet = frame + found.l2_bytes;
    const gw_ipsec_ip ip =
        gw_ipsec_ip_parse(packet, descriptor->length - found.l2_bytes, found.version);
    const gw_ipsec_layout layout = gw_ipsec_layout_of(sa, packet, ip);
    const gw_u32 ah_bytes = gw_ipsec_ah_bytes(sa, suite);
    const gw_u32 added = layout.outer_bytes + ah_bytes;
    gw_u32 reason = layout.error;
    if (reason == GW_IPSEC_OK && layout.outer_bytes == 0) {
        reason = gw_ipsec_fields(packet, ip.version, layout.kept_bytes, 1, GW_IPSEC_FIELDS_CHECK,
                                 &input->saved);
    }
    if (reason == GW_IPSEC_OK && descriptor->head < added) {
        reason = GW_IPSEC_NO_ROOM;
    }
    input->bytes = 0;
    if (reason != GW_IPSEC_OK) {
        gw_drop(outcome, reason);
        return;
    }
    input->sequence = gw_ipsec_sequence(lane->parameter);
    input->iv = input->sequence;
    input->bytes = ip.total_bytes + added;
    input->header = gw_ipsec_write_headers(sa, layout, frame, found.l2_bytes, found.version, added,
                                           input->sequence, input->bytes, GW_IPSEC_AH);
    input->ah = packet + layout.kept_bytes - ah_bytes;
    gw_store_be32(input->ah, layout.next_header << 24 | (ah_bytes / 4 - 2) << 16);
    gw_store_be32(input->ah + 4, sa->spi);
    gw_store_be32(input->ah + 8, (gw_u32)input->sequence);
    for (gw_u32 i = GW_AH_HEADER_BYTES; i < ah_bytes; i += 4) {
        gw_store_be32(input->ah + i, 0);
    }
    if (gw_ipsec_iv_bytes(suite) != 0) {
        gw_store_be64(input->ah + GW_AH_HEADER_BYTES, input->iv);
    }
    gw_ipsec_fields(input->header, gw_ipsec_outer_version(sa), (gw_u32)(input->ah - input->header),
                    1, GW_IPSEC_FIELDS_CLEAR, &input->saved);
    gw_ipsec_encapsulated(sa, added, found.l2_bytes + input->bytes, descriptor, outcome);
}

GW_APART void gw_ipsec_ah_encapsulate_end(gw_ipsec_found found, gw_ipsec_suite suite,
                                          gw_ipsec_ah_input *input, gw_ipsec_tag tag)
{
    const gw_u32 iv_bytes = gw_ipsec_iv_bytes(suite);
    gw_ipsec_fields(input->header, gw_ipsec_outer_version(found.sa),
                    (gw_u32)(input->ah - input->header), 1, GW_IPSEC_FIELDS_RESTORE, &input->saved);
    gw_ipsec_tag_store(input->ah + GW_AH_HEADER_BYTES + iv_bytes, tag, found.sa->icv_bytes);
}

/* Saves and clears the ICV of an AH packet. If `restore` is not 0, writes the saved ICV back
 * instead. Padding after the ICV is authenticated and stays unchanged (RFC 4302, section
 * 3.3.3.2.1). */
GW_LANE void gw_ipsec_move_icv(gw_ipsec_ah_input *input, gw_u32 iv_bytes, gw_u32 icv_bytes,
                               gw_u32 restore)
{
    GW_GLOBAL gw_u8 *icv = input->ah + GW_AH_HEADER_BYTES + iv_bytes;
    for (gw_u32 i = 0; 4 * i < icv_bytes && i < 8; i++) {
        input->icv[i] = restore ? input->icv[i] : gw_load_be32(icv + 4 * i);
        gw_store_be32(icv + 4 * i, restore ? input->icv[i] : 0);
    }
}

/* Checks the headers of an inbound AH packet and clears its mutable fields and its ICV. The caller
 * then calls gw_ipsec_ah_tag and gw_ipsec_ah_decapsulate_end. */
GW_APART void gw_ipsec_ah_decapsulate_begin(const gw_lane *lane, gw_ipsec_found found,
                                            gw_ipsec_suite suite, gw_ipsec_ah_input *input,
                                            const gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    const gw_u32 ah_bytes = gw_ipsec_ah_bytes(sa, suite);
    input->header = gw_frame(lane, descriptor) + found.l2_bytes;
    const gw_ipsec_location location = gw_ipsec_locate(
        sa, input->header, descriptor->length - found.l2_bytes, found.version, GW_IPSEC_AH);
    input->ah = input->header + location.at;
    input->next_header_at = location.next_header_at;
    input->bytes = 0;
    input->iv = 0;
    gw_u32 reason = location.error;
    if (reason == GW_IPSEC_OK) {
        if (location.total_bytes - location.at < ah_bytes || input->ah[1] != ah_bytes / 4 - 2) {
            reason = GW_IPSEC_MALFORMED;
        } else if (gw_load_be32(input->ah + 4) != sa->spi) {
            reason = GW_IPSEC_NO_SA;
        } else {
            reason = gw_ipsec_fields(input->header, found.version, location.at, 0,
                                     GW_IPSEC_FIELDS_CHECK, &input->saved);
        }
    }
    if (reason != GW_IPSEC_OK) {
        gw_drop(outcome, reason);
        return;
    }
    input->bytes = location.total_bytes;
    /* The packet contains only the lower 32 bits of an extended sequence number. The host infers
     * the upper bits and passes them as the packet's parameter. */
    input->sequence =
        (gw_ipsec_sequence(lane->parameter) & ~(gw_u64)0xffffffffu) | gw_load_be32(input->ah + 8);
    if (gw_ipsec_iv_bytes(suite) != 0) {
        input->iv = gw_load_be64(input->ah + GW_AH_HEADER_BYTES);
    }
    gw_ipsec_move_icv(input, gw_ipsec_iv_bytes(suite), sa->icv_bytes, 0);
    gw_ipsec_fields(input->header, found.version, location.at, 0, GW_IPSEC_FIELDS_CLEAR,
                    &input->saved);
}

/* Completes an inbound AH packet after its tag is computed. Restores the mutable fields and the
 * ICV, compares the ICV with `tag`, and removes the headers. Drops a packet with a wrong ICV. */
GW_APART void gw_ipsec_ah_decapsulate_end(const gw_lane *lane, gw_ipsec_found found,
                                          gw_ipsec_suite suite, gw_ipsec_ah_input *input,
                                          gw_ipsec_tag tag, gw_descriptor *descriptor,
                                          gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    const gw_u32 iv_bytes = gw_ipsec_iv_bytes(suite);
    const gw_u32 ah_bytes = gw_ipsec_ah_bytes(sa, suite);
    gw_ipsec_content content;
    content.kept_bytes = (gw_u32)(input->ah - input->header);
    gw_ipsec_fields(input->header, found.version, content.kept_bytes, 0, GW_IPSEC_FIELDS_RESTORE,
                    &input->saved);
    gw_ipsec_move_icv(input, iv_bytes, sa->icv_bytes, 1);
    if (!gw_ipsec_tag_equal(input->ah + GW_AH_HEADER_BYTES + iv_bytes, tag, sa->icv_bytes)) {
        gw_drop(outcome, GW_IPSEC_AUTHENTICATION);
        return;
    }
    content.data = input->ah + ah_bytes;
    content.bytes = input->bytes - content.kept_bytes - ah_bytes;
    content.next_header = input->ah[0];
    content.next_header_at = input->next_header_at;
    gw_ipsec_remove_headers(lane, sa, found.l2_bytes, found.version, content, descriptor, outcome);
}

#endif
