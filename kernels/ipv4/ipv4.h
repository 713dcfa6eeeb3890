/* godwit function ipv4
summary = "Forwards IPv4 packets by their longest matching prefix (DIR-24-8)."
spec    = "RFC 791, RFC 1624, RFC 1812 section 5; Gupta et al., INFOCOM 1998"
number  = 2
magic   = "IPv4"
reads   = 78
writes  = 30
variants = ["entries16", "entries32"]
[verdicts]
forward = {
    text = "A route was found; addresses, TTL and checksum are rewritten.",
    port = true, value = "index of the next hop",
}
local = {
    text = "The route delivers the packet to this machine.",
    value = "index of the next hop",
}
ttl_exceeded = "A route was found, but the TTL is 0 or 1; the packet is unchanged."
not_ipv4 = "The frame does not carry IPv4, or has two VLAN tags."
no_route = "No route covers the destination, or its route is unreachable; the packet is unchanged."
unresolved = {
    text = "The Ethernet address of the next station is unknown; the packet is unchanged.",
    port = true, value = "index of the next hop",
}
too_big = {
    text = "The packet exceeds the MTU of the next hop and has DF set; it is unchanged.",
    port = true, value = "MTU of the next hop",
}
fragment = {
    text = "As `forward`, but the packet exceeds the MTU of the next hop and may be fragmented.",
    port = true, value = "MTU of the next hop",
}
[drops]
truncated = "The frame ends within a header, or before the length that the header states."
malformed = "The version, header length or total length is inconsistent."
checksum = "The header checksum is wrong."
blackhole = "The route is a blackhole."
martian = "The source or destination is in 0/8, in 127/8, or at or above 224.0.0.0."
reverse_path = "The reverse-path filter found no route back to the source (RFC 3704)."
group_frame = """\
    The frame is addressed to a group of stations, such as broadcast, but its packet is not (RFC \
    1812 section 5.3.4)."""
[constants]
group_narrow = """\
    u16 = 0x8000: Flag in a 2-byte entry of tbl24: the other bits are the number of a group."""
group_wide = """\
    u32 = 0x80000000: Flag in a 4-byte entry of tbl24: the other bits are the number of a group."""
none_narrow = """\
    u16 = 0x7fff: 2-byte entry without a route. Indices of next hops in 2-byte entries are below \
    it."""
none = "u32 = 0x7fffffff: 4-byte entry without a route, and result of a lookup without a route."
hop_local = "u8 = 1: Flag of a next hop: the address belongs to this machine."
hop_blackhole = "u8 = 2: Flag of a next hop: the route discards packets."
hop_unreachable = "u8 = 4: Flag of a next hop: treated like a missing route."
hop_unresolved = "u8 = 8: Flag of a next hop: the MAC address is unknown."
[structs.image]
text = "Header of the table image, drawn in ipv4.h"
fields.magic = "u32: GW_IPV4_MAGIC"
fields.entry_bytes = "u32: 2 for variant 0, 4 for variant 1"
fields.next_hops = "u32: number of next hops"
fields.groups = "u32: number of groups in tbl8, 256 entries each"
fields.next_hops_offset = "u64: offset of the next hops"
fields.tbl24_offset = "u64: offset of tbl24, whose index is the upper 24 bits of an address"
fields.tbl8_offset = "u64: offset of tbl8, the groups"
fields.bytes = "u64: size of the image"
[structs.next_hop]
text = """\
    A next hop in two words, with fields from the top bits down and MAC addresses in wire order. \
    One word holds everything that changes together."""
default = true
fields.to = "u64: 48 bits destination address, 8 bits port, 8 bits flags (0: forward)"
fields.from = """\
    u64: 48 bits source address, 16 bits MTU, the maximum length of an IP packet in bytes"""
*/
/*
 * ipv4: forwards by the longest matching prefix.
 *
 * Processes Ethernet II frames, untagged or with one 802.1Q tag. The rules are checked in order.
 * The first rule that applies decides:
 *
 *    1  incomplete Ethernet header or tag                       drop truncated
 *    2  EtherType is not 0x0800                                 not_ipv4
 *    3  fewer than 20 bytes after it                            drop truncated
 *    4  version is not 4, IHL < 5, total length < 4 * IHL       drop malformed
 *    5  total length exceeds the frame                          drop truncated
 *    6  wrong header checksum                                   drop checksum
 *    7  source or destination in 0/8 or 127/8, or not below
 *       224.0.0.0                                               drop martian
 *    8  frame to a group MAC address (RFC 1812 section 5.3.4)   drop group_frame
 *    9  no route, or an unreachable next hop                    no_route
 *   10  next hop is local                                       local
 *   11  next hop is a blackhole                                 drop blackhole
 *   12  TTL <= 1                                                ttl_exceeded
 *   13  the MAC address of the next hop is unknown              unresolved
 *   14  total length exceeds the MTU, and DF is set             too_big
 *   15  total length exceeds the MTU                            fragment
 *   16  otherwise                                               forward
 *
 * Only forward and fragment change the frame, both in the same way. The TTL is checked after local,
 * because a packet for the router itself is not forwarded (RFC 1812 section 5.3.1).
 *
 * The kernel reads 34 bytes and writes 16. It makes 2 dependent loads, from tbl24 and from the next
 * hop, or 3 for a prefix longer than /24. The load from tbl24 misses every cache.
 */
#ifndef GODWIT_IPV4_H
#define GODWIT_IPV4_H

/*
 * Table image of ipv4 in the DIR-24-8 layout (Gupta, Lin, McKeown, Routing Lookups in Hardware at
 * Memory Access Speeds, INFOCOM 1998).
 *
 *   0           next_hops_offset   tbl24_offset           tbl8_offset         bytes
 *   | header    | next_hops * 16   | 2^24 * entry_bytes   | groups * 256 *    |
 *   |           |                  |                      |   entry_bytes     |
 *
 * All offsets count from the first byte of the image and are multiples of 64. An entry has
 * entry_bytes bytes, 2 or 4. Its top bit is 0x8000 or 0x80000000:
 *
 *   tbl24[address >> 8]  top bit set    the other bits are the number of a group in tbl8
 *                        otherwise      the index of a next hop
 *   tbl8[group * 256 + (address & 255)] the index of a next hop; the top bit is never set
 *
 * The value with all bits except the top one set, 0x7fff or 0x7fffffff, means no route. Entries of
 * 2 bytes thus allow 32767 next hops and 32768 groups.
 *
 * Entries of tbl24 and the words of a next hop change while lookups run. Each change is one store,
 * and each is read by one load (GW_ONCE), so a lookup sees either the old or the new value. A group
 * does not change while an entry of tbl24 refers to it, or while packets are in flight that may
 * have read such an entry. The index of a next hop is reused under the same rule.
 */

#define GW_IPV4_HEADER_BYTES 20u
#define GW_IPV4_SOUND        255u /* check result without a reason to drop */

/* Returns the next hop index of an IPv4 destination, or GW_IPV4_NONE if no route matches. */
GW_LANE gw_u32 gw_ipv4_lookup(const GW_GLOBAL gw_u8 *image, gw_u32 variant, gw_u32 address)
{
    const GW_GLOBAL gw_ipv4_image *header = (const GW_GLOBAL gw_ipv4_image *)image;
    if (variant == GW_IPV4_VARIANT_ENTRIES16) {
        const GW_GLOBAL gw_u16 *tbl24 = (const GW_GLOBAL gw_u16 *)(image + header->tbl24_offset);
        GW_EXPENSIVE(&tbl24[address >> 8]);
        gw_u32 entry = GW_ONCE(gw_u16, &tbl24[address >> 8]);
        if (entry & 0x8000u) {
            const GW_GLOBAL gw_u16 *tbl8 = (const GW_GLOBAL gw_u16 *)(image + header->tbl8_offset);
            const gw_u32 index = (entry & 0x7fffu) << 8 | (address & 0xff);
            GW_EXPENSIVE(&tbl8[index]);
            entry = tbl8[index];
        }
        /* Map 0x7fff (no route) to 0x7fffffff without a branch, which would be mispredicted for
         * random addresses. */
        return entry | ((entry + 1) >> 15) * 0x7fff8000u;
    }
    const GW_GLOBAL gw_u32 *tbl24 = (const GW_GLOBAL gw_u32 *)(image + header->tbl24_offset);
    GW_EXPENSIVE(&tbl24[address >> 8]);
    gw_u32 entry = GW_ONCE(gw_u32, &tbl24[address >> 8]);
    if (entry & 0x80000000u) {
        const GW_GLOBAL gw_u32 *tbl8 = (const GW_GLOBAL gw_u32 *)(image + header->tbl8_offset);
        const gw_u64 index = (gw_u64)(entry & 0x7fffffffu) << 8 | (address & 0xff);
        GW_EXPENSIVE(&tbl8[index]);
        entry = tbl8[index];
    }
    return entry;
}

/* Prefetches the tbl24 entry that an IPv4 address lookup reads first. */
GW_LANE void gw_ipv4_fetch(const GW_GLOBAL gw_u8 *image, gw_u32 variant, gw_u32 address)
{
    const GW_GLOBAL gw_ipv4_image *header = (const GW_GLOBAL gw_ipv4_image *)image;
    const gw_u32 shift = variant == GW_IPV4_VARIANT_ENTRIES16 ? 1 : 2;
    GW_FETCH(image + header->tbl24_offset + ((gw_u64)(address >> 8) << shift));
}

/* Checks the version, the lengths and the checksum of an IPv4 header. Returns the drop reason, or
 * GW_IPV4_SOUND. */
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

/*
 * Returns whether a router must not forward a packet with this source or destination address (RFC
 * 1812 section 5.3.7). Such addresses include multicast and broadcast addresses (sections 5.2.1 and
 * 5.3.5.1). A subtraction makes the addresses of 0/8 the largest numbers. A single comparison then
 * covers 0/8 and all addresses from 224.0.0.0 on.
 */
GW_LANE gw_u32 gw_ipv4_martian(gw_u32 address)
{
    return (gw_u32)(address - 0x01000000u >= 0xdf000000u || address >> 24 == 127);
}

/* Checks the headers of any frame. Returns the offset of the IPv4 header, or 0 if a check has
 * already decided the packet's outcome. */
GW_RARE gw_u32 gw_ipv4_begin_any(const GW_GLOBAL gw_u8 *frame, gw_u32 length, gw_outcome *outcome)
{
    const gw_l3 l3 = gw_l3_parse(frame, length);
    if (l3.offset == 0) {
        gw_drop(outcome, GW_IPV4_TRUNCATED);
        return 0;
    }
    if (l3.ether_type != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_IPV4_NOT_IPV4, 0, 0);
        return 0;
    }
    const gw_u32 available = length - l3.offset;
    if (available < GW_IPV4_HEADER_BYTES) {
        gw_drop(outcome, GW_IPV4_TRUNCATED);
        return 0;
    }
    const GW_GLOBAL gw_u8 *ip = frame + l3.offset;
    const gw_u32 fault = gw_ipv4_check_any(ip, available);
    if (fault != GW_IPV4_SOUND) {
        gw_drop(outcome, fault);
        return 0;
    }
    if (gw_ipv4_martian(gw_load_be32(ip + 12)) || gw_ipv4_martian(gw_load_be32(ip + 16))) {
        gw_drop(outcome, GW_IPV4_MARTIAN);
        return 0;
    }
    if (gw_is_group_frame(frame)) {
        gw_drop(outcome, GW_IPV4_GROUP_FRAME);
        return 0;
    }
    return l3.offset;
}

/*
 * Checks the headers before the lookup. A fast path handles untagged frames with a valid header and
 * without options.
 *
 * The fast path adds the header as 32-bit words. The header checksum is correct if and only if this
 * sum is divisible by 0xffff (RFC 1071 section 2 (C)). The sum is never 0.
 */
GW_LANE void gw_ipv4_begin(const gw_lane *lane, const gw_descriptor *descriptor,
                           gw_half *first_half, gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 length = descriptor->length;
    const gw_u32 min_bytes = GW_ETHERNET_BYTES + GW_IPV4_HEADER_BYTES;
    first_half->frame = frame;
    if (length >= min_bytes && gw_load_be32(frame + 12) >> 8 == 0x080045u) {
        const gw_u32 first = gw_load_be32(frame + 14);
        const gw_u32 source = gw_load_be32(frame + 26);
        const gw_u32 destination = gw_load_be32(frame + 30);
        const gw_u64 sum = (gw_u64)first + gw_load_be32(frame + 18) + gw_load_be32(frame + 22) +
                           source + destination;
        if ((first & 0xffff) - GW_IPV4_HEADER_BYTES <= length - min_bytes && sum % 0xffff == 0 &&
            !gw_ipv4_martian(source) && !gw_ipv4_martian(destination) &&
            !gw_is_group_frame(frame)) {
            first_half->offset = GW_ETHERNET_BYTES;
            first_half->value = destination;
            return;
        }
    }
    first_half->offset = gw_ipv4_begin_any(frame, length, outcome);
    if (first_half->offset != 0) {
        first_half->value = gw_load_be32(frame + first_half->offset + 16);
    }
}

/* Sets the outcome of a packet whose next hop has special flags, such as local or blackhole. */
GW_RARE void gw_ipv4_special(gw_u32 flags, gw_u32 port, gw_u32 index, gw_u32 ttl,
                             gw_outcome *outcome)
{
    if (flags & GW_IPV4_HOP_UNREACHABLE) {
        gw_verdict(outcome, GW_IPV4_NO_ROUTE, 0, 0);
    } else if (flags & GW_IPV4_HOP_LOCAL) {
        gw_verdict(outcome, GW_IPV4_LOCAL, 0, index);
    } else if (flags & GW_IPV4_HOP_BLACKHOLE) {
        gw_drop(outcome, GW_IPV4_BLACKHOLE);
    } else if (ttl <= 1) {
        gw_verdict(outcome, GW_IPV4_TTL_EXCEEDED, 0, 0);
    } else {
        gw_verdict(outcome, GW_IPV4_UNRESOLVED, port, index);
    }
}

/*
 * Looks up the destination, sets the outcome, and rewrites the frame.
 *
 * Packets without a route take the same path as other packets, because a branch would be
 * mispredicted for random addresses. Such a packet reads next hop 0, but keeps the old bytes of the
 * frame. This read is valid even if there are no next hops, because the memory contains other parts
 * of the table.
 */
GW_LANE void gw_ipv4_end(const gw_lane *lane, const gw_half *first_half, gw_outcome *outcome)
{
    if (first_half->offset == 0) {
        return;
    }
    const GW_GLOBAL gw_ipv4_image *header = (const GW_GLOBAL gw_ipv4_image *)lane->image;
    GW_GLOBAL gw_u8 *frame = first_half->frame;
    GW_GLOBAL gw_u8 *ip = frame + first_half->offset;
    const gw_u32 index = gw_ipv4_lookup(lane->image, lane->variant, first_half->value);
    const gw_u32 routed = (gw_u32)(index == GW_IPV4_NONE) - 1; /* all ones, or 0 */
    const GW_GLOBAL gw_ipv4_next_hop *next_hop =
        (const GW_GLOBAL gw_ipv4_next_hop *)(lane->image + header->next_hops_offset) +
        (index & routed);
    const gw_u64 to = GW_ONCE(gw_u64, &next_hop->to);
    const gw_u64 from = GW_ONCE(gw_u64, &next_hop->from);
    const gw_u32 flags = (gw_u32)to & 0xff & routed;
    const gw_u32 port = (gw_u32)to >> 8 & 0xff & routed;
    const gw_u32 word = gw_load_be32(ip + 8); /* TTL, protocol, header checksum */
    if (flags != 0) {
        gw_ipv4_special(flags, port, index, word >> 24, outcome);
        return;
    }
    if (word >> 25 == 0) {
        gw_verdict(outcome, routed ? GW_IPV4_TTL_EXCEEDED : GW_IPV4_NO_ROUTE, 0, 0);
        return;
    }
    const gw_u32 mtu = (gw_u32)from & 0xffff;
    gw_u32 verdict = ~routed & GW_IPV4_NO_ROUTE;
    gw_u32 value = index & routed;
    if (gw_load_be16(ip + 2) > (mtu | (~routed & 0xffff))) {
        if (gw_load_be16(ip + 6) & 0x4000u) {
            gw_verdict(outcome, GW_IPV4_TOO_BIG, port, mtu);
            return;
        }
        verdict = GW_IPV4_FRAGMENT;
        value = mtu;
    }
    /* Update the header checksum for a TTL that is decremented by 1 (RFC 1624 section 3, equation
     * 3). The checksum grows by 0x0100, plus an end-around carry if it is 0xfeff or more. The
     * result is never 0xffff. */
    const gw_u32 carry = (gw_u32)((word & 0xffff) >= 0xfeffu);
    const gw_u64 front = gw_load_be64(frame);
    const gw_u32 back = gw_load_be32(frame + 8);
    const gw_u64 routed_64 = (gw_u64)routed << 32 | routed;
    gw_store_be32(ip + 8, word - ((0x00ffff00u + carry * 0xffffu) & routed));
    gw_store_be64(frame, front ^ ((front ^ ((to & ~(gw_u64)0xffff) | from >> 48)) & routed_64));
    gw_store_be32(frame + 8, back ^ ((back ^ (gw_u32)(from >> 16)) & routed));
    gw_verdict(outcome, verdict, port, value);
}

GW_CALLED void gw_ipv4_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    gw_half first_half;
    gw_ipv4_begin(lane, descriptor, &first_half, outcome);
    gw_ipv4_end(lane, &first_half, outcome);
}

#endif
