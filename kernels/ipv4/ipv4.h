/*
 * ipv4: forwards by the longest matching prefix.
 *
 * For Ethernet II frames, untagged or with one 802.1Q tag. Each line below is
 * decided before the next one; the first that applies settles the packet:
 *
 *    1  no whole Ethernet header, or tag                        drop truncated
 *    2  EtherType is not 0x0800                                 not_ipv4
 *    3  fewer than 20 bytes behind it                           drop truncated
 *    4  version is not 4, IHL < 5, total length < 4 * IHL       drop malformed
 *    5  total length exceeds the frame                          drop truncated
 *    6  header checksum                                         drop checksum
 *    7  source or destination in 0/8, 127/8 or from 224.0.0.0    drop martian
 *    8  no route                                                drop no_route
 *    9  next hop is local                                       local
 *   10  next hop is a blackhole                                 drop blackhole
 *   11  TTL <= 1                                                ttl_exceeded
 *   12  otherwise                                               forward
 *
 * Only forward changes the frame. TTL comes after local: a packet for the router
 * itself is not being forwarded (RFC 1812 section 5.3.1).
 *
 * Reads    Ethernet header, tag, IPv4 header with options
 * Writes   forward: Ethernet addresses, TTL, header checksum
 * Next     forward (0), port and value = the next hop's port and index;
 *          local (1), value = the next hop's index; ttl_exceeded (2); not_ipv4 (3)
 * Drops    truncated (0), malformed (1), checksum (2), no_route (3), blackhole (4), martian (5)
 * Tables   image.h; variant 0: 2-byte entries, variant 1: 4-byte entries
 * Cost     34 bytes read, 16 written; 2 dependent loads (tbl24, next hop), 3 under a
 *          prefix longer than /24; one of them misses every cache: tbl24
 * Spec     RFC 791 section 3.1; RFC 1812 sections 5.2.2, 5.3.1, 5.3.5.1, 5.3.7; RFC 1624 section 3
 */
#ifndef GODWIT_IPV4_H
#define GODWIT_IPV4_H

#include "image.h"

#define GW_IPV4_FORWARD      0u
#define GW_IPV4_TO_LOCAL     1u
#define GW_IPV4_TTL_EXCEEDED 2u
#define GW_IPV4_NOT_IPV4     3u

#define GW_IPV4_TRUNCATED  0u
#define GW_IPV4_MALFORMED  1u
#define GW_IPV4_CHECKSUM   2u
#define GW_IPV4_NO_ROUTE   3u
#define GW_IPV4_BLACKHOLED 4u
#define GW_IPV4_MARTIAN    5u

#define GW_IPV4_VARIANT_NARROW 0u
#define GW_IPV4_VARIANT_WIDE   1u

#define GW_IPV4_HEADER_BYTES 20u
#define GW_IPV4_NONE         0x7fffffffu /* what a lookup says where there is no route */
#define GW_IPV4_SOUND        255u        /* what a check says where there is no reason to drop */

/* The next hop's index for a destination, or GW_IPV4_NONE. */
GW_LANE gw_u32 gw_ipv4_lookup(const GW_GLOBAL gw_u8 *image, gw_u32 variant, gw_u32 address)
{
    const GW_GLOBAL gw_ipv4_image *header = (const GW_GLOBAL gw_ipv4_image *)image;
    if (variant == GW_IPV4_VARIANT_NARROW) {
        const GW_GLOBAL gw_u16 *tbl24 = (const GW_GLOBAL gw_u16 *)(image + header->tbl24_offset);
        GW_EXPENSIVE(&tbl24[address >> 8]);
        gw_u32 entry = tbl24[address >> 8];
        if (entry & 0x8000u) {
            const GW_GLOBAL gw_u16 *tbl8 = (const GW_GLOBAL gw_u16 *)(image + header->tbl8_offset);
            const gw_u32 index = (entry & 0x7fffu) << 8 | (address & 0xff);
            GW_EXPENSIVE(&tbl8[index]);
            entry = tbl8[index];
        }
        /* 0x7fff becomes 0x7fffffff, without a branch that random addresses mispredict. */
        return entry | ((entry + 1) >> 15) * 0x7fff8000u;
    }
    const GW_GLOBAL gw_u32 *tbl24 = (const GW_GLOBAL gw_u32 *)(image + header->tbl24_offset);
    GW_EXPENSIVE(&tbl24[address >> 8]);
    gw_u32 entry = tbl24[address >> 8];
    if (entry & 0x80000000u) {
        const GW_GLOBAL gw_u32 *tbl8 = (const GW_GLOBAL gw_u32 *)(image + header->tbl8_offset);
        const gw_u64 index = (gw_u64)(entry & 0x7fffffffu) << 8 | (address & 0xff);
        GW_EXPENSIVE(&tbl8[index]);
        entry = tbl8[index];
    }
    return entry;
}

/* Fetches the entry of tbl24 that a lookup of the address begins with. */
GW_LANE void gw_ipv4_fetch(const GW_GLOBAL gw_u8 *image, gw_u32 variant, gw_u32 address)
{
    const GW_GLOBAL gw_ipv4_image *header = (const GW_GLOBAL gw_ipv4_image *)image;
    const gw_u32 shift = variant == GW_IPV4_VARIANT_NARROW ? 1 : 2;
    GW_FETCH(image + header->tbl24_offset + ((gw_u64)(address >> 8) << shift));
}

/* Lines 4 to 6 for any header: the drop reason, or GW_IPV4_SOUND. */
GW_RARE gw_u32 gw_ipv4_check_any(const GW_GLOBAL gw_u8 *ip, gw_u32 available)
{
    const gw_u32 first = gw_load_be32(ip);
    const gw_u32 header_bytes = (first >> 24 & 15) * 4;
    const gw_u32 total_length = first & 0xffff;
    if (first >> 28 != 4 || header_bytes < GW_IPV4_HEADER_BYTES || total_length < header_bytes) {
        return GW_IPV4_MALFORMED;
    }
    if (total_length > available) {
        return GW_IPV4_TRUNCATED;
    }
    return gw_ones_sum(ip, header_bytes) == 0xffff ? GW_IPV4_SOUND : GW_IPV4_CHECKSUM;
}

/* The same, quicker for a header without options that is not at fault. */
GW_LANE gw_u32 gw_ipv4_check(const GW_GLOBAL gw_u8 *ip, gw_u32 available)
{
    const gw_u32 first = gw_load_be32(ip); /* version, IHL, type of service, total length */
    const gw_u32 total_length = first & 0xffff;
    if (first >> 24 != 0x45 || total_length < GW_IPV4_HEADER_BYTES || total_length > available) {
        return gw_ipv4_check_any(ip, available);
    }
    return gw_ones_sum(ip, GW_IPV4_HEADER_BYTES) == 0xffff ? GW_IPV4_SOUND : GW_IPV4_CHECKSUM;
}

/*
 * RFC 1812 section 5.3.7: addresses that no packet that is forwarded has; groups
 * and broadcasts are none of this table's (sections 5.2.1, 5.3.5.1). Without
 * branches: 0, and 224 and more, are what the subtraction takes beyond 222.
 */
GW_LANE gw_u32 gw_ipv4_martian(gw_u32 source, gw_u32 destination)
{
    const gw_u32 from = source >> 24;
    const gw_u32 to = destination >> 24;
    return (gw_u32)(from - 1 > 222) | (gw_u32)(from == 127) | (gw_u32)(to - 1 > 222) |
           (gw_u32)(to == 127);
}

/* Takes one hop from the TTL, and from the checksum by RFC 1624 section 3, equation 3. */
GW_LANE void gw_ipv4_decrement_ttl(GW_GLOBAL gw_u8 *ip)
{
    const gw_u32 word = gw_load_be32(ip + 8); /* TTL, protocol, header checksum */
    const gw_u32 before = word >> 16;
    const gw_u32 after = before - 0x100;
    gw_u32 sum = (~word & 0xffff) + (~before & 0xffff) + after;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    gw_store_be32(ip + 8, after << 16 | (~sum & 0xffff));
}

GW_LANE void gw_ipv4_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipv4_image *header = (const GW_GLOBAL gw_ipv4_image *)lane->image;
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 length = descriptor->length;
    const gw_l3 l3 = gw_l3_parse(frame, length);
    if (l3.offset == 0) {
        gw_drop(outcome, GW_IPV4_TRUNCATED);
        return;
    }
    if (l3.ether_type != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_IPV4_NOT_IPV4, 0, 0);
        return;
    }
    const gw_u32 available = length - l3.offset;
    if (available < GW_IPV4_HEADER_BYTES) {
        gw_drop(outcome, GW_IPV4_TRUNCATED);
        return;
    }
    GW_GLOBAL gw_u8 *ip = frame + l3.offset;
    const gw_u32 fault = gw_ipv4_check(ip, available);
    if (fault != GW_IPV4_SOUND) {
        gw_drop(outcome, fault);
        return;
    }
    const gw_u32 destination = gw_load_be32(ip + 16);
    if (gw_ipv4_martian(gw_load_be32(ip + 12), destination)) {
        gw_drop(outcome, GW_IPV4_MARTIAN);
        return;
    }
    const gw_u32 index = gw_ipv4_lookup(lane->image, lane->variant, destination);
    if (index == GW_IPV4_NONE) {
        gw_drop(outcome, GW_IPV4_NO_ROUTE);
        return;
    }
    const GW_GLOBAL gw_u8 *macs =
        lane->image + header->next_hops_offset + (gw_u64)index * sizeof(gw_ipv4_next_hop);
    const GW_GLOBAL gw_ipv4_next_hop *next_hop = (const GW_GLOBAL gw_ipv4_next_hop *)macs;
    if (next_hop->flags != 0) {
        if (next_hop->flags & GW_IPV4_LOCAL) {
            gw_verdict(outcome, GW_IPV4_TO_LOCAL, 0, index);
        } else {
            gw_drop(outcome, GW_IPV4_BLACKHOLED);
        }
        return;
    }
    if (ip[8] <= 1) {
        gw_verdict(outcome, GW_IPV4_TTL_EXCEEDED, 0, 0);
        return;
    }
    gw_ipv4_decrement_ttl(ip);
    gw_store_be64(frame, gw_load_be64(macs));
    gw_store_be32(frame + 8, gw_load_be32(macs + 8));
    gw_verdict(outcome, GW_IPV4_FORWARD, next_hop->port, index);
}

/* Finds the destination, if it is where it should be, and fetches its tbl24 entry. */
GW_LANE void gw_ipv4_touch(const gw_lane *lane, const gw_descriptor *descriptor)
{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_l3 l3 = gw_l3_parse(frame, descriptor->length);
    if (l3.offset == 0 || l3.offset + GW_IPV4_HEADER_BYTES > descriptor->length) {
        return;
    }
    gw_ipv4_fetch(lane->image, lane->variant, gw_load_be32(frame + l3.offset + 16));
}

/* Nothing to prepare in scratch memory. */
GW_GROUP void gw_ipv4_group(const GW_GLOBAL gw_u8 *image, GW_LOCAL gw_u8 *scratch)
{
    (void)image;
    (void)scratch;
}

#endif
