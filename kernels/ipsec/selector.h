/* Checks that an inbound packet matches the selectors of its SA (RFC 4301, section 5.2, step 4). */
#ifndef GODWIT_IPSEC_SELECTOR_H
#define GODWIT_IPSEC_SELECTOR_H

/* Returns whether a protocol header begins with source and destination ports: TCP, UDP, DCCP, SCTP
 * and UDP-Lite. */
GW_LANE gw_u32 gw_ipsec_has_ports(gw_u32 protocol)
{
    return protocol == 6 || protocol == 17 || protocol == 33 || protocol == 132 || protocol == 136;
}

/* Protocol and ports of a packet, for selectors (RFC 4301, section 4.4.1.1). */
typedef struct gw_ipsec_upper {
    gw_u32 protocol;
    gw_u32 has_ports;
    gw_u32 source_port;
    gw_u32 destination_port;
} gw_ipsec_upper;

/* Returns the protocol and ports of a packet of `bytes` bytes. `extensions` describes the packet's
 * extension headers. A later fragment has no ports (RFC 4301, section 7). */
GW_LANE gw_ipsec_upper gw_ipsec_upper_of(const GW_GLOBAL gw_u8 *packet, gw_u32 bytes,
                                         gw_ipsec_extensions extensions)
{
    gw_ipsec_upper upper;
    upper.protocol = extensions.protocol;
    upper.has_ports = gw_ipsec_has_ports(extensions.protocol) && !extensions.later_fragment &&
                      extensions.at + 4 <= bytes;
    const gw_u32 ports = upper.has_ports ? gw_load_be32(packet + extensions.at) : 0;
    upper.source_port = ports >> 16;
    upper.destination_port = ports & 0xffffu;
    return upper;
}

/* Returns whether the IP address at `address` begins with the first `bits` bits of `prefix`. */
GW_LANE gw_u32 gw_ipsec_in_prefix(const GW_GLOBAL gw_u8 *address, const GW_GLOBAL gw_u32 *prefix,
                                  gw_u32 bits)
{
    for (gw_u32 i = 0; 32 * i < bits && i < 4; i++) {
        const gw_u32 left = bits - 32 * i;
        const gw_u32 difference = gw_load_be32(address + 4 * i) ^ prefix[i];
        if (difference >> (left < 32 ? 32 - left : 0) != 0) {
            return 0;
        }
    }
    return 1;
}

/* Returns whether a packet matches a selector. `ip` points to the IP header, and `upper` contains
 * the protocol and the ports. */
GW_LANE gw_u32 gw_ipsec_matches_selector(const GW_GLOBAL gw_ipsec_selector *selector,
                                         const GW_GLOBAL gw_u8 *ip, gw_u32 version,
                                         gw_ipsec_upper upper)
{
    if ((selector->family != 0 && selector->family != version) ||
        (selector->protocol != GW_IPSEC_PROTOCOL_ANY && selector->protocol != upper.protocol)) {
        return 0;
    }
    if (selector->ports && !(upper.has_ports && upper.source_port >= selector->source_port_first &&
                             upper.source_port <= selector->source_port_last &&
                             upper.destination_port >= selector->destination_port_first &&
                             upper.destination_port <= selector->destination_port_last)) {
        return 0;
    }
    const gw_u32 source_at = version == 4 ? 12 : 8;
    const gw_u32 address_bytes = version == 4 ? 4 : 16;
    return selector->family == 0 ||
           (gw_ipsec_in_prefix(ip + source_at, selector->source, selector->source_bits) &&
            gw_ipsec_in_prefix(ip + source_at + address_bytes, selector->destination,
                               selector->destination_bits));
}

GW_LANE gw_u32 gw_ipsec_matches_sa(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                                   const GW_GLOBAL gw_u8 *ip, gw_u32 version, gw_ipsec_upper upper)
{
    const GW_GLOBAL gw_ipsec_image *image = (const GW_GLOBAL gw_ipsec_image *)lane->image;
    const GW_GLOBAL gw_ipsec_selector *selectors =
        (const GW_GLOBAL gw_ipsec_selector *)(lane->image + image->selector_offset);
    for (gw_u32 i = 0; i < sa->selector_count; i++) {
        if (gw_ipsec_matches_selector(&selectors[sa->selector_first + i], ip, version, upper)) {
            return 1;
        }
    }
    return 0;
}

#endif
