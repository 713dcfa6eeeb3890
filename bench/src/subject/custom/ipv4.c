/* godwit function copy_of_ipv4
summary = "Forwards IPv4 packets as the built-in function ipv4 does, for a comparison."
spec    = "RFC 791, RFC 1624"
reads   = 78
writes  = 30
[verdicts]
forward      = { text = "A route was found.", port = true, value = "the next hop" }
local        = { text = "The route delivers the packet to this machine.", value = "the next hop" }
ttl_exceeded = "A route was found, but the TTL is 0 or 1."
not_ipv4     = "The frame does not carry IPv4."
no_route     = "No route covers the destination."
unresolved   = { text = "The next station is unknown.", port = true, value = "the next hop" }
too_big      = { text = "It exceeds the MTU and has DF set.", port = true, value = "the MTU" }
fragment     = { text = "The packet exceeds the MTU.", port = true, value = "the MTU" }
[drops]
truncated   = "The frame ends within a header."
malformed   = "The version, header length or total length is inconsistent."
checksum    = "The header checksum is wrong."
blackhole   = "The route is a blackhole."
martian     = "A router must not forward the source or the destination."
group_frame = "The frame is addressed to a group of stations."
[tables.routes]
shape    = "lpm4"
row      = { to = "u64", from = "u64", hop = "u32" }
capacity = 1_200_000
rows     = 256
*/

/*
 * This is the kernel of ipv4 (kernels/ipv4/ipv4.h, which explains it), except for the lookup: the
 * generated function replaces it. A row has the words of a next hop, and its number.
 */

#define COPY_HEADER_BYTES    20u
#define COPY_SOUND           255u
#define COPY_HOP_LOCAL       1u
#define COPY_HOP_BLACKHOLE   2u
#define COPY_HOP_UNREACHABLE 4u

GW_RARE gw_u32 copy_check_any(const GW_GLOBAL gw_u8 *ip, gw_u32 available)
{
    const gw_u32 first = gw_load_be32(ip);
    const gw_u32 header_bytes = (first >> 24 & 15) * 4;
    const gw_u32 total_length = first & 0xffff;
    if (first >> 28 != 4 || header_bytes < COPY_HEADER_BYTES || total_length < header_bytes) {
        return GW_COPY_OF_IPV4_MALFORMED;
    }
    if (total_length > available) {
        return GW_COPY_OF_IPV4_TRUNCATED;
    }
    return gw_ones_sum(ip, header_bytes) == 0xffff ? COPY_SOUND : GW_COPY_OF_IPV4_CHECKSUM;
}

GW_LANE gw_u32 copy_martian(gw_u32 address)
{
    return (gw_u32)(address - 0x01000000u >= 0xdf000000u || address >> 24 == 127);
}

GW_RARE gw_u32 copy_begin_any(const GW_GLOBAL gw_u8 *frame, gw_u32 length, gw_outcome *outcome)
{
    const gw_l3 l3 = gw_l3_parse(frame, length);
    if (l3.offset == 0) {
        gw_drop(outcome, GW_COPY_OF_IPV4_TRUNCATED);
        return 0;
    }
    if (l3.ether_type != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_COPY_OF_IPV4_NOT_IPV4, 0, 0);
        return 0;
    }
    const gw_u32 available = length - l3.offset;
    if (available < COPY_HEADER_BYTES) {
        gw_drop(outcome, GW_COPY_OF_IPV4_TRUNCATED);
        return 0;
    }
    const GW_GLOBAL gw_u8 *ip = frame + l3.offset;
    const gw_u32 fault = copy_check_any(ip, available);
    if (fault != COPY_SOUND) {
        gw_drop(outcome, fault);
        return 0;
    }
    if (copy_martian(gw_load_be32(ip + 12)) || copy_martian(gw_load_be32(ip + 16))) {
        gw_drop(outcome, GW_COPY_OF_IPV4_MARTIAN);
        return 0;
    }
    if (gw_is_group_frame(frame)) {
        gw_drop(outcome, GW_COPY_OF_IPV4_GROUP_FRAME);
        return 0;
    }
    return l3.offset;
}

GW_LANE void copy_begin(const gw_lane *lane, const gw_descriptor *descriptor, gw_half *first_half,
                        gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 length = descriptor->length;
    const gw_u32 min_bytes = GW_ETHERNET_BYTES + COPY_HEADER_BYTES;
    first_half->frame = frame;
    if (length >= min_bytes && gw_load_be32(frame + 12) >> 8 == 0x080045u) {
        const gw_u32 first = gw_load_be32(frame + 14);
        const gw_u32 source = gw_load_be32(frame + 26);
        const gw_u32 destination = gw_load_be32(frame + 30);
        const gw_u64 sum = (gw_u64)first + gw_load_be32(frame + 18) + gw_load_be32(frame + 22) +
                           source + destination;
        if ((first & 0xffff) - COPY_HEADER_BYTES <= length - min_bytes && sum % 0xffff == 0 &&
            !copy_martian(source) && !copy_martian(destination) && !gw_is_group_frame(frame)) {
            first_half->offset = GW_ETHERNET_BYTES;
            first_half->value = destination;
            return;
        }
    }
    first_half->offset = copy_begin_any(frame, length, outcome);
    if (first_half->offset != 0) {
        first_half->value = gw_load_be32(frame + first_half->offset + 16);
    }
}

GW_RARE void copy_special(gw_u32 flags, gw_u32 port, gw_u32 index, gw_u32 ttl, gw_outcome *outcome)
{
    if (flags & COPY_HOP_UNREACHABLE) {
        gw_verdict(outcome, GW_COPY_OF_IPV4_NO_ROUTE, 0, 0);
    } else if (flags & COPY_HOP_LOCAL) {
        gw_verdict(outcome, GW_COPY_OF_IPV4_LOCAL, 0, index);
    } else if (flags & COPY_HOP_BLACKHOLE) {
        gw_drop(outcome, GW_COPY_OF_IPV4_BLACKHOLE);
    } else if (ttl <= 1) {
        gw_verdict(outcome, GW_COPY_OF_IPV4_TTL_EXCEEDED, 0, 0);
    } else {
        gw_verdict(outcome, GW_COPY_OF_IPV4_UNRESOLVED, port, index);
    }
}

GW_LANE void copy_end(const gw_lane *lane, const gw_half *first_half, gw_outcome *outcome)
{
    if (first_half->offset == 0) {
        return;
    }
    GW_GLOBAL gw_u8 *frame = first_half->frame;
    GW_GLOBAL gw_u8 *ip = frame + first_half->offset;
    gw_copy_of_ipv4_routes_row row;
    const gw_u32 found = gw_copy_of_ipv4_routes_find(lane, first_half->value, &row);
    const gw_u32 routed = 0u - found; /* all ones, or 0 */
    const gw_u32 index = row.hop;
    const gw_u64 to = row.to;
    const gw_u64 from = row.from;
    const gw_u32 flags = (gw_u32)to & 0xff & routed;
    const gw_u32 port = (gw_u32)to >> 8 & 0xff & routed;
    const gw_u32 word = gw_load_be32(ip + 8); /* TTL, protocol, header checksum */
    if (flags != 0) {
        copy_special(flags, port, index, word >> 24, outcome);
        return;
    }
    if (word >> 25 == 0) {
        gw_verdict(outcome, routed ? GW_COPY_OF_IPV4_TTL_EXCEEDED : GW_COPY_OF_IPV4_NO_ROUTE, 0, 0);
        return;
    }
    const gw_u32 mtu = (gw_u32)from & 0xffff;
    gw_u32 verdict = ~routed & GW_COPY_OF_IPV4_NO_ROUTE;
    gw_u32 value = index & routed;
    if (gw_load_be16(ip + 2) > (mtu | (~routed & 0xffff))) {
        if (gw_load_be16(ip + 6) & 0x4000u) {
            gw_verdict(outcome, GW_COPY_OF_IPV4_TOO_BIG, port, mtu);
            return;
        }
        verdict = GW_COPY_OF_IPV4_FRAGMENT;
        value = mtu;
    }
    /* The header checksum is updated for a TTL that is decremented by 1 (RFC 1624 section 3,
     * equation 3). The checksum grows by 0x0100, plus an end-around carry if it is 0xfeff or more.
     * The result is never 0xffff. */
    const gw_u32 carry = (gw_u32)((word & 0xffff) >= 0xfeffu);
    const gw_u64 front = gw_load_be64(frame);
    const gw_u32 back = gw_load_be32(frame + 8);
    const gw_u64 routed_64 = (gw_u64)routed << 32 | routed;
    gw_store_be32(ip + 8, word - ((0x00ffff00u + carry * 0xffffu) & routed));
    gw_store_be64(frame, front ^ ((front ^ ((to & ~(gw_u64)0xffff) | from >> 48)) & routed_64));
    gw_store_be32(frame + 8, back ^ ((back ^ (gw_u32)(from >> 16)) & routed));
    gw_verdict(outcome, verdict, port, value);
}

GW_LANE void gw_copy_of_ipv4_packet(const gw_lane *lane, gw_descriptor *descriptor,
                                    gw_outcome *outcome)
{
    gw_half first_half;
    copy_begin(lane, descriptor, &first_half, outcome);
    copy_end(lane, &first_half, outcome);
}
