/*
 * ipsec: ESP and AH in tunnel and transport mode, IPv4 and IPv6 inside and outside, with the
 * transforms of suite.h.
 *
 * The host half has matched the policy or looked up the SPI; parameter = index of the SA << 44 |
 * sequence number, inbound the one that it has inferred. Variants: suite.h.
 *
 *   tunnel      | L2 | packet ............................... | trailer of L2 |
 *               | L2 | outer IP | UDP | ESP | IV | packet | pad | ICV |
 *   bytes    14/18      20/40     0/8   8  0/8/16    n      2-17  0-16
 *   transport   | L2 | IP | UDP | ESP | IV | payload | pad | ICV |
 *   AH          | L2 | outer IP, or IP | AH with ICV | packet or payload |
 *   bytes    14/18        20/40             24-40          n
 *
 * What is inside stays where it is. Outbound, L2 and the headers that remain in front move into the
 * headroom; inbound they move back. What follows the IP packet in the frame (Ethernet padding) is
 * not carried.
 *
 *   find.h          the SA
 *   packet.h        IP headers and extension headers
 *   outer.h         fields of the outer header
 *   enter.h         headers in front, outbound      leave.h         the same, inbound
 *   encapsulate.h   ESP, outbound                   decapsulate.h   ESP, inbound
 *   ah.h            AH                              mutable.h       what AH does not cover
 *   selector.h      what an SA may carry            nat.h           checksums behind a NAT
 *   transform.h     ciphers and authentication
 *
 * Reads    the frame; the SA's 384 bytes; inbound the SA's selectors
 * Writes   the frame and, outbound, up to 80 bytes in front of it and up to 33 behind
 * Next     encrypted (0), decrypted (1), not_ip (3); value of the first two: the SPI; by the host
 *          half only: bypass (2), too_big (4)
 * Drops    truncated (0), malformed (1), no_sa (3), no_room (4), authentication (5), padding (6),
 *          policy_mismatch (9), fragment (10), dummy (11), congestion (12); by the host half
 *          only: policy_discard (2), sequence_exhausted (7), wrong_worker (8), replayed (13),
 *          lifetime (14), keepalive (15), too_big (16), fragment_overlap (17),
 *          fragment_limit (18), fragment_timeout (19)
 * Tables   gw_ipsec_image: the SAs, the selectors of inbound SAs
 * Cost     reads and writes every byte of the packet; one dependent load (the SA),
 *          two more inbound (selectors)
 * Spec     RFC 4301 (sections 4, 5 and 8), RFC 4302 (AH), RFC 4303 (ESP), RFC 3948 (ESP in UDP),
 *          RFC 6040 (ECN); those of the transforms: suite.h
 */
#ifndef GODWIT_IPSEC_H
#define GODWIT_IPSEC_H

#include "packet.h"
#include "find.h"
#include "outer.h"
#include "selector.h"
#include "enter.h"
#include "nat.h"
#include "leave.h"
#include "encapsulate.h"
#include "decapsulate.h"
#include "transform.h"
#include "mutable.h"
#include "ah.h"

GW_LANE void gw_ipsec_encrypt(const gw_lane *lane, gw_ipsec_found found, gw_ipsec_suite suite,
                              gw_descriptor *descriptor, gw_outcome *outcome)
{
    const gw_ipsec_sealing sealing = gw_ipsec_seal_begin(lane, found, suite, descriptor, outcome);
    if (sealing.cipher_bytes != 0) {
        gw_ipsec_seal(found.sa, suite, sealing.esp, sealing.cipher_bytes, sealing.sequence);
        gw_ipsec_seal_end(found, suite, sealing);
    }
}

GW_LANE void gw_ipsec_decrypt(const gw_lane *lane, gw_ipsec_found found, gw_ipsec_suite suite,
                              gw_descriptor *descriptor, gw_outcome *outcome)
{
    const gw_ipsec_opening opening = gw_ipsec_open_begin(lane, found, suite, descriptor, outcome);
    if (opening.cipher_bytes == 0) {
        return;
    }
    if (!gw_ipsec_open(found.sa, suite, opening.esp, opening.cipher_bytes, opening.sequence)) {
        gw_drop(outcome, GW_IPSEC_AUTHENTICATION);
        return;
    }
    gw_ipsec_open_end(lane, found, suite, opening, descriptor, outcome);
}

GW_LANE void gw_ipsec_sign(const gw_lane *lane, gw_ipsec_found found, gw_ipsec_suite suite,
                           gw_descriptor *descriptor, gw_outcome *outcome)
{
    gw_ipsec_signing signing;
    gw_ipsec_sign_begin(lane, found, suite, &signing, descriptor, outcome);
    if (signing.bytes != 0) {
        gw_ipsec_sign_end(found, suite, &signing,
                          gw_ipsec_authenticate(found.sa, suite, signing.header, signing.bytes,
                                                signing.iv, signing.sequence));
    }
}

GW_LANE void gw_ipsec_verify(const gw_lane *lane, gw_ipsec_found found, gw_ipsec_suite suite,
                             gw_descriptor *descriptor, gw_outcome *outcome)
{
    gw_ipsec_signing signing;
    gw_ipsec_verify_begin(lane, found, suite, &signing, descriptor, outcome);
    if (signing.bytes != 0) {
        gw_ipsec_verify_end(lane, found, suite, &signing,
                            gw_ipsec_authenticate(found.sa, suite, signing.header, signing.bytes,
                                                  signing.iv, signing.sequence),
                            descriptor, outcome);
    }
}

GW_LANE void gw_ipsec_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const gw_ipsec_suite suite = gw_ipsec_suite_of(lane->variant);
    const gw_ipsec_found found = gw_ipsec_find(lane, descriptor, outcome);
    if (found.sa == 0) {
        return;
    }
    const gw_u32 outbound = gw_ipsec_direction(lane->variant) == GW_IPSEC_OUTBOUND;
    if (suite.protocol == GW_IPSEC_AH) {
        if (outbound) {
            gw_ipsec_sign(lane, found, suite, descriptor, outcome);
        } else {
            gw_ipsec_verify(lane, found, suite, descriptor, outcome);
        }
    } else if (outbound) {
        gw_ipsec_encrypt(lane, found, suite, descriptor, outcome);
    } else {
        gw_ipsec_decrypt(lane, found, suite, descriptor, outcome);
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
    GW_FETCH(sa + 320);
}

#endif
