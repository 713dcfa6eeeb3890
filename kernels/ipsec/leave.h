/* Inbound, of ESP and AH alike: the headers in front, and what is done with what was inside. */
#ifndef GODWIT_IPSEC_LEAVE_H
#define GODWIT_IPSEC_LEAVE_H

/* Where ESP, AH or the UDP header in front of ESP is. */
typedef struct gw_ipsec_arrival {
    gw_u32 at;       /* behind the IP header and its extensions */
    gw_u32 named_at; /* the byte of these that names it */
    gw_u32 total_bytes;
    gw_u32 error; /* GW_IPSEC_FINE, or the drop reason */
} gw_ipsec_arrival;

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

/* Checks the headers in front of `protocol`; `bytes`: how many there are from `outer` on. */
GW_LANE gw_ipsec_arrival gw_ipsec_arrive(const GW_GLOBAL gw_ipsec_sa *sa,
                                         const GW_GLOBAL gw_u8 *outer, gw_u32 bytes, gw_u32 version,
                                         gw_u32 protocol)
{
    const gw_ipsec_ip ip = gw_ipsec_ip_parse(outer, bytes, version);
    gw_ipsec_arrival arrival;
    arrival.at = 0;
    arrival.named_at = 0;
    arrival.total_bytes = ip.total_bytes;
    arrival.error = ip.error;
    if (ip.error != GW_IPSEC_FINE) {
        return arrival;
    }
    const gw_ipsec_chain chain = gw_ipsec_extensions(outer, ip);
    const gw_u32 other = chain.protocol != protocol;
    arrival.at = chain.at;
    arrival.named_at = chain.named_at;
    if (version == 4 ? other || gw_ones_sum(outer, ip.header_bytes) != 0xffffu
                     : chain.error != GW_IPSEC_FINE) {
        arrival.error = GW_IPSEC_MALFORMED;
    } else if (chain.fragment) {
        arrival.error = GW_IPSEC_FRAGMENT;
    } else if (other || chain.routed) {
        arrival.error = GW_IPSEC_MALFORMED;
    } else if (!gw_ipsec_is_destination(sa, outer, version)) {
        arrival.error = GW_IPSEC_NO_SA;
    }
    return arrival;
}

/* What was inside an authentic packet. */
typedef struct gw_ipsec_content {
    GW_GLOBAL gw_u8 *data;
    gw_u32 bytes;
    gw_u32 next_header;
    gw_u32 kept;     /* bytes of headers between L2 and ESP, AH, or UDP */
    gw_u32 named_at; /* the byte of these that names what follows */
} gw_ipsec_content;

/* The packet becomes the one inside. */
GW_LANE void gw_ipsec_leave_tunnel(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                                   gw_u32 l2_bytes, gw_u32 version, gw_ipsec_content content,
                                   gw_descriptor *descriptor, gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    GW_GLOBAL gw_u8 *packet = content.data;
    const gw_u32 inner_version = content.next_header == GW_PROTOCOL_IPV4 ? 4 : 6;
    if (content.next_header != GW_PROTOCOL_IPV4 && content.next_header != GW_PROTOCOL_IPV6) {
        gw_drop(outcome, GW_IPSEC_POLICY_MISMATCH);
        return;
    }
    /* What follows the packet inside hides its length (RFC 4303, section 2.7) and is left behind.
     */
    const gw_ipsec_ip ip = gw_ipsec_ip_parse(packet, content.bytes, inner_version);
    if (ip.error != GW_IPSEC_FINE) {
        gw_drop(outcome, GW_IPSEC_MALFORMED);
        return;
    }
    const gw_ipsec_chain chain = gw_ipsec_extensions(packet, ip);
    if (chain.error != GW_IPSEC_FINE) {
        gw_drop(outcome, GW_IPSEC_MALFORMED);
        return;
    }
    if (!gw_ipsec_selected(lane, sa, packet, inner_version,
                           gw_ipsec_show(packet, ip.total_bytes, chain))) {
        gw_drop(outcome, GW_IPSEC_POLICY_MISMATCH);
        return;
    }
    if (!gw_ipsec_leave_ecn(packet, inner_version, gw_ipsec_tos(frame + l2_bytes, version))) {
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

/* The headers in front come together with what was inside. */
GW_LANE void gw_ipsec_leave_transport(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                                      gw_u32 l2_bytes, gw_u32 version, gw_ipsec_content content,
                                      gw_descriptor *descriptor, gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 headers = l2_bytes + content.kept;
    const gw_ipsec_chain chain =
        version == 4 ? gw_ipsec_no_extensions(content.next_header, 0, 0)
                     : gw_ipsec_follow(content.data, content.bytes, 0, content.next_header, 0);
    if (chain.error != GW_IPSEC_FINE) {
        gw_drop(outcome, GW_IPSEC_MALFORMED);
        return;
    }
    if (!gw_ipsec_selected(lane, sa, frame + l2_bytes, version,
                           gw_ipsec_show(content.data, content.bytes, chain))) {
        gw_drop(outcome, GW_IPSEC_POLICY_MISMATCH);
        return;
    }
    const gw_u32 removed = (gw_u32)(content.data - frame) - headers;
    gw_ipsec_move_back(frame + removed, frame, headers);
    gw_ipsec_rewrite(frame + removed + l2_bytes, version, content.kept + content.bytes,
                     content.next_header, content.named_at);
    if (gw_ipsec_has(sa, GW_IPSEC_SA_UDP) && !chain.fragment) {
        gw_ipsec_mend_checksum(frame + removed + l2_bytes, version, chain.protocol,
                               content.data + chain.at, content.bytes - chain.at);
    }
    descriptor->head = (gw_u16)(descriptor->head + removed);
    descriptor->length = (gw_u16)(headers + content.bytes);
    gw_verdict(outcome, GW_IPSEC_DECRYPTED, 0, sa->spi);
}

GW_LANE void gw_ipsec_leave(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 l2_bytes,
                            gw_u32 version, gw_ipsec_content content, gw_descriptor *descriptor,
                            gw_outcome *outcome)
{
    if (gw_ipsec_has(sa, GW_IPSEC_SA_TRANSPORT)) {
        gw_ipsec_leave_transport(lane, sa, l2_bytes, version, content, descriptor, outcome);
    } else {
        gw_ipsec_leave_tunnel(lane, sa, l2_bytes, version, content, descriptor, outcome);
    }
}

#endif
