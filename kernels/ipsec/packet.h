/* What both directions of ipsec share: outcomes, lengths, and how IP packets are read. */
#ifndef GODWIT_IPSEC_PACKET_H
#define GODWIT_IPSEC_PACKET_H

#include "image.h"
#include "suite.h"

#define GW_IPSEC_ENCRYPTED 0u
#define GW_IPSEC_DECRYPTED 1u
#define GW_IPSEC_NOT_IP    3u

#define GW_IPSEC_TRUNCATED       0u
#define GW_IPSEC_MALFORMED       1u
#define GW_IPSEC_NO_SA           3u
#define GW_IPSEC_NO_ROOM         4u
#define GW_IPSEC_AUTHENTICATION  5u
#define GW_IPSEC_PADDING         6u
#define GW_IPSEC_POLICY_MISMATCH 9u
#define GW_IPSEC_FRAGMENT        10u
#define GW_IPSEC_DUMMY           11u
#define GW_IPSEC_CONGESTION      12u

/* Says that nothing is wrong, where otherwise a drop reason is returned. */
#define GW_IPSEC_FINE 255u

#define GW_IPV4_BYTES       20u
#define GW_IPV6_BYTES       40u
#define GW_UDP_BYTES        8u
#define GW_TCP_BYTES        20u /* without options */
#define GW_ESP_HEADER_BYTES 8u  /* SPI, sequence number (RFC 4303, section 2) */
#define GW_ESP_TAIL_BYTES   2u  /* pad length, next header */

/* Protocol numbers, and those of IPv6's extension headers (RFC 8200, section 4). */
#define GW_PROTOCOL_HOP_BY_HOP  0u
#define GW_PROTOCOL_IPV4        4u
#define GW_PROTOCOL_IPV6        41u
#define GW_PROTOCOL_ROUTING     43u
#define GW_PROTOCOL_FRAGMENT    44u
#define GW_PROTOCOL_NONE        59u
#define GW_PROTOCOL_DESTINATION 60u

/* A packet with more extension headers than this is malformed. */
#define GW_IPSEC_EXTENSIONS_MAX 8u

/* The lengths of an IP packet, checked (RFC 791, section 3.1; RFC 8200, section 3). */
typedef struct gw_ipsec_ip {
    gw_u32 version;      /* 4 or 6 */
    gw_u32 header_bytes; /* IPv4: 20..60; IPv6: 40, extension headers come behind */
    gw_u32 total_bytes;  /* header_bytes..65535, and there */
    gw_u32 error;        /* GW_IPSEC_FINE, or the drop reason */
} gw_ipsec_ip;

/* `bytes`: how many there are from the header's first byte on. */
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
    if (version == 4) {
        ip.header_bytes = (packet[0] & 0x0fu) * 4;
        ip.total_bytes = gw_load_be16(packet + 2);
    } else {
        /* A jumbogram, which says 0, does not fit into a buffer. */
        ip.total_bytes = GW_IPV6_BYTES + gw_load_be16(packet + 4);
    }
    if (packet[0] >> 4 != version || ip.header_bytes < least || ip.total_bytes < ip.header_bytes) {
        ip.error = GW_IPSEC_MALFORMED;
    } else if (ip.total_bytes <= bytes) {
        ip.error = GW_IPSEC_FINE;
    }
    return ip;
}

/* Which IP an EtherType means; 0: none. */
GW_LANE gw_u32 gw_ipsec_version_of(gw_u32 ether_type)
{
    return ether_type == GW_ETHER_TYPE_IPV4 ? 4 : (ether_type == GW_ETHER_TYPE_IPV6 ? 6 : 0);
}

GW_LANE void gw_ipsec_set_version(GW_GLOBAL gw_u8 *l3, gw_u32 version)
{
    gw_store_be16(l3 - 2, version == 4 ? GW_ETHER_TYPE_IPV4 : GW_ETHER_TYPE_IPV6);
}

/* Where the extension headers of an IPv6 packet lead. IPv4 has none. Offsets count from the first
 * byte of what was asked about. */
typedef struct gw_ipsec_chain {
    gw_u32 protocol; /* of what comes behind all extension headers */
    gw_u32 at;       /* where that begins */
    gw_u32 named_at; /* the byte that says so */
    gw_u32
        place_protocol; /* the same for what comes behind those that routers read: ESP and AH go */
    gw_u32 place;       /*   there (RFC 4303, section 3.1.1; RFC 4302, section 3.1.1) */
    gw_u32 place_named_at;
    gw_u32 fragment; /* 1: there is a fragment header */
    gw_u32 hidden;   /* 1: not a first fragment, so what comes behind is not its beginning */
    gw_u32 routed;   /* 1: a routing header has segments left */
    gw_u32 error;    /* GW_IPSEC_FINE, or the drop reason */
} gw_ipsec_chain;

/* No extension headers: `protocol` begins at `at`. */
GW_LANE gw_ipsec_chain gw_ipsec_no_extensions(gw_u32 protocol, gw_u32 at, gw_u32 named_at)
{
    gw_ipsec_chain chain;
    chain.protocol = protocol;
    chain.at = at;
    chain.named_at = named_at;
    chain.place_protocol = protocol;
    chain.place = at;
    chain.place_named_at = named_at;
    chain.fragment = 0;
    chain.hidden = 0;
    chain.routed = 0;
    chain.error = GW_IPSEC_FINE;
    return chain;
}

/*
 * Goes through the extension headers from `at` on, where `protocol` begins; named_at: the byte that
 * says so. `bytes`: how many there are from `packet` on.
 */
GW_LANE gw_ipsec_chain gw_ipsec_follow(const GW_GLOBAL gw_u8 *packet, gw_u32 bytes, gw_u32 at,
                                       gw_u32 protocol, gw_u32 named_at)
{
    gw_ipsec_chain chain = gw_ipsec_no_extensions(protocol, at, named_at);
    for (gw_u32 i = 0; i <= GW_IPSEC_EXTENSIONS_MAX; i++) {
        const gw_u32 kind = chain.protocol;
        if (chain.hidden || (kind != GW_PROTOCOL_HOP_BY_HOP && kind != GW_PROTOCOL_ROUTING &&
                             kind != GW_PROTOCOL_DESTINATION && kind != GW_PROTOCOL_FRAGMENT)) {
            return chain;
        }
        if (chain.at + 8 > bytes) {
            break;
        }
        const gw_u32 is_fragment = kind == GW_PROTOCOL_FRAGMENT;
        const gw_u32 length = is_fragment ? 8 : 8 + 8 * (gw_u32)packet[chain.at + 1];
        if (chain.at + length > bytes) {
            break;
        }
        if (is_fragment) {
            chain.fragment = 1;
            chain.hidden = (gw_load_be16(packet + chain.at + 2) & 0xfff8u) != 0;
        }
        if (kind == GW_PROTOCOL_ROUTING && packet[chain.at + 3] != 0) {
            chain.routed = 1;
        }
        chain.named_at = chain.at;
        chain.protocol = packet[chain.at];
        chain.at += length;
        /* Options for the destination stay behind ESP, which protects them, unless a routing
         * header shows that they are for each of its stops. */
        if (kind != GW_PROTOCOL_DESTINATION) {
            chain.place_protocol = chain.protocol;
            chain.place = chain.at;
            chain.place_named_at = chain.named_at;
        }
    }
    chain.error = GW_IPSEC_MALFORMED;
    return chain;
}

/* The same for a packet; of IPv4, its header's end. */
GW_LANE gw_ipsec_chain gw_ipsec_extensions(const GW_GLOBAL gw_u8 *packet, gw_ipsec_ip ip)
{
    if (ip.version == 6) {
        return gw_ipsec_follow(packet, ip.total_bytes, GW_IPV6_BYTES, packet[6], 6);
    }
    const gw_u32 fragment = gw_load_be16(packet + 6);
    gw_ipsec_chain chain = gw_ipsec_no_extensions(packet[9], ip.header_bytes, 9);
    chain.fragment = (fragment & 0x3fffu) != 0;
    chain.hidden = (fragment & 0x1fffu) != 0;
    return chain;
}

/* Folds a sum of 16-bit words, of less than 2^32, to 16 bits (RFC 1071). */
GW_LANE gw_u32 gw_ipsec_fold(gw_u32 sum)
{
    sum = (sum & 0xffffu) + (sum >> 16);
    return (sum & 0xffffu) + (sum >> 16);
}

/* A checksum after a 16-bit word that it covers has changed (RFC 1624, equation 3). */
GW_LANE gw_u32 gw_ipsec_checksum_after(gw_u32 checksum, gw_u32 before, gw_u32 after)
{
    return ~gw_ipsec_fold((~checksum & 0xffffu) + (~before & 0xffffu) + after) & 0xffffu;
}

/*
 * Moves the L2 header, of 14 or 18 bytes, to where it belongs now; the places are further apart
 * than it is long. Loads come first: a device waits for them once.
 */
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

/* Moves L2 and the headers behind it towards the buffer's start. bytes % 4 == 2, as it is with L2
 * in front of headers that are multiples of 4. */
GW_LANE void gw_ipsec_move_forward(GW_GLOBAL gw_u8 *to, const GW_GLOBAL gw_u8 *from, gw_u32 bytes)
{
    for (gw_u32 i = 0; i + 4 <= bytes; i += 4) {
        gw_store_be32(to + i, gw_load_be32(from + i));
    }
    gw_store_be16(to + bytes - 2, gw_load_be16(from + bytes - 2));
}

/* The other way: the last comes first, so that nothing is written before it was read. */
GW_LANE void gw_ipsec_move_back(GW_GLOBAL gw_u8 *to, const GW_GLOBAL gw_u8 *from, gw_u32 bytes)
{
    gw_store_be16(to + bytes - 2, gw_load_be16(from + bytes - 2));
    for (gw_u32 i = bytes - 2; i >= 4; i -= 4) {
        gw_store_be32(to + i - 4, gw_load_be32(from + i - 4));
    }
}

#endif
