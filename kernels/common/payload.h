/*
 * Location of the application payload in a frame.
 *
 *   frame                                     payload starts after    payload ends at
 *   incomplete Ethernet header or tag         truncated
 *   EtherType neither IPv4 nor IPv6           Ethernet and tag        end of frame
 *   IPv4 < 20 bytes, IPv6 < 40 bytes          truncated
 *   IPv4: version not 4, IHL < 5,
 *     total length < 4 * IHL                  Ethernet and tag        end of frame
 *   IPv6: version not 6                       Ethernet and tag        end of frame
 *   IP's length exceeds the frame             truncated
 *   IPv4 with MF or a fragment offset         IP header               end of packet
 *   TCP: fewer bytes than 20 or than the
 *     data offset                             truncated
 *   TCP: data offset < 5                      IP header               end of packet
 *   TCP otherwise                             TCP header              end of packet
 *   UDP: fewer than 8 bytes                   truncated
 *   UDP otherwise                             UDP header              end of packet
 *   any other protocol                        IP header               end of packet
 *
 * The end of the packet is given by IP: total length (IPv4) or 40 + payload length (IPv6), so
 * Ethernet padding is not payload. IPv6 extension headers are not parsed. A packet with extension
 * headers counts as "any other protocol": all of them are payload, so they cannot hide data from
 * the search.
 *
 * Spec: RFC 791 section 3.1, RFC 8200 section 3, RFC 9293 section 3.1, RFC 768.
 */
#ifndef GODWIT_PAYLOAD_H
#define GODWIT_PAYLOAD_H

#include "frame.h"

/* Byte range of the payload in a frame. Offsets count from the first byte of the frame. A truncated
 * frame has start > end. */
typedef struct gw_payload {
    gw_u32 start;
    gw_u32 end;
} gw_payload;

GW_LANE gw_payload gw_payload_span(gw_u32 start, gw_u32 end)
{
    gw_payload span;
    span.start = start;
    span.end = end;
    return span;
}

GW_LANE gw_payload gw_payload_truncated(void)
{
    return gw_payload_span(1, 0);
}

/* Returns the range of the payload after the TCP or UDP header at offset `l4`. */
GW_LANE gw_payload gw_payload_l4(const GW_GLOBAL gw_u8 *frame, gw_u32 protocol, gw_u32 l4,
                                 gw_u32 end)
{
    const gw_u32 available = end - l4;
    if (protocol == GW_PROTOCOL_UDP) {
        return available < 8 ? gw_payload_truncated() : gw_payload_span(l4 + 8, end);
    }
    if (protocol == GW_PROTOCOL_TCP) {
        if (available < 20) {
            return gw_payload_truncated();
        }
        const gw_u32 header_bytes = (gw_u32)(frame[l4 + 12] >> 4) * 4;
        if (header_bytes > available) {
            return gw_payload_truncated();
        }
        return gw_payload_span(header_bytes < 20 ? l4 : l4 + header_bytes, end);
    }
    return gw_payload_span(l4, end);
}

GW_LANE gw_payload gw_payload_ipv4(const GW_GLOBAL gw_u8 *frame, gw_u32 offset, gw_u32 length)
{
    if (length - offset < 20) {
        return gw_payload_truncated();
    }
    const gw_u32 header_bytes = (gw_u32)(frame[offset] & 15) * 4;
    const gw_u32 total_length = gw_load_be16(frame + offset + 2);
    if (frame[offset] >> 4 != 4 || header_bytes < 20 || total_length < header_bytes) {
        return gw_payload_span(offset, length);
    }
    if (total_length > length - offset) {
        return gw_payload_truncated();
    }
    /* A fragment may lack the transport header, or contain only a part of it. */
    const gw_u32 fragment = gw_load_be16(frame + offset + 6) & 0x3fff;
    const gw_u32 protocol = fragment ? 0 : frame[offset + 9];
    return gw_payload_l4(frame, protocol, offset + header_bytes, offset + total_length);
}

GW_LANE gw_payload gw_payload_ipv6(const GW_GLOBAL gw_u8 *frame, gw_u32 offset, gw_u32 length)
{
    if (length - offset < 40) {
        return gw_payload_truncated();
    }
    if (frame[offset] >> 4 != 6) {
        return gw_payload_span(offset, length);
    }
    const gw_u32 total_length = 40 + gw_load_be16(frame + offset + 4);
    if (total_length > length - offset) {
        return gw_payload_truncated();
    }
    return gw_payload_l4(frame, frame[offset + 6], offset + 40, offset + total_length);
}

GW_LANE gw_payload gw_payload_parse(const GW_GLOBAL gw_u8 *frame, gw_u32 length)
{
    const gw_l3 l3 = gw_l3_parse(frame, length);
    if (l3.offset == 0) {
        return gw_payload_truncated();
    }
    if (l3.ether_type == GW_ETHER_TYPE_IPV4) {
        return gw_payload_ipv4(frame, l3.offset, length);
    }
    if (l3.ether_type == GW_ETHER_TYPE_IPV6) {
        return gw_payload_ipv6(frame, l3.offset, length);
    }
    return gw_payload_span(l3.offset, length);
}

#endif
