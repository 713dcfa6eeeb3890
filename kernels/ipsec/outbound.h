/* Writes the headers before ESP or AH in outbound packets, and determines their layout. */
#ifndef GODWIT_IPSEC_OUTBOUND_H
#define GODWIT_IPSEC_OUTBOUND_H

/*
 * Layout of a packet after encapsulation with ESP or AH:
 *
 *   tunnel      | L2 | outer IP     | UDP, ESP or AH | inner packet          | ...
 *   transport   | L2 | kept headers | UDP, ESP or AH | rest of the IP packet | ...
 *
 * The inner packet or payload is not moved. The L2 header and the kept headers move into the
 * headroom of the buffer.
 */
typedef struct gw_ipsec_layout {
    gw_u32 outer_bytes;    /* tunnel: length of the outer IP header; transport: 0 */
    gw_u32 kept_bytes;     /* transport: length of the headers in front of ESP or AH; tunnel: 0 */
    gw_u32 next_header;    /* protocol of the inner packet or payload */
    gw_u32 next_header_at; /* transport: offset of the field that will name ESP or AH */
    gw_u32 error;          /* GW_IPSEC_OK, or the drop reason */
} gw_ipsec_layout;

GW_LANE gw_ipsec_layout gw_ipsec_layout_of(const GW_GLOBAL gw_ipsec_sa *sa,
                                           const GW_GLOBAL gw_u8 *packet, gw_ipsec_ip ip)
{
    const gw_u32 outer_version = gw_ipsec_outer_version(sa);
    gw_ipsec_layout layout;
    layout.outer_bytes = 0;
    layout.kept_bytes = 0;
    layout.next_header = 0;
    layout.next_header_at = 0;
    layout.error = ip.error;
    if (ip.error != GW_IPSEC_OK) {
        return layout;
    }
    if (!gw_ipsec_has(sa, GW_IPSEC_SA_TRANSPORT)) {
        layout.outer_bytes = outer_version == 4 ? GW_IPV4_BYTES : GW_IPV6_BYTES;
        layout.next_header = ip.version == 4 ? GW_PROTOCOL_IPV4 : GW_PROTOCOL_IPV6;
        return layout;
    }
    const gw_ipsec_extensions extensions = gw_ipsec_walk_packet(packet, ip);
    layout.kept_bytes = extensions.insert_at;
    layout.next_header = extensions.insert_protocol;
    layout.next_header_at = extensions.insert_next_header_at;
    layout.error = extensions.error;
    if (ip.version != outer_version) {
        layout.error = GW_IPSEC_POLICY_MISMATCH;
    } else if (extensions.error == GW_IPSEC_OK && extensions.fragment) {
        /* In transport mode, ESP and AH protect only whole packets, not fragments (RFC 4303,
         * section 3.3.4). */
        layout.error = GW_IPSEC_FRAGMENT;
    }
    return layout;
}

/* Writes the L2 and IP headers of an encapsulated packet, and returns its IP header. The L2 header
 * and the kept headers move by `added` bytes into the headroom. The new IP packet has total_bytes
 * bytes, and `protocol` follows its header. */
GW_LANE GW_GLOBAL gw_u8 *gw_ipsec_write_headers(const GW_GLOBAL gw_ipsec_sa *sa,
                                                gw_ipsec_layout layout, GW_GLOBAL gw_u8 *frame,
                                                gw_u32 l2_bytes, gw_u32 version, gw_u32 added,
                                                gw_u64 sequence, gw_u32 total_bytes,
                                                gw_u32 protocol)
{
    GW_GLOBAL gw_u8 *header = frame + l2_bytes - added;
    if (layout.outer_bytes == 0) {
        gw_ipsec_move_forward(frame - added, frame, l2_bytes + layout.kept_bytes);
        gw_ipsec_rewrite_header(header, version, total_bytes, protocol, layout.next_header_at);
        return header;
    }
    const gw_ipsec_inner inner = gw_ipsec_inner_of(frame + l2_bytes, version);
    gw_ipsec_move_l2(frame - added, frame, l2_bytes);
    if (version != gw_ipsec_outer_version(sa)) {
        gw_ipsec_set_version(header, gw_ipsec_outer_version(sa));
    }
    gw_ipsec_write_outer(header, sa, sequence, total_bytes, protocol, inner);
    return header;
}

/* Sets the verdict `encrypted`, and updates the packet descriptor. `added` is the length of the new
 * headers, and `bytes` is the new frame length. */
GW_LANE void gw_ipsec_encapsulated(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 added, gw_u32 bytes,
                                   gw_descriptor *descriptor, gw_outcome *outcome)
{
    descriptor->head = (gw_u16)(descriptor->head - added);
    descriptor->length = (gw_u16)bytes;
    gw_verdict(outcome, GW_IPSEC_ENCRYPTED, 0, sa->spi);
}

#endif
