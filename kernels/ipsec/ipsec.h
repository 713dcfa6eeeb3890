/*
 * ipsec: ESP in tunnel mode over IPv4, AES-128-CBC with HMAC-SHA1-96.
 *
 * The host half has matched the policy or looked up the SPI; parameter = index
 * of the SA << 44 | sequence number (outbound). Variants: suite.h.
 *
 *   before   | L2 | IPv4 packet .......................... | trailer of L2 |
 *   after    | L2 | outer IPv4 | ESP | IV | IPv4 packet | pad | ICV |
 *   bytes    14/18      20        8    16    n            2-17   12
 *
 * Encryption moves L2 forward into the headroom and leaves the packet where it
 * is; decryption moves L2 back in front of it. What follows the IPv4 packet in
 * the frame (Ethernet padding) is not carried.
 *
 * Reads    the frame; the SA's 384 bytes; inbound the SA's selectors
 * Writes   the frame and, encrypting, 44 bytes in front of it and up to 29 behind
 * Next     encrypted (0), decrypted (1), bypass (2, host half only), not_ipv4 (3);
 *          value of the first two: the SPI
 * Drops    truncated (0), malformed (1), policy_discard (2, host half only), no_sa (3),
 *          no_room (4), authentication (5), padding (6), sequence_exhausted (7) and
 *          wrong_worker (8, both host half only), policy_mismatch (9), fragment (10),
 *          dummy (11), congestion (12)
 * Tables   gw_ipsec_image: the SAs, the selectors of inbound SAs
 * Cost     reads and writes every byte of the packet; one dependent load (the SA),
 *          two more inbound (selectors)
 * Spec     RFC 4303 (ESP), RFC 4301 (sections 4, 5 and 8), RFC 3602
 *          (AES-CBC), RFC 2404 (HMAC-SHA1-96), RFC 6040 (ECN)
 */
#ifndef GODWIT_IPSEC_H
#define GODWIT_IPSEC_H

#include "packet.h"

#include "decrypt.h"
#include "encrypt.h"

#define GW_IPSEC_VARIANT_ENCRYPT 0u

/* The SA that the parameter names; NULL where the image has none, or one of the other direction. */
GW_LANE const GW_GLOBAL gw_ipsec_sa *gw_ipsec_sa_of(const gw_lane *lane)
{
    const GW_GLOBAL gw_ipsec_image *image = (const GW_GLOBAL gw_ipsec_image *)lane->image;
    const gw_u32 index = gw_ipsec_sa_index(lane->parameter);
    if (index >= image->sa_count || lane->variant >> 1 != 0) {
        return 0;
    }
    const GW_GLOBAL gw_ipsec_sa *sa =
        (const GW_GLOBAL gw_ipsec_sa *)(lane->image + image->sa_offset) + index;
    const gw_u32 inbound = (sa->flags & GW_IPSEC_SA_INBOUND) != 0;
    const gw_u32 right = (sa->flags & GW_IPSEC_SA_USED) != 0 && sa->suite == lane->variant >> 1 &&
                         inbound == gw_ipsec_direction(lane->variant);
    return right ? sa : 0;
}

/* Where a packet's SA and layer 3 are. */
typedef struct gw_ipsec_found {
    const GW_GLOBAL gw_ipsec_sa *sa; /* 0: the packet is settled */
    gw_u32 l2_bytes;
} gw_ipsec_found;

/* What comes first in both directions. */
GW_LANE gw_ipsec_found gw_ipsec_find(const gw_lane *lane, const gw_descriptor *descriptor,
                                     gw_outcome *outcome)
{
    const gw_l3 l3 = gw_l3_parse(gw_frame(lane, descriptor), descriptor->length);
    gw_ipsec_found found;
    found.sa = 0;
    found.l2_bytes = l3.offset;
    if (l3.offset == 0) {
        gw_drop(outcome, GW_IPSEC_TRUNCATED);
        return found;
    }
    if (l3.ether_type != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_IPSEC_NOT_IPV4, 0, 0);
        return found;
    }
    found.sa = gw_ipsec_sa_of(lane);
    if (found.sa == 0) {
        gw_drop(outcome, GW_IPSEC_NO_SA);
    }
    return found;
}

GW_LANE void gw_ipsec_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const gw_ipsec_found found = gw_ipsec_find(lane, descriptor, outcome);
    if (found.sa == 0) {
        return;
    }
    if (lane->variant == GW_IPSEC_VARIANT_ENCRYPT) {
        gw_ipsec_encrypt(lane, found.sa, found.l2_bytes, descriptor, outcome);
    } else {
        gw_ipsec_decrypt(lane, found.sa, found.l2_bytes, descriptor, outcome);
    }
}

/* The SA is likely to miss where there are many. */
GW_LANE void gw_ipsec_touch(const gw_lane *lane, const gw_descriptor *descriptor)
{
    const GW_GLOBAL gw_ipsec_image *image = (const GW_GLOBAL gw_ipsec_image *)lane->image;
    const GW_GLOBAL gw_u8 *sa =
        lane->image + image->sa_offset + gw_ipsec_sa_index(lane->parameter) * sizeof(gw_ipsec_sa);
    (void)descriptor;
    (void)sa;
    GW_FETCH(sa);
    GW_FETCH(sa + 64);
    GW_FETCH(sa + 128);
    GW_FETCH(sa + 192);
    GW_FETCH(sa + 256);
}

#endif
