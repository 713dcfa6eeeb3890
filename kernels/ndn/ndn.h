/* godwit function ndn
summary = """\
    Forwards Interests of Named Data Networking by the longest matching prefix of their names."""
spec    = "NDN Packet Format Specification 0.3; NDNLPv2"
number  = 7
magic   = "ndn "
reads   = "all"
writes  = "all"
headroom = 48
variants = ["names"]
[verdicts]
forward = {
    text = "The table contains a prefix of the name. Hop limit and headers are rewritten.",
    port = true, value = "index of the next hop",
}
local = {
    text = "The name belongs to this machine.",
    value = "index of the next hop",
}
data = "The packet is a Data packet. Only its outermost TLV is checked."
other = "The packet is a fragment, a Nack or an idle packet of NDNLPv2, or has an unknown type."
not_ndn = """\
    The frame has neither EtherType 0x8624 nor UDP to the port of NDN. This includes fragments, \
    and packets with extension headers or two VLAN tags."""
[drops]
truncated = "The frame or the datagram ends before the length that it states."
malformed = "A header or a TLV violates the specification, or a critical element is unknown."
checksum = "The IPv4 or UDP checksum is wrong, or the UDP checksum is missing over IPv6."
hop_limit = "HopLimit is 0, or would become 0 at this hop."
no_nonce = "The Interest has no Nonce."
no_route = "The table contains no prefix of the name."
blackhole = "The next hop is a blackhole."
no_room = "The headroom is too small for the headers of the next hop."
[constants]
slots = "usize = 7: Number of slots in a bucket."
chain = "usize = 16: Maximum number of buckets in a chain."
none = "u32 = 0xffffffff: Index without a next hop."
depths = "u32 = 32: Maximum number of components of a name in the table."
unit_bytes = "usize = 64: Unit of record sizes, and size of a bucket, in bytes."
hop_local = "u8 = 1: Flag of a next hop: the destination is this machine."
hop_blackhole = "u8 = 2: Flag of a next hop: the route discards packets."
ethernet = "u8 = 0: Protocol that carries NDN packets: Ethernet."
udp4 = "u8 = 1: Protocol that carries NDN packets: UDP over IPv4."
udp6 = "u8 = 2: Protocol that carries NDN packets: UDP over IPv6."
[structs.image]
text = "Header of the table image, drawn in find.h"
fields.magic = "u32: GW_NDN_MAGIC"
fields.next_hops = "u32: capacity for next hops; each has two copies"
fields.buckets = "u32: number of buckets that a hash can select"
fields.overflow = "u32: number of overflow buckets, which follow them"
fields.records = "u32: size of the records, in units of 64 bytes; the first unit is unused"
fields.default_next_hop = "u32: next hop of the name '/', or GW_NDN_NONE"
fields.depths = "u32: lengths of the prefixes; bit i is set for i + 1 components"
fields.guide = "u32: number of components of a guide, 1 to 32"
fields.udp_port = "u32: destination port of NDN over UDP"
fields.pad = "u32: 0"
fields.key0 = "u64: first half of the SipHash key"
fields.key1 = "u64: second half of the SipHash key"
fields.next_hops_offset = "u64: offset of the next hops"
fields.buckets_offset = "u64: offset of the buckets"
fields.records_offset = "u64: offset of the records"
fields.bytes = "u64: size of the image"
[structs.slot]
text = "Slot of a bucket, for one name"
default = true
fields.fingerprint = "u32: upper half of the name's hash"
fields.record = "u32: location of the record, in units of 64 bytes; 0: the slot is free"
[structs.bucket]
text = "Bucket of names with similar hashes"
default = true
fields.slots = "slot[7]: slots, in any order"
fields.next = "u32: index of the next bucket in the chain; 0: none"
fields.pad = "u32: 0"
[structs.record]
text = "Record of a prefix in the table. Its name follows"
fields.next_hop = "u32: index, or GW_NDN_NONE if the record is only a guide"
fields.deeper = "u32: lengths of the names below a guide; bit i is set for i + 1 more components"
fields.below = "u32: number of names that use the record as a guide; for the host"
fields.name_bytes = "u32: length of the name in bytes, 2 or more"
[structs.next_hop]
text = "A next hop: the headers that precede the NDN packet in the forwarded frame"
default = true
fields.destination_mac = "u8[6]: destination address of forwarded frames"
fields.source_mac = "u8[6]: source address of forwarded frames"
fields.port = "u16: egress port"
fields.flags = "u8: GW_NDN_HOP_LOCAL, GW_NDN_HOP_BLACKHOLE"
fields.carrier = "u8: GW_NDN_ETHERNET, GW_NDN_UDP4 or GW_NDN_UDP6"
fields.source_address = "u8[16]: source address of UDP datagrams; IPv4 uses the first 4 bytes"
fields.destination_address = """\
    u8[16]: destination address of UDP datagrams; IPv4 uses the first 4 bytes"""
fields.source_port = "u16: source port of UDP datagrams"
fields.destination_port = "u16: destination port of UDP datagrams"
fields.valid_copy = "u32: in the first copy: index of the valid copy, 0 or 1"
fields.pad = "u32[2]: 0"
*/
/*
 * ndn: forwards Interests of Named Data Networking by the longest matching prefix of their names.
 *
 * Processes Ethernet II frames, untagged or with one 802.1Q tag. The rules are checked in order.
 * The first rule that applies decides:
 *
 *    1  incomplete Ethernet header or tag                             drop truncated
 *    2  EtherType is not 0x8624, IPv4 or IPv6                         not_ndn
 *    3  IPv4: fewer than 20 bytes, IPv6: fewer than 40                drop truncated
 *    4  wrong version; IPv4: IHL < 5, total length < 4 * IHL          drop malformed
 *    5  IP's length exceeds the frame                                 drop truncated
 *    6  IP: not UDP, extension headers, or an IPv4 fragment           not_ndn
 *    7  UDP: fewer than 8 bytes                                       drop truncated
 *    8  UDP: destination port is not the configured port              not_ndn
 *    9  IPv4: wrong header checksum                                   drop checksum
 *   10  UDP: length below 8: drop malformed; exceeds IP's             drop truncated
 *   11  UDP: wrong checksum; IPv6: no checksum                        drop checksum
 *   12  incomplete TLV: drop truncated; UDP: bytes after the TLV; a
 *       number that is not in its shortest form; a type of 0 or
 *       above 2^32 - 1                                                drop malformed
 *   13  an LpPacket that violates NDNLPv2, or has unknown fields
 *       that must not be ignored                                      drop malformed
 *   14  an LpPacket without a whole packet: fragment, Nack, idle      other
 *   15  Data, with or without an LpPacket                             data
 *   16  any other type than Interest                                  other
 *   17  an Interest that violates NDN Packet Format 0.3, or has
 *       unknown critical elements                                     drop malformed
 *   18  HopLimit is 0                                                 drop hop_limit
 *   19  no Nonce                                                      drop no_nonce
 *   20  no prefix of the name is in the table                         drop no_route
 *   21  next hop is local                                             local
 *   22  next hop is a blackhole                                       drop blackhole
 *   23  HopLimit is 1                                                 drop hop_limit
 *   24  the headroom is too small for the new headers                 drop no_room
 *   25  otherwise                                                     forward
 *
 * Only forward changes the frame. It decrements HopLimit and replaces the headers before the NDN
 * packet by those of the next hop. The header of an LpPacket is kept.
 *
 * The kernel reads the bytes of the frame. Over UDP, it reads the bytes after the name twice. For
 * most names, it makes 2 dependent loads that miss every cache, from a bucket and from a record.
 * Each longer prefix that it tries takes 2 more.
 */
#ifndef GODWIT_NDN_H
#define GODWIT_NDN_H

#include "find.h"
#include "tlv.h"
#include "carrier.h"

/* Checks the TLV encoding and parses the Interest. Returns 0 if a check has already decided the
 * packet's outcome. */
GW_LANE gw_u32 gw_ndn_parse(const GW_GLOBAL gw_u8 *frame, gw_ndn_span *span,
                            gw_ndn_interest *interest, gw_outcome *outcome)
{
    gw_ndn_tlv packet;
    const gw_u32 fault = gw_ndn_read(frame, span->start, span->end, &packet);
    if (fault == GW_NDN_SHORT) {
        return gw_ndn_dropped(outcome, GW_NDN_TRUNCATED);
    }
    if (fault != GW_NDN_SOUND || (span->carrier != GW_NDN_ETHERNET && packet.end != span->end)) {
        return gw_ndn_dropped(outcome, GW_NDN_MALFORMED);
    }
    span->end = packet.end;
    if (packet.type == GW_NDN_LP &&
        gw_ndn_lp_parse(frame, packet.value, packet.end, &packet) != GW_NDN_SOUND) {
        return gw_ndn_dropped(outcome, GW_NDN_MALFORMED);
    }
    if (packet.type != GW_NDN_TLV_INTEREST) {
        return gw_ndn_decided(outcome, packet.type == GW_NDN_TLV_DATA ? GW_NDN_DATA : GW_NDN_OTHER);
    }
    if (!gw_ndn_interest_parse(frame, packet.value, packet.end, interest)) {
        return gw_ndn_dropped(outcome, GW_NDN_MALFORMED);
    }
    return 1;
}

/* Checks the headers and parses the Interest. Returns 0 if a check has already decided the packet's
 * outcome. */
GW_LANE gw_u32 gw_ndn_begin(const gw_lane *lane, const gw_descriptor *descriptor, gw_ndn_span *span,
                            gw_ndn_interest *interest, gw_outcome *outcome)
{
    const GW_GLOBAL gw_ndn_image *header = (const GW_GLOBAL gw_ndn_image *)lane->image;
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    if (!gw_ndn_locate(frame, descriptor->length, header->udp_port, span, outcome) ||
        !gw_ndn_parse(frame, span, interest, outcome)) {
        return 0;
    }
    if (interest->hop_limit != 0 && frame[interest->hop_limit] == 0) {
        return gw_ndn_dropped(outcome, GW_NDN_HOP_LIMIT);
    }
    return interest->has_nonce ? 1 : gw_ndn_dropped(outcome, GW_NDN_NO_NONCE);
}

/* Sets the outcome after the lookup, and rewrites a packet that is forwarded. `index` is the next
 * hop index from the lookup, or GW_NDN_NONE. */
GW_LANE void gw_ndn_end(const gw_lane *lane, gw_descriptor *descriptor, const gw_ndn_span *span,
                        const gw_ndn_interest *interest, gw_u32 index, gw_outcome *outcome)
{
    const GW_GLOBAL gw_ndn_image *header = (const GW_GLOBAL gw_ndn_image *)lane->image;
    if (index == GW_NDN_NONE) {
        gw_drop(outcome, GW_NDN_NO_ROUTE);
        return;
    }
    const GW_GLOBAL gw_ndn_next_hop *next_hop =
        (const GW_GLOBAL gw_ndn_next_hop *)(lane->image + header->next_hops_offset) +
        2 * (gw_u64)index;
    next_hop += next_hop->valid_copy & 1;
    if (next_hop->flags & GW_NDN_HOP_LOCAL) {
        gw_verdict(outcome, GW_NDN_LOCAL, 0, index);
        return;
    }
    if (next_hop->flags & GW_NDN_HOP_BLACKHOLE) {
        gw_drop(outcome, GW_NDN_BLACKHOLE);
        return;
    }
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    if (interest->hop_limit != 0 && frame[interest->hop_limit] == 1) {
        gw_drop(outcome, GW_NDN_HOP_LIMIT);
        return;
    }
    if (descriptor->head + span->start < span->l3 + gw_ndn_carrier_bytes(next_hop->carrier)) {
        gw_drop(outcome, GW_NDN_NO_ROOM);
        return;
    }
    if (interest->hop_limit != 0) {
        frame[interest->hop_limit] = (gw_u8)(frame[interest->hop_limit] - 1);
    }
    gw_ndn_write_headers(lane, next_hop, span, descriptor);
    gw_verdict(outcome, GW_NDN_FORWARD, next_hop->port, index);
}

GW_CALLED void gw_ndn_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    gw_ndn_span span;
    gw_ndn_interest interest;
    if (gw_ndn_begin(lane, descriptor, &span, &interest, outcome)) {
        const gw_u32 index = gw_ndn_lookup(lane->image, gw_frame(lane, descriptor) + interest.name,
                                           interest.name_bytes);
        gw_ndn_end(lane, descriptor, &span, &interest, index, outcome);
    }
}

#endif
