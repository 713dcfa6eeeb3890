/*
 * Transport mode through a NAT (RFC 3948, section 3.1.2): the addresses that a TCP or UDP checksum
 * covers were changed on the way, so it is computed again. The ICV has said that the rest is right.
 */
#ifndef GODWIT_IPSEC_NAT_H
#define GODWIT_IPSEC_NAT_H

/* The ones' complement sum of any number of bytes; an odd one is followed by zero (RFC 1071). */
GW_LANE gw_u32 gw_ipsec_sum(const GW_GLOBAL gw_u8 *bytes, gw_u32 length)
{
    const gw_u32 whole = length & ~3u;
    gw_u32 sum = gw_ones_sum(bytes, whole);
    for (gw_u32 i = whole; i < length; i++) {
        sum += (gw_u32)bytes[i] << (i % 2 == 0 ? 8 : 0);
    }
    return gw_ipsec_fold(sum);
}

/* Of what `protocol` begins at `data`; header: that of IP in front of it. */
GW_LANE void gw_ipsec_mend_checksum(const GW_GLOBAL gw_u8 *header, gw_u32 version, gw_u32 protocol,
                                    GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    const gw_u32 tcp = protocol == GW_PROTOCOL_TCP && bytes >= GW_TCP_BYTES;
    /* Without a checksum, or as long as it does not say, it is left as it is. */
    const gw_u32 udp = protocol == GW_PROTOCOL_UDP && bytes >= GW_UDP_BYTES &&
                       gw_load_be16(data + 4) == bytes && gw_load_be16(data + 6) != 0;
    if (!tcp && !udp) {
        return;
    }
    GW_GLOBAL gw_u8 *place = data + (tcp ? 16 : 6);
    gw_store_be16(place, 0);
    const gw_u32 addresses =
        version == 4 ? gw_ones_sum(header + 12, 8) : gw_ones_sum(header + 8, 32);
    const gw_u32 sum = gw_ipsec_fold(addresses + protocol + bytes + gw_ipsec_sum(data, bytes));
    const gw_u32 checksum = ~sum & 0xffffu;
    gw_store_be16(place, udp && checksum == 0 ? 0xffffu : checksum);
}

#endif
