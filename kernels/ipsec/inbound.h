/* Checks the headers before ESP or AH in inbound packets, and removes them after decryption. */
#ifndef GODWIT_IPSEC_INBOUND_H
#define GODWIT_IPSEC_INBOUND_H

/* Result of the header checks. It locates the first header after the IP headers. */
typedef struct gw_ipsec_location {
    gw_u32 at;             /* offset, after the IP header and its extensions */
    gw_u32 next_header_at; /* offset of the field that names the protocol at `at` */
    gw_u32 total_bytes;
    gw_u32 error; /* GW_IPSEC_OK, or the drop reason */
} gw_ipsec_location;

GW_LANE gw_u32 gw_ipsec_is_destination(const GW_GLOBAL gw_ipsec_sa *sa,
                                       const GW_GLOBAL gw_u8 *outer, gw_u32 version)
{
    if (version != gw_ipsec_outer_version(sa)) {
        return 0;
    }
    if (version == 4) {
        return gw_load_be32(outer + 16) == sa->destination[0];
    }
    gw_u32 difference = 0;
    for (gw_u32 i = 0; i < 4; i++) {
        difference |= gw_load_be32(outer + 24 + 4 * i) ^ sa->destination[i];
    }
    return difference == 0;
}

/* Checks the headers before the header of `protocol` (AH, ESP, or UDP with ESP), and returns its
 * location. `outer` points to the IP header. The frame ends `bytes` bytes after `outer`. */
GW_LANE gw_ipsec_location gw_ipsec_locate(const GW_GLOBAL gw_ipsec_sa *sa,
                                          const GW_GLOBAL gw_u8 *outer, gw_u32 bytes,
                                          gw_u32 version, gw_u32 protocol)
{
    const gw_ipsec_ip ip = gw_ipsec_ip_parse(outer, bytes, version);
    gw_ipsec_location location;
    location.at = 0;
    location.next_header_at = 0;
    location.total_bytes = ip.total_bytes;
    location.error = ip.error;
    if (ip.error != GW_IPSEC_OK) {
        return location;
    }
    const gw_ipsec_extensions extensions = gw_ipsec_walk_packet(outer, ip);
    const gw_u32 other = extensions.protocol != protocol;
    location.at = extensions.at;
    location.next_header_at = extensions.next_header_at;
    if (version == 4 ? other || gw_ones_sum(outer, ip.header_bytes) != 0xffffu
                     : extensions.error != GW_IPSEC_OK) {
        location.error = GW_IPSEC_MALFORMED;
    } else if (extensions.fragment) {
        location.error = GW_IPSEC_FRAGMENT;
    } else if (other || extensions.segments_left) {
        location.error = GW_IPSEC_MALFORMED;
    } else if (!gw_ipsec_is_destination(sa, outer, version)) {
        location.error = GW_IPSEC_NO_SA;
    }
    return location;
}

/* Payload of a decrypted, authentic packet, and the location of its headers. */
typedef struct gw_ipsec_content {
    GW_GLOBAL gw_u8 *data;
    gw_u32 bytes;
    gw_u32 next_header;
    gw_u32 kept_bytes;     /* length of the headers between L2 and ESP, AH or UDP */
    gw_u32 next_header_at; /* offset of the field in these headers that names ESP, AH or UDP */
} gw_ipsec_content;

GW_LANE void gw_ipsec_remove_tunnel_headers(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                                            gw_u32 l2_bytes, gw_u32 version,
                                            gw_ipsec_content content, gw_descriptor *descriptor,
                                            gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    GW_GLOBAL gw_u8 *packet = content.data;
    const gw_u32 inner_version = content.next_header == GW_PROTOCOL_IPV4 ? 4 : 6;
    if (content.next_header != GW_PROTOCOL_IPV4 && content.next_header != GW_PROTOCOL_IPV6) {
        gw_drop(outcome, GW_IPSEC_POLICY_MISMATCH);
        return;
    }
    /* A sender can append bytes to the inner packet to hide its length (RFC 4303, section 2.7).
     * Remove them here. */
    const gw_ipsec_ip ip = gw_ipsec_ip_parse(packet, content.bytes, inner_version);
    if (ip.error != GW_IPSEC_OK) {
        gw_drop(outcome, GW_IPSEC_MALFORMED);
        return;
    }
    const gw_ipsec_extensions extensions = gw_ipsec_walk_packet(packet, ip);
    if (extensions.error != GW_IPSEC_OK) {
        gw_drop(outcome, GW_IPSEC_MALFORMED);
        return;
    }
    if (!gw_ipsec_matches_sa(lane, sa, packet, inner_version,
                             gw_ipsec_upper_of(packet, ip.total_bytes, extensions))) {
        gw_drop(outcome, GW_IPSEC_POLICY_MISMATCH);
        return;
    }
    if (!gw_ipsec_decapsulate_ecn(packet, inner_version, gw_ipsec_tos(frame + l2_bytes, version))) {
        gw_drop(outcome, GW_IPSEC_CONGESTION);
        return;
    }
    const gw_u32 removed = (gw_u32)(packet - frame) - l2_bytes;
    gw_ipsec_move_l2(frame + removed, frame, l2_bytes);
    if (inner_version != version) {
        gw_ipsec_set_version(packet, inner_version);
    }
    descriptor->head = (gw_u16)(descriptor->head + removed);
    descriptor->length = (gw_u16)(l2_bytes + ip.total_bytes);
    gw_verdict(outcome, GW_IPSEC_DECRYPTED, 0, sa->spi);
}

/* Removes the ESP or AH header of a transport mode packet. The L2 and IP headers move towards the
 * payload. */
GW_LANE void gw_ipsec_remove_transport_headers(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                                               gw_u32 l2_bytes, gw_u32 version,
                                               gw_ipsec_content content, gw_descriptor *descriptor,
                                               gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 headers = l2_bytes + content.kept_bytes;
    const gw_ipsec_extensions extensions =
        version == 4 ? gw_ipsec_no_extensions(content.next_header, 0, 0)
                     : gw_ipsec_walk(content.data, content.bytes, 0, content.next_header, 0);
    if (extensions.error != GW_IPSEC_OK) {
        gw_drop(outcome, GW_IPSEC_MALFORMED);
        return;
    }
    if (!gw_ipsec_matches_sa(lane, sa, frame + l2_bytes, version,
                             gw_ipsec_upper_of(content.data, content.bytes, extensions))) {
        gw_drop(outcome, GW_IPSEC_POLICY_MISMATCH);
        return;
    }
    const gw_u32 removed = (gw_u32)(content.data - frame) - headers;
    gw_ipsec_move_back(frame + removed, frame, headers);
    gw_ipsec_rewrite_header(frame + removed + l2_bytes, version, content.kept_bytes + content.bytes,
                            content.next_header, content.next_header_at);
    if (gw_ipsec_has(sa, GW_IPSEC_SA_UDP) && !extensions.fragment) {
        gw_ipsec_recompute_checksum(frame + removed + l2_bytes, version, extensions.protocol,
                                    content.data + extensions.at, content.bytes - extensions.at);
    }
    descriptor->head = (gw_u16)(descriptor->head + removed);
    descriptor->length = (gw_u16)(headers + content.bytes);
    gw_verdict(outcome, GW_IPSEC_DECRYPTED, 0, sa->spi);
}

GW_LANE void gw_ipsec_remove_headers(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                                     gw_u32 l2_bytes, gw_u32 version, gw_ipsec_content content,
                                     gw_descriptor *descriptor, gw_outcome *outcome)
{
    if (gw_ipsec_has(sa, GW_IPSEC_SA_TRANSPORT)) {
        gw_ipsec_remove_transport_headers(lane, sa, l2_bytes, version, content, descriptor,
                                          outcome);
    } else {
        gw_ipsec_remove_tunnel_headers(lane, sa, l2_bytes, version, content, descriptor, outcome);
    }
}

#endif
