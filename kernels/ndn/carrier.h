/*
 * Headers that carry an NDN packet: Ethernet with EtherType 0x8624, UDP over IPv4, and UDP over
 * IPv6.
 *
 * Spec: IEEE 802.3; RFC 791 section 3.1; RFC 8200 sections 3 and 8.1; RFC 768; RFC 1071; NDN over
 * EtherType 0x8624, and over UDP port 6363.
 */
#ifndef GODWIT_NDN_CARRIER_H
#define GODWIT_NDN_CARRIER_H

#include "../common/frame.h"

#define GW_ETHER_TYPE_NDN 0x8624u
#define GW_NDN_UDP_BYTES  8u
#define GW_NDN_IPV4_BYTES 20u
#define GW_NDN_IPV6_BYTES 40u
/* Initial TTL and hop limit of forwarded packets (RFC 1700). */
#define GW_NDN_TTL 64u

/* Location of the NDN packet in a frame. Offsets count from the first byte of the frame. */
typedef struct gw_ndn_span {
    gw_u32 start;
    gw_u32 end; /* over Ethernet, padding may precede it */
    gw_u32 carrier;
    gw_u32 l3; /* end of the Ethernet header and tag */
} gw_ndn_span;

/* Returns the ones' complement sum of `length` bytes (RFC 1071). If the length is odd, the sum
 * includes a padding byte of 0. The sum may exceed 16 bits. */
GW_LANE gw_u32 gw_ndn_sum(const GW_GLOBAL gw_u8 *bytes, gw_u32 length)
{
    const gw_u32 whole = length & ~3u;
    gw_u32 sum = gw_ones_sum(bytes, whole);
    if (length & 2) {
        sum += gw_load_be16(bytes + whole);
    }
    if (length & 1) {
        sum += (gw_u32)bytes[length - 1] << 8;
    }
    return sum;
}

/* Folds a ones' complement sum to 16 bits. */
GW_LANE gw_u32 gw_ndn_fold(gw_u32 sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

GW_LANE gw_u32 gw_ndn_dropped(gw_outcome *outcome, gw_u32 reason)
{
    gw_drop(outcome, reason);
    return 0;
}

GW_LANE gw_u32 gw_ndn_decided(gw_outcome *outcome, gw_u32 verdict)
{
    gw_verdict(outcome, verdict, 0, 0);
    return 0;
}

/* Checks the UDP datagram in the bytes l4..end of the frame. `pseudo` is the sum of the IP
 * addresses, for the checksum. Returns 0 if the function has set the packet's outcome. */
GW_LANE gw_u32 gw_ndn_udp(const GW_GLOBAL gw_u8 *frame, gw_u32 l4, gw_u32 pseudo, gw_ndn_span *span,
                          gw_outcome *outcome)
{
    const gw_u32 bytes = gw_load_be16(frame + l4 + 4);
    if (bytes < GW_NDN_UDP_BYTES) {
        return gw_ndn_dropped(outcome, GW_NDN_MALFORMED);
    }
    if (bytes > span->end - l4) {
        return gw_ndn_dropped(outcome, GW_NDN_TRUNCATED);
    }
    const gw_u32 checksum = gw_load_be16(frame + l4 + 6);
    if (checksum != 0) {
        const gw_u32 sum = pseudo + GW_PROTOCOL_UDP + bytes + gw_ndn_sum(frame + l4, bytes);
        if (gw_ndn_fold(sum) != 0xffff) {
            return gw_ndn_dropped(outcome, GW_NDN_CHECKSUM);
        }
    } else if (span->carrier == GW_NDN_UDP6) {
        /* A checksum is mandatory over IPv6 (RFC 8200 section 8.1). */
        return gw_ndn_dropped(outcome, GW_NDN_CHECKSUM);
    }
    span->start = l4 + GW_NDN_UDP_BYTES;
    span->end = l4 + bytes;
    return 1;
}

GW_LANE gw_u32 gw_ndn_ipv4(const GW_GLOBAL gw_u8 *frame, gw_u32 length, gw_u32 udp_port,
                           gw_ndn_span *span, gw_outcome *outcome)
{
    const gw_u32 available = length - span->l3;
    if (available < GW_NDN_IPV4_BYTES) {
        return gw_ndn_dropped(outcome, GW_NDN_TRUNCATED);
    }
    const GW_GLOBAL gw_u8 *ip = frame + span->l3;
    const gw_u32 first = gw_load_be32(ip);
    const gw_u32 header_bytes = (first >> 24 & 15) * 4;
    const gw_u32 total_length = first & 0xffff;
    if (first >> 28 != 4 || header_bytes < GW_NDN_IPV4_BYTES || total_length < header_bytes) {
        return gw_ndn_dropped(outcome, GW_NDN_MALFORMED);
    }
    if (total_length > available) {
        return gw_ndn_dropped(outcome, GW_NDN_TRUNCATED);
    }
    /* A fragment may have no UDP header. */
    if (ip[9] != GW_PROTOCOL_UDP || (gw_load_be16(ip + 6) & 0x3fff) != 0) {
        return gw_ndn_decided(outcome, GW_NDN_NOT_NDN);
    }
    if (total_length - header_bytes < GW_NDN_UDP_BYTES) {
        return gw_ndn_dropped(outcome, GW_NDN_TRUNCATED);
    }
    const gw_u32 l4 = span->l3 + header_bytes;
    if (gw_load_be16(frame + l4 + 2) != udp_port) {
        return gw_ndn_decided(outcome, GW_NDN_NOT_NDN);
    }
    if (gw_ones_sum(ip, header_bytes) != 0xffff) {
        return gw_ndn_dropped(outcome, GW_NDN_CHECKSUM);
    }
    span->end = span->l3 + total_length;
    span->carrier = GW_NDN_UDP4;
    return gw_ndn_udp(frame, l4, gw_ones_sum(ip + 12, 8), span, outcome);
}

GW_LANE gw_u32 gw_ndn_ipv6(const GW_GLOBAL gw_u8 *frame, gw_u32 length, gw_u32 udp_port,
                           gw_ndn_span *span, gw_outcome *outcome)
{
    const gw_u32 available = length - span->l3;
    if (available < GW_NDN_IPV6_BYTES) {
        return gw_ndn_dropped(outcome, GW_NDN_TRUNCATED);
    }
    const GW_GLOBAL gw_u8 *ip = frame + span->l3;
    if (ip[0] >> 4 != 6) {
        return gw_ndn_dropped(outcome, GW_NDN_MALFORMED);
    }
    const gw_u32 payload_bytes = gw_load_be16(ip + 4);
    if (payload_bytes > available - GW_NDN_IPV6_BYTES) {
        return gw_ndn_dropped(outcome, GW_NDN_TRUNCATED);
    }
    if (ip[6] != GW_PROTOCOL_UDP) {
        return gw_ndn_decided(outcome, GW_NDN_NOT_NDN);
    }
    if (payload_bytes < GW_NDN_UDP_BYTES) {
        return gw_ndn_dropped(outcome, GW_NDN_TRUNCATED);
    }
    const gw_u32 l4 = span->l3 + GW_NDN_IPV6_BYTES;
    if (gw_load_be16(frame + l4 + 2) != udp_port) {
        return gw_ndn_decided(outcome, GW_NDN_NOT_NDN);
    }
    span->end = l4 + payload_bytes;
    span->carrier = GW_NDN_UDP6;
    return gw_ndn_udp(frame, l4, gw_ones_sum(ip + 8, 32), span, outcome);
}

/* Checks the Ethernet, IP and UDP headers, and locates the NDN packet. Returns 0 if a check has
 * already decided the packet's outcome. */
GW_LANE gw_u32 gw_ndn_locate(const GW_GLOBAL gw_u8 *frame, gw_u32 length, gw_u32 udp_port,
                             gw_ndn_span *span, gw_outcome *outcome)
{
    const gw_l3 l3 = gw_l3_parse(frame, length);
    if (l3.offset == 0) {
        return gw_ndn_dropped(outcome, GW_NDN_TRUNCATED);
    }
    span->start = l3.offset;
    span->end = length;
    span->carrier = GW_NDN_ETHERNET;
    span->l3 = l3.offset;
    if (l3.ether_type == GW_ETHER_TYPE_NDN) {
        return 1;
    }
    if (l3.ether_type == GW_ETHER_TYPE_IPV4) {
        return gw_ndn_ipv4(frame, length, udp_port, span, outcome);
    }
    if (l3.ether_type == GW_ETHER_TYPE_IPV6) {
        return gw_ndn_ipv6(frame, length, udp_port, span, outcome);
    }
    return gw_ndn_decided(outcome, GW_NDN_NOT_NDN);
}

/* Returns the length of the IP and UDP headers before the NDN packet, in bytes. It is 0 for NDN
 * directly over Ethernet. */
GW_LANE gw_u32 gw_ndn_carrier_bytes(gw_u32 carrier)
{
    if (carrier == GW_NDN_ETHERNET) {
        return 0;
    }
    return GW_NDN_UDP_BYTES + (carrier == GW_NDN_UDP4 ? GW_NDN_IPV4_BYTES : GW_NDN_IPV6_BYTES);
}

/* Writes an IP and a UDP header at `ip`. An NDN packet of `bytes` bytes follows them. */
GW_LANE void gw_ndn_emit_udp(GW_GLOBAL gw_u8 *ip, const GW_GLOBAL gw_ndn_next_hop *next_hop,
                             gw_u32 bytes)
{
    const gw_u32 is_ipv4 = (gw_u32)(next_hop->carrier == GW_NDN_UDP4);
    const gw_u32 address_bytes = is_ipv4 ? 4 : 16;
    const gw_u32 datagram_bytes = GW_NDN_UDP_BYTES + bytes;
    GW_GLOBAL gw_u8 *addresses = ip + (is_ipv4 ? 12 : 8);
    GW_GLOBAL gw_u8 *udp = addresses + 2 * address_bytes;
    for (gw_u32 i = 0; i < address_bytes; i += 4) {
        gw_store_be32(addresses + i, gw_load_be32(next_hop->source_address + i));
        gw_store_be32(addresses + address_bytes + i,
                      gw_load_be32(next_hop->destination_address + i));
    }
    if (is_ipv4) {
        /* The IPv4 identification may be 0, because DF is set (RFC 6864 section 4). */
        gw_store_be32(ip, 0x45000000u | (GW_NDN_IPV4_BYTES + datagram_bytes));
        gw_store_be32(ip + 4, 0x00004000u);
        gw_store_be32(ip + 8, GW_NDN_TTL << 24 | GW_PROTOCOL_UDP << 16);
        gw_store_be16(ip + 10, gw_ones_sum(ip, GW_NDN_IPV4_BYTES) ^ 0xffff);
    } else {
        gw_store_be32(ip, 0x60000000u);
        gw_store_be32(ip + 4, datagram_bytes << 16 | GW_PROTOCOL_UDP << 8 | GW_NDN_TTL);
    }
    gw_store_be16(udp, next_hop->source_port);
    gw_store_be16(udp + 2, next_hop->destination_port);
    gw_store_be32(udp + 4, datagram_bytes << 16);
    const gw_u32 sum = gw_ones_sum(addresses, 2 * address_bytes) + GW_PROTOCOL_UDP +
                       datagram_bytes + gw_ndn_sum(udp, datagram_bytes);
    const gw_u32 checksum = gw_ndn_fold(sum) ^ 0xffff;
    /* A UDP checksum of 0 would mean "no checksum" (RFC 768), so 0xffff is sent instead. */
    gw_store_be16(udp + 6, checksum == 0 ? 0xffff : checksum);
}

/* Replaces the headers before the NDN packet with the next hop's headers. The NDN packet lies in
 * the bytes start..end of the frame. The frame keeps its VLAN tag. The headroom must be large
 * enough. */
GW_LANE void gw_ndn_write_headers(const gw_lane *lane, const GW_GLOBAL gw_ndn_next_hop *next_hop,
                                  const gw_ndn_span *span, gw_descriptor *descriptor)
{
    const gw_u32 head = descriptor->head;
    const gw_u32 header_bytes = span->l3 + gw_ndn_carrier_bytes(next_hop->carrier);
    GW_GLOBAL gw_u8 *old = lane->buffer + head;
    GW_GLOBAL gw_u8 *frame = old + span->start - header_bytes;
    const gw_u32 tag =
        span->l3 == GW_ETHERNET_BYTES ? 0 : gw_load_be32(old + GW_ETHERNET_BYTES - 2);
    /* If both carriers are Ethernet, the padding is kept. */
    const gw_u32 pads =
        (gw_u32)(next_hop->carrier == GW_NDN_ETHERNET) & (gw_u32)(span->carrier == GW_NDN_ETHERNET);
    const gw_u32 length = pads ? descriptor->length : header_bytes + span->end - span->start;
    const GW_GLOBAL gw_u8 *macs = next_hop->destination_mac;
    gw_store_be64(frame, gw_load_be64(macs));
    gw_store_be32(frame + 8, gw_load_be32(macs + 8));
    if (tag != 0) {
        gw_store_be32(frame + 12, tag);
    }
    if (next_hop->carrier == GW_NDN_ETHERNET) {
        gw_store_be16(frame + span->l3 - 2, GW_ETHER_TYPE_NDN);
    } else {
        gw_store_be16(frame + span->l3 - 2,
                      next_hop->carrier == GW_NDN_UDP4 ? GW_ETHER_TYPE_IPV4 : GW_ETHER_TYPE_IPV6);
        gw_ndn_emit_udp(frame + span->l3, next_hop, span->end - span->start);
    }
    descriptor->head = (gw_u16)(head + span->start - header_bytes);
    descriptor->length = (gw_u16)length;
}

#endif
