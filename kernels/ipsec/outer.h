/* Writes the IP and UDP headers before ESP and AH. Tunnel mode writes new headers, and transport
 * mode updates the existing ones. The file also copies DSCP, ECN and DF between the inner and the
 * outer header. */
#ifndef GODWIT_IPSEC_OUTER_H
#define GODWIT_IPSEC_OUTER_H

GW_LANE gw_u32 gw_ipsec_has(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 flag)
{
    return (sa->flags & flag) != 0;
}

GW_LANE gw_u32 gw_ipsec_outer_version(const GW_GLOBAL gw_ipsec_sa *sa)
{
    return gw_ipsec_has(sa, GW_IPSEC_SA_OUTER_IPV6) ? 6 : 4;
}

/* Returns the length of the UDP header before ESP: 8 bytes for ESP in UDP (RFC 3948), otherwise
 * 0. */
GW_LANE gw_u32 gw_ipsec_udp_bytes(const GW_GLOBAL gw_ipsec_sa *sa)
{
    return gw_ipsec_has(sa, GW_IPSEC_SA_UDP) ? GW_UDP_BYTES : 0;
}

/* Returns a packet's DSCP and ECN byte: the type of service (IPv4) or the traffic class (IPv6). */
GW_LANE gw_u32 gw_ipsec_tos(const GW_GLOBAL gw_u8 *packet, gw_u32 version)
{
    return version == 4 ? packet[1] : gw_load_be16(packet) >> 4 & 0xffu;
}

/* Fields of the inner packet that determine the outer header. */
typedef struct gw_ipsec_inner {
    gw_u32 tos;
    gw_u32 df; /* GW_IPSEC_IPV4_DF or 0 */
} gw_ipsec_inner;

GW_LANE gw_ipsec_inner gw_ipsec_inner_of(const GW_GLOBAL gw_u8 *packet, gw_u32 version)
{
    gw_ipsec_inner inner;
    inner.tos = gw_ipsec_tos(packet, version);
    /* IPv6 routers do not fragment packets (RFC 8200, section 5), so the outer IPv4 header gets the
     * DF (don't fragment) bit. */
    inner.df = version == 4 ? gw_load_be16(packet + 6) & GW_IPSEC_IPV4_DF : GW_IPSEC_IPV4_DF;
    return inner;
}

GW_LANE gw_ipsec_sa_words gw_ipsec_sa_words_of(const GW_GLOBAL gw_ipsec_sa *sa)
{
    gw_ipsec_sa_words words;
    words.spi = sa->spi;
    words.flags = sa->flags;
    words.bytes = gw_load_le32(&sa->suite);
    words.source = sa->source[0];
    words.destination = sa->destination[0];
    return words;
}

/* Writes the outer IP header of an encapsulated packet (RFC 4301, section 5.1.2). The packet has
 * total_bytes bytes, and `protocol` follows the header. */
GW_LANE void gw_ipsec_write_outer(GW_GLOBAL gw_u8 *outer, const GW_GLOBAL gw_ipsec_sa *sa,
                                  gw_u64 sequence, gw_u32 total_bytes, gw_u32 protocol,
                                  gw_ipsec_inner inner)
{
    const gw_ipsec_sa_words words = gw_ipsec_sa_words_of(sa);
    if (gw_ipsec_has(sa, GW_IPSEC_SA_OUTER_IPV6)) {
        gw_store_be32(outer, 0x60000000u | gw_ipsec_outer_tos(words, inner.tos) << 20);
        gw_store_be32(outer + 4,
                      (total_bytes - GW_IPV6_BYTES) << 16 | protocol << 8 | sa->hop_limit);
        for (gw_u32 i = 0; i < 4; i++) {
            gw_store_be32(outer + 8 + 4 * i, sa->source[i]);
            gw_store_be32(outer + 24 + 4 * i, sa->destination[i]);
        }
        return;
    }
    gw_u32 header[GW_IPV4_BYTES / 4];
    gw_ipsec_outer_ipv4(header, words, inner.tos, inner.df, (gw_u32)sequence, total_bytes,
                        protocol);
    gw_store_be64(outer, (gw_u64)header[0] << 32 | header[1]);
    gw_store_be64(outer + 8, (gw_u64)header[2] << 32 | header[3]);
    gw_store_be32(outer + 16, header[4]);
}

/* Updates the IP header of a transport mode packet. Sets its length to total_bytes, and the field
 * at offset next_header_at to `protocol`. The checksum is adjusted rather than recomputed, so a
 * wrong checksum stays wrong. */
GW_LANE void gw_ipsec_rewrite_header(GW_GLOBAL gw_u8 *header, gw_u32 version, gw_u32 total_bytes,
                                     gw_u32 protocol, gw_u32 next_header_at)
{
    if (version == 6) {
        gw_store_be16(header + 4, total_bytes - GW_IPV6_BYTES);
        header[next_header_at] = (gw_u8)protocol;
        return;
    }
    const gw_u32 length_before = gw_load_be16(header + 2);
    const gw_u32 protocol_before = gw_load_be16(header + 8);
    const gw_u32 protocol_after = (protocol_before & 0xff00u) | protocol;
    gw_u32 checksum = gw_load_be16(header + 10);
    checksum = gw_ipsec_checksum_after(checksum, length_before, total_bytes);
    checksum = gw_ipsec_checksum_after(checksum, protocol_before, protocol_after);
    gw_store_be16(header + 2, total_bytes);
    gw_store_be16(header + 8, protocol_after);
    gw_store_be16(header + 10, checksum);
}

/* Writes the UDP header before ESP (RFC 3948, section 2.1). `bytes` is the length of the header and
 * its payload. Over IPv6, the checksum is mandatory (RFC 8200, section 8.1). The checksum field
 * receives the sum of the pseudo-header, and gw_ipsec_finish_udp adds the rest. */
GW_LANE void gw_ipsec_write_udp(GW_GLOBAL gw_u8 *udp, const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 bytes,
                                const GW_GLOBAL gw_u8 *header)
{
    gw_u32 sum = 0;
    if (gw_ipsec_has(sa, GW_IPSEC_SA_OUTER_IPV6)) {
        sum = gw_ipsec_fold(gw_ones_sum(header + 8, 32) + GW_PROTOCOL_UDP + bytes);
    }
    gw_store_be32(udp, (gw_u32)sa->udp_source << 16 | sa->udp_destination);
    gw_store_be32(udp + 4, bytes << 16 | sum);
}

/* Completes the checksum of the UDP datagram at `udp`. Its length `bytes` must be a multiple of
 * 4. */
GW_LANE void gw_ipsec_finish_udp(GW_GLOBAL gw_u8 *udp, gw_u32 bytes)
{
    const gw_u32 checksum = ~gw_ones_sum(udp, bytes) & 0xffffu;
    gw_store_be16(udp + 6, checksum == 0 ? 0xffffu : checksum);
}

/* Sets the inner packet's ECN field from the inner and the outer ECN field (RFC 6040, section 4.2,
 * figure 4). Returns 0 if the packet must be dropped. */
GW_LANE gw_u32 gw_ipsec_decapsulate_ecn(GW_GLOBAL gw_u8 *packet, gw_u32 version, gw_u32 outer_tos)
{
    const gw_u32 outer_ecn = outer_tos & GW_IPSEC_ECN;
    const gw_u32 inner_ecn = gw_ipsec_tos(packet, version) & GW_IPSEC_ECN;
    gw_u32 ecn = inner_ecn;
    if (outer_ecn == GW_IPSEC_ECN_CE) {
        if (inner_ecn == 0) {
            return 0;
        }
        ecn = GW_IPSEC_ECN_CE;
    } else if (outer_ecn == GW_IPSEC_ECT_1 && inner_ecn == GW_IPSEC_ECT_0) {
        ecn = GW_IPSEC_ECT_1;
    }
    if (ecn == inner_ecn) {
        return 1;
    }
    const gw_u32 before = gw_load_be16(packet);
    if (version == 6) {
        gw_store_be16(packet, (before & 0xffcfu) | ecn << 4);
        return 1;
    }
    const gw_u32 after = (before & 0xfffcu) | ecn;
    gw_store_be16(packet, after);
    gw_store_be16(packet + 10, gw_ipsec_checksum_after(gw_load_be16(packet + 10), before, after));
    return 1;
}

#endif
