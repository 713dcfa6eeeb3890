/* godwit function ipv6
summary = """\
    Forwards IPv6 packets by their longest matching prefix (a trie, or hash tables by length)."""
spec    = """\
    RFC 8200, RFC 4291, RFC 4007 section 9, RFC 9673 section 5.2; Waldvogel et al., SIGCOMM 1997"""
number  = 5
magic   = "IPv6"
reads   = 122
writes  = 26
variants = ["trie", "hash"]
[verdicts]
forward = {
    text = "A route was found; Ethernet addresses and hop limit are rewritten.",
    port = true, value = "index of the next hop",
}
local = {
    text = "The route delivers the packet to this machine.",
    value = "index of the next hop",
}
hop_limit_exceeded = "A route was found, but the hop limit is 0 or 1; the packet is unchanged."
not_ipv6 = "The frame does not carry IPv6, or has two VLAN tags."
no_route = "No route covers the destination, or its route is unreachable; the packet is unchanged."
unresolved = {
    text = "The Ethernet address of the next station is unknown; the packet is unchanged.",
    port = true, value = "index of the next hop",
}
too_big = {
    text = "The packet exceeds the MTU of the next hop; it is unchanged.",
    port = true, value = "MTU of the next hop",
}
link_local = """\
    The destination is a link-local unicast or multicast address; the packet is unchanged."""
beyond_scope = "A route was found, but the source is link-local; the packet is unchanged."
parameter_problem = {
    text = "A hop-by-hop option is unknown and requires an ICMP error; the packet is unchanged.",
    value = "offset of the option from the IPv6 header",
}
[drops]
truncated = "The frame ends within a header, or before the length that the header states."
malformed = "The version is not 6, or a hop-by-hop option or its header is too long."
option = "A hop-by-hop option is unknown and requires that the packet is dropped."
blackhole = "The route is a blackhole."
martian = """\
    The source or destination is not valid on a link, or the destination is multicast beyond the \
    link."""
reverse_path = "The reverse-path filter found no route back to the source (RFC 3704)."
group_frame = """\
    The frame is addressed to a group of stations, such as broadcast, but its packet is not (as \
    RFC 1812 section 5.3.4)."""
[constants]
trie = "u32 = 0: Form of the table: a multibit trie."
hash = "u32 = 1: Form of the table: hash tables, searched by prefix length."
leaf = "u32 = 0: Tag of an entry that is the index of a next hop."
table = """\
    u32 = 0x40000000: Tag of an entry that refers to a bucket (trie) or to a hash table (hash)."""
node = "u32 = 0x80000000: Tag of an entry that refers to a node of the trie."
low = """\
    u32 = 0xc0000000: Tag of an entry that refers to the entry for the lower half of the address."""
lines_max = "usize = 0x800000: Number of lines that an entry can refer to."
line_bytes = "usize = 64: Size of a line in bytes."
keys = "usize = 5: Number of keys in a bucket."
ways = "usize = 3: Number of keys in a line of a hash table."
probes = "usize = 16: Maximum number of lines for the keys of one hash value."
none = "u32 = 0x3fffffff: Entry without a route, and result of a lookup without a route."
hop_local = "u8 = 1: Flag of a next hop: the address belongs to this machine."
hop_blackhole = "u8 = 2: Flag of a next hop: the route discards packets."
hop_unreachable = "u8 = 4: Flag of a next hop: treated like a missing route."
hop_unresolved = "u8 = 8: Flag of a next hop: the MAC address is unknown."
[structs.image]
text = "Header of the table image, drawn in lookup.h"
fields.magic = "u32: GW_IPV6_MAGIC"
fields.form = "u32: GW_IPV6_TRIE or GW_IPV6_HASH, equal to the variant"
fields.next_hops = "u32: capacity for next hops"
fields.root_shift = "u32: the root has 2^(64 - root_shift) entries"
fields.next_hops_offset = "u64: offset of the next hops"
fields.root_offset = "u64: offset of the root"
fields.lines_offset = "u64: offset of the lines"
fields.bytes = "u64: size of the image"
[structs.bucket]
text = """\
    Bucket of the trie: intervals of the upper or the lower half of an address. Value i applies \
    from key i - 1 up to but not including key i. Unused keys are all ones and repeat the value \
    before them"""
fields.keys = "u64[5]: keys in ascending order"
fields.values = "u32[6]: values"
[structs.hash]
text = "Header of a hash table of prefixes. 2^(64 - shift) lines of keys follow"
default = true
fields.rope = "u64: prefix lengths to try, one byte each, the first in the lowest byte"
fields.seed = "u64: seed of the hash"
fields.value = "u32: entry that is used if no prefix is found"
fields.shift = "u32: 32 to 63"
fields.pad = "u32[10]: 0"
[structs.hash_line]
text = "Line of a hash table, with up to three prefixes"
default = true
fields.keys = "u64[3]: prefixes; bits beyond their lengths are 0"
fields.ropes = "u64[3]: ropes of the prefixes"
fields.values = "u32[3]: entries of the prefixes"
fields.lengths = "u8[3]: prefix lengths, 1 to 64; 0: no key"
fields.more = "u8: 1: a key of this line may be in the next line"
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
 * ipv6: forwards by the longest matching prefix.
 *
 * Processes Ethernet II frames, untagged or with one 802.1Q tag. The rules are checked in order.
 * The first rule that applies decides:
 *
 *    1  incomplete Ethernet header or tag                       drop truncated
 *    2  EtherType is not 0x86dd                                 not_ipv6
 *    3  fewer than 40 bytes after it                            drop truncated
 *    4  version is not 6                                        drop malformed
 *    5  40 + payload length exceeds the frame                   drop truncated
 *    6  source or destination is not valid on a wire, or is
 *       not covered by unicast routes (gw_ipv6_scope)           drop martian
 *    7  destination of link-local scope, unicast or multicast   link_local
 *    8  frame to a group MAC address                            drop group_frame
 *    9  hop-by-hop options: header longer than the payload, or
 *       an option longer than the header                        drop malformed
 *       an unknown option of type 01......                      drop option
 *       an unknown option of type 1.......                      parameter_problem
 *   10  no route, or an unreachable next hop                    no_route
 *   11  next hop is local                                       local
 *   12  next hop is a blackhole                                 drop blackhole
 *   13  source of link-local scope                              beyond_scope
 *   14  hop limit <= 1                                          hop_limit_exceeded
 *   15  the MAC address of the next hop is unknown              unresolved
 *   16  40 + payload length exceeds the MTU                     too_big
 *   17  otherwise                                               forward
 *
 * Only forward changes the frame. A packet for the router itself is not forwarded, so rules 13 and
 * 14 do not apply to it (RFC 8200 section 3, RFC 4291 section 2.5.6).
 *
 * Hop-by-hop options are the only extension header that a router processes (RFC 8200 section 4).
 * The kernel checks the options that begin in the first GW_IPV6_OPTION_BYTES of the header. It
 * ignores the others, because a router may limit the options that it processes (RFC 9673
 * section 5.2).
 *
 * The kernel reads 54 bytes and writes 13. A trie takes 3 to 6 dependent loads, two of which miss
 * every cache. A hash table takes 3, and one more for each prefix length that it tries (one to
 * five).
 */
#ifndef GODWIT_IPV6_H
#define GODWIT_IPV6_H

#include "lookup.h"

#define GW_IPV6_HEADER_BYTES 40u
#define GW_IPV6_OPTION_BYTES 64u

/* Flag in gw_half.offset. It marks a source address with link-local scope. */
#define GW_IPV6_FROM_LINK 0x80000000u
#define GW_IPV6_OFFSET    0xffffu

/* Results of gw_ipv6_scope, which classifies the scope of a packet's addresses. */
#define GW_IPV6_GLOBAL        0u
#define GW_IPV6_LINK_SOURCE   1u
#define GW_IPV6_LINK_RECEIVER 2u
#define GW_IPV6_NOWHERE       3u

/*
 * Classifies the scope of a packet's source and destination address. The result is GW_IPV6_NOWHERE
 * for the following addresses, which a router must not forward or which the table does not cover:
 *
 *   - the unspecified address as destination, or as source of a unicast packet (RFC 4291
 *     section 2.5.2)
 *   - the loopback address (RFC 4291 section 2.5.3)
 *   - a multicast address as source
 *   - multicast groups of reserved or interface-local scope (RFC 4291 section 2.7)
 *   - multicast groups beyond the link, which need multicast routes
 */
GW_LANE gw_u32 gw_ipv6_scope(const GW_GLOBAL gw_u8 *ip)
{
    const gw_u64 source = gw_load_be64(ip + 8);
    const gw_u64 source_low = gw_load_be64(ip + 16);
    const gw_u64 destination = gw_load_be64(ip + 24);
    const gw_u64 destination_low = gw_load_be64(ip + 32);
    if ((destination == 0 && destination_low <= 1) || source >> 56 == 0xff ||
        (source == 0 && source_low == 1)) {
        return GW_IPV6_NOWHERE;
    }
    if (destination >> 56 == 0xff) {
        return (destination >> 48 & 15) == 2 ? GW_IPV6_LINK_RECEIVER : GW_IPV6_NOWHERE;
    }
    if (source == 0 && source_low == 0) {
        return GW_IPV6_NOWHERE;
    }
    if (destination >> 54 == 0x3fa) {
        return GW_IPV6_LINK_RECEIVER;
    }
    return source >> 54 == 0x3fa ? GW_IPV6_LINK_SOURCE : GW_IPV6_GLOBAL;
}

/* Checks the hop-by-hop options. Returns whether processing of the packet continues. */
GW_RARE gw_u32 gw_ipv6_options(const GW_GLOBAL gw_u8 *ip, gw_u32 payload_bytes, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *header = ip + GW_IPV6_HEADER_BYTES;
    if (payload_bytes < 8 || (header[1] + 1u) * 8 > payload_bytes) {
        gw_drop(outcome, GW_IPV6_MALFORMED);
        return 0;
    }
    const gw_u32 end = (header[1] + 1u) * 8;
    gw_u32 at = 2;
    /* Each iteration consumes at least one byte. Options after the first GW_IPV6_OPTION_BYTES bytes
     * are not read. */
    for (gw_u32 i = 0; i < GW_IPV6_OPTION_BYTES; i++) {
        if (at >= end || at + 1 >= GW_IPV6_OPTION_BYTES) {
            return 1;
        }
        const gw_u32 type = header[at];
        if (type == 0) {
            at += 1;
            continue;
        }
        if (at + 2 > end || at + 2 + header[at + 1] > end) {
            gw_drop(outcome, GW_IPV6_MALFORMED);
            return 0;
        }
        if (type >> 6 == 1) {
            gw_drop(outcome, GW_IPV6_OPTION);
            return 0;
        }
        if (type >> 7 == 1) {
            gw_verdict(outcome, GW_IPV6_PARAMETER_PROBLEM, 0, GW_IPV6_HEADER_BYTES + at);
            return 0;
        }
        at += 2 + header[at + 1];
    }
    return 1;
}

/* Checks the headers of any frame. Returns the value for gw_half.offset, or 0 if a check has
 * already decided the packet's outcome. */
GW_RARE gw_u32 gw_ipv6_begin_any(const GW_GLOBAL gw_u8 *frame, gw_u32 length, gw_outcome *outcome)
{
    const gw_l3 l3 = gw_l3_parse(frame, length);
    if (l3.offset == 0) {
        gw_drop(outcome, GW_IPV6_TRUNCATED);
        return 0;
    }
    if (l3.ether_type != GW_ETHER_TYPE_IPV6) {
        gw_verdict(outcome, GW_IPV6_NOT_IPV6, 0, 0);
        return 0;
    }
    const gw_u32 available = length - l3.offset;
    if (available < GW_IPV6_HEADER_BYTES) {
        gw_drop(outcome, GW_IPV6_TRUNCATED);
        return 0;
    }
    const GW_GLOBAL gw_u8 *ip = frame + l3.offset;
    if (ip[0] >> 4 != 6) {
        gw_drop(outcome, GW_IPV6_MALFORMED);
        return 0;
    }
    const gw_u32 payload_bytes = gw_load_be16(ip + 4);
    if (payload_bytes > available - GW_IPV6_HEADER_BYTES) {
        gw_drop(outcome, GW_IPV6_TRUNCATED);
        return 0;
    }
    const gw_u32 scope = gw_ipv6_scope(ip);
    if (scope == GW_IPV6_NOWHERE) {
        gw_drop(outcome, GW_IPV6_MARTIAN);
        return 0;
    }
    if (scope == GW_IPV6_LINK_RECEIVER) {
        gw_verdict(outcome, GW_IPV6_LINK_LOCAL, 0, 0);
        return 0;
    }
    if (gw_is_group_frame(frame)) {
        gw_drop(outcome, GW_IPV6_GROUP_FRAME);
        return 0;
    }
    if (ip[6] == 0 && !gw_ipv6_options(ip, payload_bytes, outcome)) {
        return 0;
    }
    return l3.offset | (scope == GW_IPV6_LINK_SOURCE ? GW_IPV6_FROM_LINK : 0);
}

/* Checks the headers before the lookup. A fast path handles untagged packets between addresses of
 * 2000::/3 without hop-by-hop options. It loads each word of the headers once. */
GW_LANE void gw_ipv6_begin(const gw_lane *lane, const gw_descriptor *descriptor,
                           gw_half *first_half, gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 length = descriptor->length;
    const gw_u32 min_bytes = GW_ETHERNET_BYTES + GW_IPV6_HEADER_BYTES;
    first_half->frame = frame;
    if (length >= min_bytes && gw_load_be32(frame + 12) >> 12 == 0x86dd6u) {
        const gw_u32 word = gw_load_be32(frame + 18); /* payload length, next header, hop limit */
        if (word >> 16 <= length - min_bytes && (word >> 8 & 0xff) != 0 && frame[22] >> 5 == 1 &&
            frame[38] >> 5 == 1 && !gw_is_group_frame(frame)) {
            first_half->offset = GW_ETHERNET_BYTES;
            return;
        }
    }
    first_half->offset = gw_ipv6_begin_any(frame, length, outcome);
}

/* Sets the outcome after the lookup, and rewrites a frame that is forwarded. `index` is the next
 * hop index from the lookup, or GW_IPV6_NONE. */
GW_LANE void gw_ipv6_settle(const gw_lane *lane, const gw_half *first_half, gw_u32 index,
                            gw_outcome *outcome)
{
    const GW_GLOBAL gw_ipv6_image *header = (const GW_GLOBAL gw_ipv6_image *)lane->image;
    GW_GLOBAL gw_u8 *frame = first_half->frame;
    GW_GLOBAL gw_u8 *ip = frame + (first_half->offset & GW_IPV6_OFFSET);
    if (index == GW_IPV6_NONE) {
        gw_verdict(outcome, GW_IPV6_NO_ROUTE, 0, 0);
        return;
    }
    const GW_GLOBAL gw_ipv6_next_hop *next_hop =
        (const GW_GLOBAL gw_ipv6_next_hop *)(lane->image + header->next_hops_offset) + index;
    const gw_u64 to = GW_ONCE(gw_u64, &next_hop->to);
    const gw_u64 from = GW_ONCE(gw_u64, &next_hop->from);
    const gw_u32 flags = (gw_u32)to & 0xff;
    const gw_u32 port = (gw_u32)to >> 8 & 0xff;
    const gw_u32 mtu = (gw_u32)from & 0xffff;
    const gw_u32 word = gw_load_be32(ip + 4); /* payload length, next header, hop limit */
    if (flags & GW_IPV6_HOP_UNREACHABLE) {
        gw_verdict(outcome, GW_IPV6_NO_ROUTE, 0, 0);
    } else if (flags & GW_IPV6_HOP_LOCAL) {
        gw_verdict(outcome, GW_IPV6_LOCAL, 0, index);
    } else if (flags & GW_IPV6_HOP_BLACKHOLE) {
        gw_drop(outcome, GW_IPV6_BLACKHOLE);
    } else if (first_half->offset & GW_IPV6_FROM_LINK) {
        gw_verdict(outcome, GW_IPV6_BEYOND_SCOPE, 0, 0);
    } else if ((word & 0xff) <= 1) {
        gw_verdict(outcome, GW_IPV6_HOP_LIMIT_EXCEEDED, 0, 0);
    } else if (flags & GW_IPV6_HOP_UNRESOLVED) {
        gw_verdict(outcome, GW_IPV6_UNRESOLVED, port, index);
    } else if (mtu != 0xffff && (word >> 16) + GW_IPV6_HEADER_BYTES > mtu) {
        gw_verdict(outcome, GW_IPV6_TOO_BIG, port, mtu);
    } else {
        ip[7] = (gw_u8)(word - 1);
        gw_store_be64(frame, (to & ~(gw_u64)0xffff) | from >> 48);
        gw_store_be32(frame + 8, (gw_u32)(from >> 16));
        gw_verdict(outcome, GW_IPV6_FORWARD, port, index);
    }
}

/* Looks up the destination, sets the outcome, and rewrites the frame. */
GW_LANE void gw_ipv6_end(const gw_lane *lane, const gw_half *first_half, gw_outcome *outcome)
{
    if (first_half->offset != 0) {
        const GW_GLOBAL gw_u8 *destination =
            first_half->frame + (first_half->offset & GW_IPV6_OFFSET) + 24;
        const gw_u32 index = gw_ipv6_lookup(lane->image, lane->variant, gw_load_be64(destination),
                                            gw_load_be64(destination + 8));
        gw_ipv6_settle(lane, first_half, index, outcome);
    }
}

GW_CALLED void gw_ipv6_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    gw_half first_half;
    gw_ipv6_begin(lane, descriptor, &first_half, outcome);
    gw_ipv6_end(lane, &first_half, outcome);
}

#endif
