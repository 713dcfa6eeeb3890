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
 * Reads    all of the frame
 * Writes   forward: HopLimit, and all headers before the NDN packet, which may become up to 48
 *          bytes longer or shorter
 * Next     forward (0), port and value = port and index of the next hop;
 *          local (1), value = index of the next hop; data (2); other (3); not_ndn (4)
 * Drops    truncated (0), malformed (1), checksum (2), hop_limit (3), no_nonce (4), no_route (5),
 *          blackhole (6), no_room (7)
 * Tables   image.h; variant 0
 * Cost     the bytes of the frame; over UDP, those after the name twice; for most names 2 dependent
 *          loads that miss every cache (bucket, record), and 2 more for each longer prefix tried
 * Spec     NDN Packet Format Specification 0.3; NDNLPv2; RFC 768, RFC 791, RFC 8200
 */
#ifndef GODWIT_NDN_H
#define GODWIT_NDN_H

#define GW_NDN_FORWARD  0u
#define GW_NDN_TO_LOCAL 1u
#define GW_NDN_IS_DATA  2u
#define GW_NDN_OTHER    3u
#define GW_NDN_NOT_NDN  4u

#define GW_NDN_TRUNCATED  0u
#define GW_NDN_MALFORMED  1u
#define GW_NDN_CHECKSUM   2u
#define GW_NDN_HOPS       3u
#define GW_NDN_NO_NONCE   4u
#define GW_NDN_NO_ROUTE   5u
#define GW_NDN_BLACKHOLED 6u
#define GW_NDN_NO_ROOM    7u

#include "find.h"
#include "tlv.h"
#include "carrier.h"

/* Applies rules 12 to 17 (top of this file) and parses the Interest. Returns 0 if the outcome is
 * decided. */
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
    if (packet.type != GW_NDN_INTEREST) {
        return gw_ndn_decided(outcome, packet.type == GW_NDN_DATA ? GW_NDN_IS_DATA : GW_NDN_OTHER);
    }
    if (!gw_ndn_interest_parse(frame, packet.value, packet.end, interest)) {
        return gw_ndn_dropped(outcome, GW_NDN_MALFORMED);
    }
    return 1;
}

/* Applies rules 1 to 19 (top of this file) and parses the Interest. Returns 0 if the outcome is
 * decided. */
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
        return gw_ndn_dropped(outcome, GW_NDN_HOPS);
    }
    return interest->has_nonce ? 1 : gw_ndn_dropped(outcome, GW_NDN_NO_NONCE);
}

/* Applies rules 20 to 25 (top of this file) to the result of the look-up. */
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
    if (next_hop->flags & GW_NDN_LOCAL) {
        gw_verdict(outcome, GW_NDN_TO_LOCAL, 0, index);
        return;
    }
    if (next_hop->flags & GW_NDN_BLACKHOLE) {
        gw_drop(outcome, GW_NDN_BLACKHOLED);
        return;
    }
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    if (interest->hop_limit != 0 && frame[interest->hop_limit] == 1) {
        gw_drop(outcome, GW_NDN_HOPS);
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
