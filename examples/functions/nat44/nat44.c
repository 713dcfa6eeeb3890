/* godwit function nat44
summary = "Translates the IPv4 sources of a network to a pool of addresses (NAPT)."
spec    = "RFC 2663, RFC 4787, RFC 5382, RFC 5508"
reads   = 98                     # Ethernet with a VLAN tag, the longest IPv4 header, a TCP header
writes  = 98
[verdicts]
outbound = "The source is translated to an address and port of the pool."
inbound  = "The destination is translated back to the source of the session."
bypass   = "The packet is neither from inside to outside, nor for the pool. It is not changed."
[drops]
truncated = "The frame ends before its headers."
fragment  = "The packet is a fragment, which may lack the ports."
protocol  = "The packet is not TCP, UDP, or an ICMP echo."
unknown   = "The packet is for a port of the pool without a session."
limited   = "The source has as many sessions as it may have."
full      = "The table of sessions is full."
no_port   = "The pool has no free port for the session."
[params]
inside = { type = "prefix4", text = "Sources that are translated." }
pool   = { type = "ipv4[]", max = 64, text = "Addresses to which they are translated." }
each   = { type = "u32", default = 2000, text = "Maximum number of sessions of one source." }
[flows.session]
text     = "An address and port inside, with the address and port to which they are translated."
key      = { address = "ipv4", port = "be16", protocol = "u8" }
reverse  = { address = "ipv4", port = "be16", protocol = "u8" }
row      = { inside = "ipv4", mapped = "ipv4", inside_port = "be16", mapped_port = "be16", seen = "u8" }
count    = true
capacity = 2_000_000
timeout  = { udp = 300, icmp = 60, tcp_new = 240, tcp = 7440 }   # seconds
limit    = { by = "address", max = "each" }
[resources.port]
addresses = "pool"
ports     = [1024, 65535]
reverse   = ["address", "port"]
[test]
frames = "nat44.pcap"
params = { inside = "10.0.0.0/8", pool = ["192.0.2.1", "192.0.2.2"], each = 3 }
unreached = ["full", "no_port"]  # the capture has few sessions
*/

#define NAT44_ICMP       1u
#define NAT44_ECHO_REPLY 0u
#define NAT44_ECHO       8u
#define NAT44_FIN_RST    5u

/* Treatment of a packet. */
#define NAT44_BYPASS    0u
#define NAT44_OUTBOUND  1u
#define NAT44_INBOUND   2u
#define NAT44_TRUNCATED 3u
#define NAT44_FRAGMENT  4u
#define NAT44_PROTOCOL  5u

/* Location of the headers in a frame. */
typedef struct nat44_headers {
    gw_u32 kind;      /* treatment of the packet */
    gw_u32 ip;        /* offset of the IPv4 header */
    gw_u32 transport; /* offset of the transport header */
    gw_u32 protocol;
} nat44_headers;

/* Returns whether an address belongs to the pool. */
GW_LANE gw_u32 nat44_is_mapped(const gw_lane *lane, gw_u32 address)
{
    const gw_u32 count = gw_nat44_params(lane)->pool_count;
    gw_u32 found = 0;
    for (gw_u32 i = 0; i < count; i++) {
        found |= (gw_u32)(gw_nat44_params(lane)->pool[i] == address);
    }
    return found;
}

/* Returns whether an address is inside. */
GW_LANE gw_u32 nat44_is_inside(const gw_lane *lane, gw_u32 address)
{
    return (address & gw_nat44_params(lane)->inside_mask) == gw_nat44_params(lane)->inside;
}

/* Returns in which direction a packet crosses the border, if it does. */
GW_LANE gw_u32 nat44_direction(const gw_lane *lane, gw_u32 source, gw_u32 destination)
{
    if (nat44_is_inside(lane, source)) {
        return nat44_is_inside(lane, destination) ? NAT44_BYPASS : NAT44_OUTBOUND;
    }
    return nat44_is_mapped(lane, destination) ? NAT44_INBOUND : NAT44_BYPASS;
}

/* Parses a frame, and decides what happens to the packet. */
GW_LANE nat44_headers nat44_parse(const gw_lane *lane, const GW_GLOBAL gw_u8 *frame, gw_u32 length)
{
    const gw_l3 l3 = gw_l3_parse(frame, length);
    nat44_headers headers;
    gw_u32 ip_bytes;
    gw_u32 transport_bytes = 8;
    headers.kind = NAT44_TRUNCATED;
    headers.ip = l3.offset;
    headers.transport = 0;
    headers.protocol = 0;
    if (l3.offset == 0) {
        return headers;
    }
    if (l3.ether_type != GW_ETHER_TYPE_IPV4) {
        headers.kind = NAT44_BYPASS;
        return headers;
    }
    if (length < l3.offset + 20u) {
        return headers;
    }
    headers.kind = nat44_direction(lane, gw_load_be32(frame + l3.offset + 12),
                                   gw_load_be32(frame + l3.offset + 16));
    if (headers.kind == NAT44_BYPASS) {
        return headers;
    }
    ip_bytes = 4u * (frame[l3.offset] & 15u);
    headers.transport = l3.offset + ip_bytes;
    headers.protocol = frame[l3.offset + 9];
    if (headers.protocol == GW_PROTOCOL_TCP) {
        transport_bytes = 20;
    }
    if ((gw_load_be16(frame + l3.offset + 6) & 0x3fff) != 0) {
        headers.kind = NAT44_FRAGMENT;
    } else if (ip_bytes < 20 || length < headers.transport + transport_bytes) {
        headers.kind = NAT44_TRUNCATED;
    } else if (headers.protocol == NAT44_ICMP) {
        if (frame[headers.transport] !=
            (headers.kind == NAT44_OUTBOUND ? NAT44_ECHO : NAT44_ECHO_REPLY)) {
            headers.kind = NAT44_PROTOCOL;
        }
    } else if (headers.protocol != GW_PROTOCOL_TCP && headers.protocol != GW_PROTOCOL_UDP) {
        headers.kind = NAT44_PROTOCOL;
    }
    return headers;
}

/* Returns the offset of the port that is translated. An echo has an identifier instead of a port
 * (RFC 5508, section 3). */
GW_LANE gw_u32 nat44_port_at(gw_u32 transport, gw_u32 protocol, gw_u32 is_outbound)
{
    if (protocol == NAT44_ICMP) {
        return transport + 4u;
    }
    return is_outbound ? transport : transport + 2u;
}

#ifdef GW_HOST
/* Reads the key of a packet. The CPU calls this function for several packets, and then looks up
 * their keys together. */
GW_FIND gw_side gw_nat44_find(const gw_lane *lane, const gw_packet *packet,
                              gw_nat44_session_key *key, gw_nat44_session_reverse *reverse)
{
    const gw_u8 *frame = packet->frame;
    const nat44_headers headers = nat44_parse(lane, frame, packet->length);
    if (headers.kind == NAT44_OUTBOUND) {
        key->address = gw_load_be32(frame + headers.ip + 12);
        key->port = (gw_u16)gw_load_be16(
            frame + nat44_port_at(headers.transport, headers.protocol, 1));
        key->protocol = (gw_u8)headers.protocol;
        return GW_FORWARD;
    }
    if (headers.kind == NAT44_INBOUND) {
        reverse->address = gw_load_be32(frame + headers.ip + 16);
        reverse->port = (gw_u16)gw_load_be16(
            frame + nat44_port_at(headers.transport, headers.protocol, 0));
        reverse->protocol = (gw_u8)headers.protocol;
        return GW_REVERSE;
    }
    return GW_NO_FLOW;
}

/* Creates the session of the first packet from inside. The pool gives all sessions of a source the
 * same address, if it has free ports (RFC 4787, REQ-2). */
GW_MISS gw_nat44_session_row *gw_nat44_miss(gw_nat44 *own, const gw_packet *packet, gw_side side,
                                            const gw_nat44_session_key *key, gw_outcome *outcome)
{
    gw_nat44_session_row *row;
    gw_nat44_session_reverse reverse;
    gw_u32 address;
    gw_u32 port;
    if (side == GW_REVERSE) {
        gw_drop(outcome, GW_NAT44_UNKNOWN);
        return 0;
    }
    row = gw_nat44_session_create(own, key, GW_NAT44_TIMER_UDP);
    if (row == 0) {
        gw_drop(outcome, gw_nat44_session_is_limited(own) ? GW_NAT44_LIMITED : GW_NAT44_FULL);
        return 0;
    }
    if (!gw_nat44_port_take(own, packet, key->address, &address, &port)) {
        gw_nat44_session_cancel(own, row);
        gw_drop(outcome, GW_NAT44_NO_PORT);
        return 0;
    }
    reverse.address = address;
    reverse.port = (gw_u16)port;
    reverse.protocol = key->protocol;
    if (!gw_nat44_session_reverse_set(own, row, &reverse)) {
        gw_nat44_port_give(own, address, port);
        gw_nat44_session_cancel(own, row);
        gw_drop(outcome, GW_NAT44_FULL);
        return 0;
    }
    row->inside = key->address;
    row->inside_port = key->port;
    row->mapped = address;
    row->mapped_port = (gw_u16)port;
    return row;
}

/* Returns the timer of a session. TCP packets in both directions make a connection established,
 * until one of them ends it (RFC 5382, REQ-5). */
GW_UPDATE gw_u32 nat44_timer(gw_nat44_session_row *row, const gw_u8 *frame, gw_u32 ip,
                             gw_side side)
{
    const gw_u32 transport = ip + 4u * (frame[ip] & 15u);
    if (frame[ip + 9] == NAT44_ICMP) {
        return GW_NAT44_TIMER_ICMP;
    }
    if (frame[ip + 9] == GW_PROTOCOL_UDP) {
        return GW_NAT44_TIMER_UDP;
    }
    row->seen = (gw_u8)(row->seen | 1u << side);
    if ((frame[transport + 13] & NAT44_FIN_RST) != 0) {
        row->seen = 0;
    }
    return row->seen == 3 ? GW_NAT44_TIMER_TCP : GW_NAT44_TIMER_TCP_NEW;
}

/* Returns the parameter of the kernel: | address 32 | port 16 | direction 16 |. */
GW_UPDATE gw_u64 gw_nat44_update(gw_nat44 *own, gw_nat44_session_row *row, const gw_packet *packet,
                                 gw_side side)
{
    const gw_l3 l3 = gw_l3_parse(packet->frame, packet->length);
    (void)own;
    gw_nat44_session_timer(row, nat44_timer(row, packet->frame, l3.offset, side));
    if (side == GW_FORWARD) {
        return (gw_u64)row->mapped << 32 | (gw_u64)row->mapped_port << 16 | NAT44_OUTBOUND;
    }
    return (gw_u64)row->inside << 32 | (gw_u64)row->inside_port << 16 | NAT44_INBOUND;
}
#endif

/* Rewrites a packet that has a session. `find` has checked its length. */
GW_LANE void nat44_translate(GW_GLOBAL gw_u8 *frame, gw_u32 ip, gw_u32 is_outbound, gw_u32 address,
                             gw_u32 port)
{
    const gw_u32 transport = ip + 4u * (frame[ip] & 15u);
    const gw_u32 protocol = frame[ip + 9];
    const gw_u32 address_at = is_outbound ? ip + 12u : ip + 16u;
    const gw_u32 port_at = nat44_port_at(transport, protocol, is_outbound);
    const gw_u32 old_address = gw_load_be32(frame + address_at);
    const gw_u32 old_port = gw_load_be16(frame + port_at);
    gw_u32 sum_at = transport + 16u;
    gw_u32 sum;
    gw_store_be32(frame + address_at, address);
    gw_store_be16(frame + port_at, port);
    sum = gw_load_be16(frame + ip + 10);
    gw_store_be16(frame + ip + 10, gw_checksum_change32(sum, old_address, address));
    if (protocol == NAT44_ICMP) {
        sum_at = transport + 2u;
    } else if (protocol == GW_PROTOCOL_UDP) {
        sum_at = transport + 6u;
    }
    sum = gw_load_be16(frame + sum_at);
    /* A UDP checksum of 0 means that there is none (RFC 768). */
    if (protocol == GW_PROTOCOL_UDP && sum == 0) {
        return;
    }
    sum = gw_checksum_change16(sum, old_port, port);
    /* The checksum of ICMP does not cover the addresses. */
    if (protocol != NAT44_ICMP) {
        sum = gw_checksum_change32(sum, old_address, address);
    }
    if (protocol == GW_PROTOCOL_UDP && sum == 0) {
        sum = 0xffff;
    }
    gw_store_be16(frame + sum_at, sum);
}

GW_LANE void gw_nat44_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 direction = (gw_u32)lane->parameter & 0xffff;
    gw_u32 kind;
    if (direction != 0) {
        nat44_translate(frame, gw_l3_parse(frame, descriptor->length).offset,
                        direction == NAT44_OUTBOUND, (gw_u32)(lane->parameter >> 32),
                        (gw_u32)(lane->parameter >> 16) & 0xffff);
        gw_verdict(outcome, direction == NAT44_OUTBOUND ? GW_NAT44_OUTBOUND : GW_NAT44_INBOUND, 0,
                   0);
        return;
    }
    kind = nat44_parse(lane, frame, descriptor->length).kind;
    if (kind == NAT44_BYPASS) {
        gw_verdict(outcome, GW_NAT44_BYPASS, 0, 0);
    } else if (kind == NAT44_FRAGMENT) {
        gw_drop(outcome, GW_NAT44_FRAGMENT);
    } else if (kind == NAT44_PROTOCOL) {
        gw_drop(outcome, GW_NAT44_PROTOCOL);
    } else {
        gw_drop(outcome, GW_NAT44_TRUNCATED);
    }
}
