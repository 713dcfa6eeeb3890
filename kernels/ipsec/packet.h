/* What both directions of ipsec share: outcomes, lengths, the IPv4 header. */
#ifndef GODWIT_IPSEC_PACKET_H
#define GODWIT_IPSEC_PACKET_H

#include "image.h"
#include "suite.h"
#include "transform.h"

#define GW_IPSEC_ENCRYPTED 0u
#define GW_IPSEC_DECRYPTED 1u
#define GW_IPSEC_NOT_IPV4  3u

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
#define GW_ESP_HEADER_BYTES 8u /* SPI, sequence number (RFC 4303, section 2) */
#define GW_ESP_TAIL_BYTES   2u /* pad length, next header */
#define GW_AES_BLOCK_BYTES  16u
#define GW_ESP_ICV_BYTES    12u /* RFC 2404, section 3: the first 96 bits */

#define GW_PROTOCOL_IPV4 4u
#define GW_PROTOCOL_ESP  50u
#define GW_PROTOCOL_NONE 59u

/* The lengths of an IPv4 packet, checked (RFC 791, section 3.1). */
typedef struct gw_ipsec_ipv4 {
    gw_u32 header_bytes; /* 20..60 */
    gw_u32 total_bytes;  /* header_bytes..65535, and there */
    gw_u32 error;        /* GW_IPSEC_FINE, or the drop reason */
} gw_ipsec_ipv4;

/* `bytes`: how many there are from the header's first byte on. */
GW_LANE gw_ipsec_ipv4 gw_ipsec_ipv4_parse(const GW_GLOBAL gw_u8 *packet, gw_u32 bytes)
{
    gw_ipsec_ipv4 ip;
    ip.header_bytes = 0;
    ip.total_bytes = 0;
    ip.error = GW_IPSEC_TRUNCATED;
    if (bytes < GW_IPV4_BYTES) {
        return ip;
    }
    ip.header_bytes = (packet[0] & 0x0fu) * 4;
    ip.total_bytes = gw_load_be16(packet + 2);
    if (packet[0] >> 4 != 4 || ip.header_bytes < GW_IPV4_BYTES ||
        ip.total_bytes < ip.header_bytes) {
        ip.error = GW_IPSEC_MALFORMED;
    } else if (ip.total_bytes <= bytes) {
        ip.error = GW_IPSEC_FINE;
    }
    return ip;
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

/* The ICV of what lies between the outer IPv4 header and the ICV (RFC 4303, section 3.3.2). */
GW_LANE gw_sha1 gw_ipsec_icv(const GW_GLOBAL gw_ipsec_sa *sa, const GW_GLOBAL gw_u8 *esp,
                             gw_u32 bytes)
{
    return gw_hmac_sha1(sa->authentication, sa->authentication + GW_IPSEC_HMAC_OUTER,
                        gw_text_of(esp, bytes));
}

#endif
