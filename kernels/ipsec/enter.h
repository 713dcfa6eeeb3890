/* Outbound, of ESP and AH alike: where their header goes, and the headers in front of it. */
#ifndef GODWIT_IPSEC_ENTER_H
#define GODWIT_IPSEC_ENTER_H

/*
 * How a packet is wrapped.
 *
 *   tunnel      | L2 | outer IP | UDP, ESP or AH | inner packet              | ...
 *   transport   | L2 | kept     | UDP, ESP or AH | what came behind `kept`   | ...
 *
 * What is inside stays where it is; L2 and what is in front of it come into the headroom.
 */
typedef struct gw_ipsec_wrapping {
    gw_u32 outer_bytes; /* tunnel: of the outer header; transport: 0 */
    gw_u32 kept;        /* transport: bytes of headers that stay in front; tunnel: 0 */
    gw_u32 next_header; /* what is inside */
    gw_u32 named_at;    /* transport: the byte of what is kept that names what follows */
    gw_u32 error;       /* GW_IPSEC_FINE, or the drop reason */
} gw_ipsec_wrapping;

GW_LANE gw_ipsec_wrapping gw_ipsec_plan(const GW_GLOBAL gw_ipsec_sa *sa,
                                        const GW_GLOBAL gw_u8 *packet, gw_ipsec_ip ip)
{
    const gw_u32 outer_version = gw_ipsec_outer_version(sa);
    gw_ipsec_wrapping wrapping;
    wrapping.outer_bytes = 0;
    wrapping.kept = 0;
    wrapping.next_header = 0;
    wrapping.named_at = 0;
    wrapping.error = ip.error;
    if (ip.error != GW_IPSEC_FINE) {
        return wrapping;
    }
    if (!gw_ipsec_has(sa, GW_IPSEC_SA_TRANSPORT)) {
        wrapping.outer_bytes = outer_version == 4 ? GW_IPV4_BYTES : GW_IPV6_BYTES;
        wrapping.next_header = ip.version == 4 ? GW_PROTOCOL_IPV4 : GW_PROTOCOL_IPV6;
        return wrapping;
    }
    const gw_ipsec_chain chain = gw_ipsec_extensions(packet, ip);
    wrapping.kept = chain.place;
    wrapping.next_header = chain.place_protocol;
    wrapping.named_at = chain.place_named_at;
    wrapping.error = chain.error;
    if (ip.version != outer_version) {
        wrapping.error = GW_IPSEC_POLICY_MISMATCH;
    } else if (chain.error == GW_IPSEC_FINE && chain.fragment) {
        /* RFC 4303, section 3.3.4: only whole packets. */
        wrapping.error = GW_IPSEC_FRAGMENT;
    }
    return wrapping;
}

/* Puts in front of `added` more bytes what belongs there, of a packet of total_bytes in which
 * `protocol` follows. Returns where its IP header is now. */
GW_LANE GW_GLOBAL gw_u8 *gw_ipsec_wrap(const GW_GLOBAL gw_ipsec_sa *sa, gw_ipsec_wrapping wrapping,
                                       GW_GLOBAL gw_u8 *frame, gw_u32 l2_bytes, gw_u32 version,
                                       gw_u32 added, gw_u64 sequence, gw_u32 total_bytes,
                                       gw_u32 protocol)
{
    GW_GLOBAL gw_u8 *header = frame + l2_bytes - added;
    if (wrapping.outer_bytes == 0) {
        gw_ipsec_move_forward(frame - added, frame, l2_bytes + wrapping.kept);
        gw_ipsec_rewrite(header, version, total_bytes, protocol, wrapping.named_at);
        return header;
    }
    const gw_ipsec_inside inside = gw_ipsec_look_inside(frame + l2_bytes, version);
    gw_ipsec_move_l2(frame - added, frame, l2_bytes);
    if (version != gw_ipsec_outer_version(sa)) {
        gw_ipsec_set_version(header, gw_ipsec_outer_version(sa));
    }
    gw_ipsec_outer(header, sa, sequence, total_bytes, protocol, inside);
    return header;
}

/* The frame grows by `added` bytes in front, and is `bytes` long. */
GW_LANE void gw_ipsec_entered(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 added, gw_u32 bytes,
                              gw_descriptor *descriptor, gw_outcome *outcome)
{
    descriptor->head = (gw_u16)(descriptor->head - added);
    descriptor->length = (gw_u16)bytes;
    gw_verdict(outcome, GW_IPSEC_ENCRYPTED, 0, sa->spi);
}

#endif
