/* Recomputes the TCP or UDP checksum of transport mode packets that passed a NAT (RFC 3948, section
 * 3.1.2). The checksum covers the addresses, and the NAT has changed them. */
#ifndef GODWIT_IPSEC_NAT_H
#define GODWIT_IPSEC_NAT_H

/* Returns the ones' complement sum of `bytes`. An odd length is padded with a zero byte (RFC
 * 1071). */
GW_LANE gw_u32 gw_ipsec_sum(const GW_GLOBAL gw_u8 *bytes, gw_u32 length)
{
    const gw_u32 whole = length & ~3u;
    gw_u32 sum = gw_ones_sum(bytes, whole);
    for (gw_u32 i = whole; i < length; i++) {
        sum += (gw_u32)bytes[i] << (i % 2 == 0 ? 8 : 0);
    }
    return gw_ipsec_fold(sum);
}

/* Recomputes the checksum of the TCP segment or UDP datagram at `data`, which has `bytes` bytes.
 * `header` points to the IP header. */
GW_LANE void gw_ipsec_recompute_checksum(const GW_GLOBAL gw_u8 *header, gw_u32 version,
                                         gw_u32 protocol, GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    const gw_u32 tcp = protocol == GW_PROTOCOL_TCP && bytes >= GW_TCP_BYTES;
    /* A UDP datagram stays unchanged if it has no checksum (value 0) or a wrong length. */
    const gw_u32 udp = protocol == GW_PROTOCOL_UDP && bytes >= GW_UDP_BYTES &&
                       gw_load_be16(data + 4) == bytes && gw_load_be16(data + 6) != 0;
    if (!tcp && !udp) {
        return;
    }
    GW_GLOBAL gw_u8 *field = data + (tcp ? 16 : 6);
    gw_store_be16(field, 0);
    const gw_u32 addresses =
        version == 4 ? gw_ones_sum(header + 12, 8) : gw_ones_sum(header + 8, 32);
    const gw_u32 sum = gw_ipsec_fold(addresses + protocol + bytes + gw_ipsec_sum(data, bytes));
    const gw_u32 checksum = ~sum & 0xffffu;
    gw_store_be16(field, udp && checksum == 0 ? 0xffffu : checksum);
}

#endif
