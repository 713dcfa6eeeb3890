/* Shared definitions for inbound and outbound IPsec packets: drop reasons, header lengths, protocol
 * numbers, and IP header parsers. */
#ifndef GODWIT_IPSEC_PACKET_H
#define GODWIT_IPSEC_PACKET_H

#include "../dialect/words.h"
#include "image.h"
#include "suite.h"

/* Success, for functions that otherwise return a drop reason. */
#define GW_IPSEC_OK 255u

#define GW_IPV4_BYTES       20u
#define GW_IPV6_BYTES       40u
#define GW_UDP_BYTES        8u
#define GW_TCP_BYTES        20u /* without options */
#define GW_ESP_HEADER_BYTES 8u  /* SPI, sequence number (RFC 4303, section 2) */
#define GW_ESP_TAIL_BYTES   2u  /* pad length, next header */
#define GW_IPSEC_IPV4_DF    0x4000u

/* ECN field values in an IP header (RFC 3168, section 5). GW_IPSEC_ECN is the mask of the field. */
#define GW_IPSEC_ECN    3u
#define GW_IPSEC_ECN_CE 3u
#define GW_IPSEC_ECT_1  1u
#define GW_IPSEC_ECT_0  2u

/* Protocol numbers of IP and of IPv6 extension headers (RFC 8200, section 4). */
#define GW_PROTOCOL_HOP_BY_HOP  0u
#define GW_PROTOCOL_IPV4        4u
#define GW_PROTOCOL_IPV6        41u
#define GW_PROTOCOL_ROUTING     43u
#define GW_PROTOCOL_FRAGMENT    44u
#define GW_PROTOCOL_NONE        59u
#define GW_PROTOCOL_DESTINATION 60u

/* Maximum number of IPv6 extension headers. A packet with more of them is malformed. */
#define GW_IPSEC_EXTENSIONS_MAX 8u

#include "fields.h"

/* Checked lengths of an IP packet (RFC 791, section 3.1; RFC 8200, section 3). */
typedef struct gw_ipsec_ip {
    gw_u32 version;      /* 4 or 6 */
    gw_u32 header_bytes; /* IPv4: 20..60; IPv6: 40, without extension headers */
    gw_u32 total_bytes;  /* header_bytes..65535; the frame contains this many */
    gw_u32 error;        /* GW_IPSEC_OK, or the drop reason */
} gw_ipsec_ip;

/* Parses and checks an IP header. `bytes` is the distance from the header to the end of the
 * frame. */
GW_LANE gw_ipsec_ip gw_ipsec_ip_parse(const GW_GLOBAL gw_u8 *packet, gw_u32 bytes, gw_u32 version)
{
    const gw_u32 least = version == 4 ? GW_IPV4_BYTES : GW_IPV6_BYTES;
    gw_ipsec_ip ip;
    ip.version = version;
    ip.header_bytes = least;
    ip.total_bytes = 0;
    ip.error = GW_IPSEC_TRUNCATED;
    if (bytes < least) {
        return ip;
    }
    const gw_u32 first = gw_load_be32(packet);
    gw_u32 valid = first >> 28 == 6;
    if (version == 4) {
        ip.header_bytes = first >> 22 & 0x3cu;
        ip.total_bytes = first & 0xffffu;
        valid = gw_ipsec_ipv4_valid(first);
    } else {
        /* Jumbograms (payload length 0) are not supported, because they do not fit into a
         * buffer. */
        ip.total_bytes = GW_IPV6_BYTES + gw_load_be16(packet + 4);
    }
    if (!valid) {
        ip.error = GW_IPSEC_MALFORMED;
    } else if (ip.total_bytes <= bytes) {
        ip.error = GW_IPSEC_OK;
    }
    return ip;
}

GW_LANE gw_u32 gw_ipsec_version_of(gw_u32 ether_type)
{
    return ether_type == GW_ETHER_TYPE_IPV4 ? 4 : (ether_type == GW_ETHER_TYPE_IPV6 ? 6 : 0);
}

GW_LANE void gw_ipsec_set_version(GW_GLOBAL gw_u8 *l3, gw_u32 version)
{
    gw_store_be16(l3 - 2, version == 4 ? GW_ETHER_TYPE_IPV4 : GW_ETHER_TYPE_IPV6);
}

/* Result of parsing a packet's IPv6 extension headers. For IPv4, it describes the end of the IPv4
 * header. Offsets are relative to the start of the parsed bytes. */
typedef struct gw_ipsec_extensions {
    gw_u32 protocol;        /* protocol after all extension headers */
    gw_u32 at;              /* offset of that protocol's header */
    gw_u32 next_header_at;  /* offset of the field that names that protocol */
    gw_u32 insert_protocol; /* protocol after the headers that routers read */
    gw_u32 insert_at;       /* its offset, where ESP and AH are inserted (RFC 4303, 3.1.1; RFC
                               4302, 3.1.1) */
    gw_u32 insert_next_header_at;
    gw_u32 fragment;       /* 1: the packet has a fragment header */
    gw_u32 later_fragment; /* 1: not the first fragment, so `at` is not the start of a header */
    gw_u32 segments_left;  /* 1: a routing header has segments left */
    gw_u32 error;          /* GW_IPSEC_OK, or the drop reason */
} gw_ipsec_extensions;

/* Returns the result for a packet without IPv6 extension headers. The header of `protocol` begins
 * at offset `at`. */
GW_LANE gw_ipsec_extensions gw_ipsec_no_extensions(gw_u32 protocol, gw_u32 at,
                                                   gw_u32 next_header_at)
{
    gw_ipsec_extensions extensions;
    extensions.protocol = protocol;
    extensions.at = at;
    extensions.next_header_at = next_header_at;
    extensions.insert_protocol = protocol;
    extensions.insert_at = at;
    extensions.insert_next_header_at = next_header_at;
    extensions.fragment = 0;
    extensions.later_fragment = 0;
    extensions.segments_left = 0;
    extensions.error = GW_IPSEC_OK;
    return extensions;
}

/* Parses the IPv6 extension headers of the packet at `packet`, which has `bytes` bytes. The first
 * header has the number `protocol` and begins at offset `at`. The field at offset next_header_at
 * contains its number. */
GW_LANE gw_ipsec_extensions gw_ipsec_walk(const GW_GLOBAL gw_u8 *packet, gw_u32 bytes, gw_u32 at,
                                          gw_u32 protocol, gw_u32 next_header_at)
{
    gw_ipsec_extensions extensions = gw_ipsec_no_extensions(protocol, at, next_header_at);
    for (gw_u32 i = 0; i <= GW_IPSEC_EXTENSIONS_MAX; i++) {
        const gw_u32 kind = extensions.protocol;
        if (extensions.later_fragment ||
            (kind != GW_PROTOCOL_HOP_BY_HOP && kind != GW_PROTOCOL_ROUTING &&
             kind != GW_PROTOCOL_DESTINATION && kind != GW_PROTOCOL_FRAGMENT)) {
            return extensions;
        }
        if (extensions.at + 8 > bytes) {
            break;
        }
        const gw_u32 is_fragment = kind == GW_PROTOCOL_FRAGMENT;
        const gw_u32 length = is_fragment ? 8 : 8 + 8 * (gw_u32)packet[extensions.at + 1];
        if (extensions.at + length > bytes) {
            break;
        }
        if (is_fragment) {
            extensions.fragment = 1;
            extensions.later_fragment = (gw_load_be16(packet + extensions.at + 2) & 0xfff8u) != 0;
        }
        if (kind == GW_PROTOCOL_ROUTING && packet[extensions.at + 3] != 0) {
            extensions.segments_left = 1;
        }
        extensions.next_header_at = extensions.at;
        extensions.protocol = packet[extensions.at];
        extensions.at += length;
        /* ESP is inserted before the destination options and protects them. If a routing header
         * follows, ESP is inserted after both headers, because each node on the route must read the
         * options. */
        if (kind != GW_PROTOCOL_DESTINATION) {
            extensions.insert_protocol = extensions.protocol;
            extensions.insert_at = extensions.at;
            extensions.insert_next_header_at = extensions.next_header_at;
        }
    }
    extensions.error = GW_IPSEC_MALFORMED;
    return extensions;
}

/* Parses the extension headers of an IPv6 packet. For IPv4, the result describes the end of the
 * IPv4 header. */
GW_LANE gw_ipsec_extensions gw_ipsec_walk_packet(const GW_GLOBAL gw_u8 *packet, gw_ipsec_ip ip)
{
    if (ip.version == 6) {
        return gw_ipsec_walk(packet, ip.total_bytes, GW_IPV6_BYTES, packet[6], 6);
    }
    const gw_u32 fragment = gw_load_be16(packet + 6);
    gw_ipsec_extensions extensions = gw_ipsec_no_extensions(packet[9], ip.header_bytes, 9);
    extensions.fragment = (fragment & 0x3fffu) != 0;
    extensions.later_fragment = (fragment & 0x1fffu) != 0;
    return extensions;
}

/* Returns the checksum of a packet after one of its 16-bit words changes from `before` to `after`
 * (RFC 1624, equation 3). */
GW_LANE gw_u32 gw_ipsec_checksum_after(gw_u32 checksum, gw_u32 before, gw_u32 after)
{
    return ~gw_ipsec_fold((~checksum & 0xffffu) + (~before & 0xffffu) + after) & 0xffffu;
}

/* Copies an L2 header of 14 or 18 bytes. Source and target must not overlap. All loads come before
 * all stores, so that a GPU waits for memory only once. */
GW_LANE void gw_ipsec_move_l2(GW_GLOBAL gw_u8 *to, const GW_GLOBAL gw_u8 *from, gw_u32 bytes)
{
    const gw_u64 front = gw_load_be64(from);
    const gw_u32 middle = gw_load_be32(from + 8);
    const gw_u32 back = gw_load_be16(from + 12);
    const gw_u32 tag = bytes > GW_ETHERNET_BYTES ? gw_load_be32(from + 14) : 0;
    gw_store_be64(to, front);
    gw_store_be32(to + 8, middle);
    gw_store_be16(to + 12, back);
    if (bytes > GW_ETHERNET_BYTES) {
        gw_store_be32(to + 14, tag);
    }
}

/* Moves the L2 header and the following headers towards the start of the buffer. `bytes` modulo 4
 * must be 2, as for an L2 header with IP headers. */
GW_LANE void gw_ipsec_move_forward(GW_GLOBAL gw_u8 *to, const GW_GLOBAL gw_u8 *from, gw_u32 bytes)
{
    for (gw_u32 i = 0; i + 4 <= bytes; i += 4) {
        gw_store_be32(to + i, gw_load_be32(from + i));
    }
    gw_store_be16(to + bytes - 2, gw_load_be16(from + bytes - 2));
}

/* Moves the L2 header and the following headers towards the end of the buffer. Copies the last
 * bytes first, because source and target may overlap. */
GW_LANE void gw_ipsec_move_back(GW_GLOBAL gw_u8 *to, const GW_GLOBAL gw_u8 *from, gw_u32 bytes)
{
    gw_store_be16(to + bytes - 2, gw_load_be16(from + bytes - 2));
    for (gw_u32 i = bytes - 2; i >= 4; i -= 4) {
        gw_store_be32(to + i - 4, gw_load_be32(from + i - 4));
    }
}

#endif
