/*
 * AH (RFC 4302), around its authentication: `begin` writes or checks headers and clears what is not
 * authenticated, `end` puts that back and settles the packet.
 *
 *   | IP header, extensions | AH: next header, length, SPI, sequence | IV | ICV | padding | ... |
 *   bytes                                      12                     0/8  12-16   0/4
 *
 * The IV is GMAC's (RFC 4543, section 4), which authenticates it as it is. IPv6 wants a multiple of
 * 8 bytes, IPv4 one of 4.
 */
#ifndef GODWIT_IPSEC_AH_H
#define GODWIT_IPSEC_AH_H

#define GW_AH_HEADER_BYTES 12u

GW_LANE gw_u32 gw_ipsec_ah_bytes(const GW_GLOBAL gw_ipsec_sa *sa, gw_ipsec_suite suite)
{
    const gw_u32 unit = gw_ipsec_outer_version(sa) == 4 ? 4 : 8;
    return (GW_AH_HEADER_BYTES + gw_ipsec_iv_bytes(suite) + sa->icv_bytes + unit - 1) & ~(unit - 1);
}

/* What is to be authenticated, and what must be put back then. */
typedef struct gw_ipsec_signing {
    GW_GLOBAL gw_u8 *header; /* of IP: where what is authenticated begins */
    GW_GLOBAL gw_u8 *ah;
    gw_u32 bytes; /* 0: the packet is settled */
    gw_u32 named_at;
    gw_u64 iv;
    gw_u64 sequence;
    gw_u32 icv[4]; /* inbound: as received */
    gw_ipsec_saved saved;
} gw_ipsec_signing;

/* Writes headers; what is left to do is gw_ipsec_authenticate and gw_ipsec_sign_end. */
GW_APART void gw_ipsec_sign_begin(const gw_lane *lane, gw_ipsec_found found, gw_ipsec_suite suite,
                                  gw_ipsec_signing *signing, gw_descriptor *descriptor,
                                  gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    GW_GLOBAL gw_u8 *packet = frame + found.l2_bytes;
    const gw_ipsec_ip ip =
        gw_ipsec_ip_parse(packet, descriptor->length - found.l2_bytes, found.version);
    const gw_ipsec_wrapping wrapping = gw_ipsec_plan(sa, packet, ip);
    const gw_u32 ah_bytes = gw_ipsec_ah_bytes(sa, suite);
    const gw_u32 added = wrapping.outer_bytes + ah_bytes;
    gw_u32 reason = wrapping.error;
    if (reason == GW_IPSEC_FINE && wrapping.outer_bytes == 0) {
        reason = gw_ipsec_fields(packet, ip.version, wrapping.kept, 1, GW_IPSEC_FIELDS_CHECK,
                                 &signing->saved);
    }
    if (reason == GW_IPSEC_FINE && descriptor->head < added) {
        reason = GW_IPSEC_NO_ROOM;
    }
    signing->bytes = 0;
    if (reason != GW_IPSEC_FINE) {
        gw_drop(outcome, reason);
        return;
    }
    signing->sequence = gw_ipsec_sequence(lane->parameter);
    signing->iv = signing->sequence;
    signing->bytes = ip.total_bytes + added;
    signing->header = gw_ipsec_wrap(sa, wrapping, frame, found.l2_bytes, found.version, added,
                                    signing->sequence, signing->bytes, GW_IPSEC_AH);
    signing->ah = packet + wrapping.kept - ah_bytes;
    gw_store_be32(signing->ah, wrapping.next_header << 24 | (ah_bytes / 4 - 2) << 16);
    gw_store_be32(signing->ah + 4, sa->spi);
    gw_store_be32(signing->ah + 8, (gw_u32)signing->sequence);
    for (gw_u32 i = GW_AH_HEADER_BYTES; i < ah_bytes; i += 4) {
        gw_store_be32(signing->ah + i, 0);
    }
    if (gw_ipsec_iv_bytes(suite) != 0) {
        gw_store_be64(signing->ah + GW_AH_HEADER_BYTES, signing->iv);
    }
    gw_ipsec_fields(signing->header, gw_ipsec_outer_version(sa),
                    (gw_u32)(signing->ah - signing->header), 1, GW_IPSEC_FIELDS_CLEAR,
                    &signing->saved);
    gw_ipsec_entered(sa, added, found.l2_bytes + signing->bytes, descriptor, outcome);
}

GW_APART void gw_ipsec_sign_end(gw_ipsec_found found, gw_ipsec_suite suite,
                                gw_ipsec_signing *signing, gw_ipsec_tag tag)
{
    const gw_u32 iv_bytes = gw_ipsec_iv_bytes(suite);
    gw_ipsec_fields(signing->header, gw_ipsec_outer_version(found.sa),
                    (gw_u32)(signing->ah - signing->header), 1, GW_IPSEC_FIELDS_RESTORE,
                    &signing->saved);
    gw_ipsec_tag_store(signing->ah + GW_AH_HEADER_BYTES + iv_bytes, tag, found.sa->icv_bytes);
}

/* Moves the ICV out of the packet, or, `back`, into it again. Padding behind it stays: it is
 * authenticated (section 3.3.3.2.1). */
GW_LANE void gw_ipsec_lift_icv(gw_ipsec_signing *signing, gw_u32 iv_bytes, gw_u32 icv_bytes,
                               gw_u32 back)
{
    GW_GLOBAL gw_u8 *icv = signing->ah + GW_AH_HEADER_BYTES + iv_bytes;
    for (gw_u32 i = 0; 4 * i < icv_bytes && i < 4; i++) {
        signing->icv[i] = back ? signing->icv[i] : gw_load_be32(icv + 4 * i);
        gw_store_be32(icv + 4 * i, back ? signing->icv[i] : 0);
    }
}

/* Checks headers; what is left to do is gw_ipsec_authenticate and gw_ipsec_verify_end. */
GW_APART void gw_ipsec_verify_begin(const gw_lane *lane, gw_ipsec_found found, gw_ipsec_suite suite,
                                    gw_ipsec_signing *signing, const gw_descriptor *descriptor,
                                    gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    const gw_u32 ah_bytes = gw_ipsec_ah_bytes(sa, suite);
    signing->header = gw_frame(lane, descriptor) + found.l2_bytes;
    const gw_ipsec_arrival arrival = gw_ipsec_arrive(
        sa, signing->header, descriptor->length - found.l2_bytes, found.version, GW_IPSEC_AH);
    signing->ah = signing->header + arrival.at;
    signing->named_at = arrival.named_at;
    signing->bytes = 0;
    signing->iv = 0;
    gw_u32 reason = arrival.error;
    if (reason == GW_IPSEC_FINE) {
        if (arrival.total_bytes - arrival.at < ah_bytes || signing->ah[1] != ah_bytes / 4 - 2) {
            reason = GW_IPSEC_MALFORMED;
        } else if (gw_load_be32(signing->ah + 4) != sa->spi) {
            reason = GW_IPSEC_NO_SA;
        } else {
            reason = gw_ipsec_fields(signing->header, found.version, arrival.at, 0,
                                     GW_IPSEC_FIELDS_CHECK, &signing->saved);
        }
    }
    if (reason != GW_IPSEC_FINE) {
        gw_drop(outcome, reason);
        return;
    }
    signing->bytes = arrival.total_bytes;
    /* The packet carries the lower half; the host half knows the upper. */
    signing->sequence =
        (gw_ipsec_sequence(lane->parameter) & ~(gw_u64)0xffffffffu) | gw_load_be32(signing->ah + 8);
    if (gw_ipsec_iv_bytes(suite) != 0) {
        signing->iv = gw_load_be64(signing->ah + GW_AH_HEADER_BYTES);
    }
    gw_ipsec_lift_icv(signing, gw_ipsec_iv_bytes(suite), sa->icv_bytes, 0);
    gw_ipsec_fields(signing->header, found.version, arrival.at, 0, GW_IPSEC_FIELDS_CLEAR,
                    &signing->saved);
}

/* Settles the packet, whose tag should be this one. */
GW_APART void gw_ipsec_verify_end(const gw_lane *lane, gw_ipsec_found found, gw_ipsec_suite suite,
                                  gw_ipsec_signing *signing, gw_ipsec_tag tag,
                                  gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipsec_sa *sa = found.sa;
    const gw_u32 iv_bytes = gw_ipsec_iv_bytes(suite);
    const gw_u32 ah_bytes = gw_ipsec_ah_bytes(sa, suite);
    gw_ipsec_content content;
    content.kept = (gw_u32)(signing->ah - signing->header);
    gw_ipsec_fields(signing->header, found.version, content.kept, 0, GW_IPSEC_FIELDS_RESTORE,
                    &signing->saved);
    gw_ipsec_lift_icv(signing, iv_bytes, sa->icv_bytes, 1);
    if (!gw_ipsec_tag_same(signing->ah + GW_AH_HEADER_BYTES + iv_bytes, tag, sa->icv_bytes)) {
        gw_drop(outcome, GW_IPSEC_AUTHENTICATION);
        return;
    }
    content.data = signing->ah + ah_bytes;
    content.bytes = signing->bytes - content.kept - ah_bytes;
    content.next_header = signing->ah[0];
    content.named_at = signing->named_at;
    gw_ipsec_leave(lane, sa, found.l2_bytes, found.version, content, descriptor, outcome);
}

#endif
