/*
 * Kernel `ipsec`: ESP and AH in tunnel and transport mode, with IPv4 and IPv6 inside and outside.
 * suite.h lists the transforms.
 *
 * The host half has already matched the policy (outbound) or looked up the SPI (inbound). The
 * parameter of a packet is its SA's index << 44 | its sequence number. Inbound, the host half
 * infers the upper bits of the sequence number. suite.h defines the variants.
 *
 *   tunnel      | L2 | packet ............................... | Ethernet padding |
 *               | L2 | outer IP | UDP | ESP | IV | packet | pad | ICV |
 *   bytes    14/18      20/40     0/8   8  0/8/16    n      2-17  0-16
 *   transport   | L2 | IP | UDP | ESP | IV | payload | pad | ICV |
 *   AH          | L2 | outer IP, or IP | AH with ICV | packet or payload |
 *   bytes    14/18        20/40             24-40          n
 *
 * The inner packet or payload is not moved. Outbound, the headers in front of it move into the
 * headroom. Inbound, they move back. Ethernet padding after the IP packet is dropped.
 *
 *   find.h          the SA of a packet
 *   packet.h        IP headers and extension headers
 *   outer.h         fields of the outer header
 *   outbound.h      headers in front of ESP or AH, outbound
 *   inbound.h       headers in front of ESP or AH, inbound
 *   encapsulate.h   ESP, outbound
 *   decapsulate.h   ESP, inbound
 *   ah.h            AH
 *   mutable.h       header fields that AH does not authenticate
 *   selector.h      selectors of inbound SAs
 *   nat.h           transport checksums of packets that passed a NAT
 *   transform.h     ciphers and authentication
 *
 * Reads    the frame; the SA's 384 bytes; inbound the SA's selectors
 * Writes   the frame; outbound up to 80 bytes in front of it and up to 33 bytes after it
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
 *          RFC 6040 (ECN); suite.h cites the RFCs of the transforms
 */
#ifndef GODWIT_IPSEC_H
#define GODWIT_IPSEC_H

#include "packet.h"
#include "find.h"
#include "outer.h"
#include "selector.h"
#include "outbound.h"
#include "nat.h"
#include "inbound.h"
#include "encapsulate.h"
#include "decapsulate.h"
#include "transform.h"
#include "mutable.h"
#include "ah.h"

GW_LANE void gw_ipsec_esp_encapsulate(const gw_lane *lane, gw_ipsec_found found,
                                      gw_ipsec_suite suite, gw_descriptor *descriptor,
                                      gw_outcome *outcome)
{
    const gw_ipsec_encryption encryption =
        gw_ipsec_esp_encapsulate_begin(lane, found, suite, descriptor, outcome);
    if (encryption.cipher_bytes != 0) {
        gw_ipsec_esp_encrypt(found.sa, suite, encryption.esp, encryption.cipher_bytes,
                             encryption.sequence);
        gw_ipsec_esp_encapsulate_end(found, suite, encryption);
    }
}

GW_LANE void gw_ipsec_esp_decapsulate(const gw_lane *lane, gw_ipsec_found found,
                                      gw_ipsec_suite suite, gw_descriptor *descriptor,
                                      gw_outcome *outcome)
{
    const gw_ipsec_decryption decryption =
        gw_ipsec_esp_decapsulate_begin(lane, found, suite, descriptor, outcome);
    if (decryption.cipher_bytes == 0) {
        return;
    }
    if (!gw_ipsec_esp_decrypt(found.sa, suite, decryption.esp, decryption.cipher_bytes,
                              decryption.sequence)) {
        gw_drop(outcome, GW_IPSEC_AUTHENTICATION);
        return;
    }
    gw_ipsec_esp_decapsulate_end(lane, found, suite, decryption, descriptor, outcome);
}

GW_LANE void gw_ipsec_ah_encapsulate(const gw_lane *lane, gw_ipsec_found found,
                                     gw_ipsec_suite suite, gw_descriptor *descriptor,
                                     gw_outcome *outcome)
{
    gw_ipsec_ah_input input;
    gw_ipsec_ah_encapsulate_begin(lane, found, suite, &input, descriptor, outcome);
    if (input.bytes != 0) {
        gw_ipsec_ah_encapsulate_end(
            found, suite, &input,
            gw_ipsec_ah_tag(found.sa, suite, input.header, input.bytes, input.iv, input.sequence));
    }
}

GW_LANE void gw_ipsec_ah_decapsulate(const gw_lane *lane, gw_ipsec_found found,
                                     gw_ipsec_suite suite, gw_descriptor *descriptor,
                                     gw_outcome *outcome)
{
    gw_ipsec_ah_input input;
    gw_ipsec_ah_decapsulate_begin(lane, found, suite, &input, descriptor, outcome);
    if (input.bytes != 0) {
        gw_ipsec_ah_decapsulate_end(
            lane, found, suite, &input,
            gw_ipsec_ah_tag(found.sa, suite, input.header, input.bytes, input.iv, input.sequence),
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
            gw_ipsec_ah_encapsulate(lane, found, suite, descriptor, outcome);
        } else {
            gw_ipsec_ah_decapsulate(lane, found, suite, descriptor, outcome);
        }
    } else if (outbound) {
        gw_ipsec_esp_encapsulate(lane, found, suite, descriptor, outcome);
    } else {
        gw_ipsec_esp_decapsulate(lane, found, suite, descriptor, outcome);
    }
}

/* Prefetches the six cache lines of the packet's SA. With many SAs, the SA is rarely in the cache.
 */
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
