/* godwit function ipsec
summary = """\
    Encapsulates and decapsulates IP packets by policy: ESP and AH, in tunnel and transport mode."""
spec    = """\
    RFC 4301, RFC 4302, RFC 4303, RFC 2404, RFC 3566, RFC 3602, RFC 3686, RFC 3948, RFC 4106, \
    RFC 4309, RFC 4494, RFC 4543, RFC 4868, RFC 6040, RFC 7634"""
number  = 3
magic   = "IPSE"
reads   = "all"
writes  = "all"
headroom = 88                    # outer IPv6 header, then AH with the ICV of HMAC-SHA-512-256
tailroom = 49                    # padding to the cipher block, pad length, next header, ICV
in_order = true
form    = "team"
host    = ["continues_on_device"]
variants = [
    "cbc128_sha1_out", "cbc128_sha1_in", "cbc192_sha1_out", "cbc192_sha1_in",
    "cbc256_sha1_out", "cbc256_sha1_in", "cbc128_sha256_out", "cbc128_sha256_in",
    "cbc192_sha256_out", "cbc192_sha256_in", "cbc256_sha256_out", "cbc256_sha256_in",
    "cbc128_none_out", "cbc128_none_in", "ctr128_sha1_out", "ctr128_sha1_in",
    "ctr192_sha1_out", "ctr192_sha1_in", "ctr256_sha1_out", "ctr256_sha1_in",
    "ctr128_sha256_out", "ctr128_sha256_in", "ctr192_sha256_out", "ctr192_sha256_in",
    "ctr256_sha256_out", "ctr256_sha256_in", "null_sha1_out", "null_sha1_in",
    "null_sha256_out", "null_sha256_in", "gcm128_out", "gcm128_in", "gcm192_out", "gcm192_in",
    "gcm256_out", "gcm256_in", "gmac128_out", "gmac128_in", "gmac192_out", "gmac192_in",
    "gmac256_out", "gmac256_in", "chacha20_poly1305_out", "chacha20_poly1305_in",
    "ah_sha1_out", "ah_sha1_in", "ah_sha256_out", "ah_sha256_in", "ah_gmac128_out",
    "ah_gmac128_in", "ah_gmac192_out", "ah_gmac192_in", "ah_gmac256_out", "ah_gmac256_in",
    "ccm128_out", "ccm128_in", "ccm192_out", "ccm192_in", "ccm256_out", "ccm256_in",
    "cbc128_sha384_out", "cbc128_sha384_in", "cbc192_sha384_out", "cbc192_sha384_in",
    "cbc256_sha384_out", "cbc256_sha384_in", "ctr128_sha384_out", "ctr128_sha384_in",
    "ctr192_sha384_out", "ctr192_sha384_in", "ctr256_sha384_out", "ctr256_sha384_in",
    "null_sha384_out", "null_sha384_in", "ah_sha384_out", "ah_sha384_in", "cbc128_sha512_out",
    "cbc128_sha512_in", "cbc192_sha512_out", "cbc192_sha512_in", "cbc256_sha512_out",
    "cbc256_sha512_in", "ctr128_sha512_out", "ctr128_sha512_in", "ctr192_sha512_out",
    "ctr192_sha512_in", "ctr256_sha512_out", "ctr256_sha512_in", "null_sha512_out",
    "null_sha512_in", "ah_sha512_out", "ah_sha512_in",
    "cbc128_xcbc_out", "cbc128_xcbc_in", "cbc192_xcbc_out", "cbc192_xcbc_in", "cbc256_xcbc_out",
    "cbc256_xcbc_in", "ctr128_xcbc_out", "ctr128_xcbc_in", "ctr192_xcbc_out", "ctr192_xcbc_in",
    "ctr256_xcbc_out", "ctr256_xcbc_in", "null_xcbc_out", "null_xcbc_in", "ah_xcbc_out",
    "ah_xcbc_in", "cbc128_cmac_out", "cbc128_cmac_in", "cbc192_cmac_out", "cbc192_cmac_in",
    "cbc256_cmac_out", "cbc256_cmac_in", "ctr128_cmac_out", "ctr128_cmac_in", "ctr192_cmac_out",
    "ctr192_cmac_in", "ctr256_cmac_out", "ctr256_cmac_in", "null_cmac_out", "null_cmac_in",
    "ah_cmac_out", "ah_cmac_in",
]
[verdicts]
encrypted = {
    text = """\
        The packet was encapsulated and is now an ESP or AH packet. Keepalives of SAs count here \
        too.""",
    value = "the SPI",
}
decrypted = {
    text = "An ESP or AH packet for a local endpoint was authentic and was decapsulated.",
    value = "the SPI",
}
bypass = "A policy lets the packet pass unchanged."
not_ip = "The frame carries no IP packet and passes unchanged."
too_big = "The packet is too long for its tunnel: the frame is now the ICMP error to its sender."
[drops]
truncated = "The frame is shorter than its IP packet."
malformed = "A header is inconsistent, or the outer checksum is wrong."
policy_discard = "A policy discards the packet, or no policy matches it (RFC 4301, section 4.4.1)."
no_sa = "An ESP or AH packet for a local endpoint has an SPI that belongs to no inbound SA."
no_room = """\
    The buffer has too little headroom or tailroom, or the packet has more mutable IPv6 options \
    than AH supports."""
authentication = "The ICV is wrong: the packet was changed, or the keys differ."
padding = "The padding of an authentic packet is not 1, 2, 3 … (RFC 4303, section 2.4)."
sequence_exhausted = "The SA has used all its sequence numbers (RFC 4303, section 3.3.3)."
wrong_worker = "The packet arrived at a worker that does not own its SA."
policy_mismatch = """\
    The packet does not match the selectors or mode of its SA (RFC 4301, section 5.2)."""
fragment = """\
    A fragment addressed to a local endpoint, or a fragment that a policy assigns to a transport \
    mode SA."""
dummy = "A dummy packet for traffic flow confidentiality: next header 59 (RFC 4303, section 2.6)."
congestion = """\
    The outer header has a congestion mark that the inner packet cannot carry (RFC 6040, \
    section 4.2)."""
replayed = """\
    The sequence number was already received, or is older than the replay window (RFC 4303, \
    section 3.4.3)."""
lifetime = "The hard lifetime of the SA has expired (RFC 4301, section 4.4.2.1)."
keepalive = "A NAT keepalive packet (RFC 3948, section 2.3)."
too_big = """\
    The packet is too long for its tunnel, and an ICMP error to its sender is not possible or not \
    allowed."""
fragment_overlap = """\
    A fragment overlaps or contradicts another one: all fragments of the packet are dropped."""
fragment_limit = "A fragment of a packet that would be too long, or beyond the reassembly limits."
fragment_timeout = "A fragment of a packet whose other fragments did not arrive in time."
not_durable = "The sequence number is not yet durable in the state folder."
unprotected = """\
    The packet came from an unprotected port, and a policy would protect it (RFC 4301, \
    section 5.2)."""
*/
/*
 * Kernel of the packet function `ipsec`: ESP and AH in tunnel and transport mode, with IPv4 and
 * IPv6 inside and outside. The algorithms are listed in suite.h.
 *
 * The host half of ipsec has already matched outbound packets with a policy and looked up the SPI
 * of inbound packets. The parameter of a packet is its SA's index << 44 | its sequence number. For
 * inbound packets, the CPU infers the upper bits of the sequence number. Suite and direction
 * determine the kind of processing (suite.h).
 *
 *   tunnel      | L2 | packet ............................... | Ethernet padding |
 *               | L2 | outer IP | UDP | ESP | IV | packet | pad | ICV |
 *   bytes    14/18      20/40     0/8   8  0/8/16    n      2-17  0-32
 *   transport   | L2 | IP | UDP | ESP | IV | payload | pad | ICV |
 *   AH          | L2 | outer IP, or IP | AH with ICV | packet or payload |
 *   bytes    14/18        20/40             24-48          n
 *
 * The inner packet or payload is not moved. The headers in front of an outbound packet move into
 * the headroom of its buffer. The headers in front of an inbound packet move back. Ethernet padding
 * after the IP packet is dropped.
 *
 *   find.h          the SA of a packet
 *   packet.h        IP headers and extension headers
 *   fields.h        header fields, in words of one packet or of sixteen packets
 *   simple.h        headers of IPv4 in IPv4 tunnels, in words of one packet or of sixteen packets
 *   outer.h         fields of the outer header
 *   outbound.h      headers in front of ESP or AH, for outbound packets
 *   inbound.h       headers in front of ESP or AH, for inbound packets
 *   encapsulate.h   ESP, for outbound packets
 *   decapsulate.h   ESP, for inbound packets
 *   ah.h            AH
 *   mutable.h       header fields that AH does not authenticate
 *   selector.h      selectors of inbound SAs
 *   nat.h           transport checksums of packets that passed a NAT
 *   transform.h     ciphers and authentication
 *
 * Cost: the kernel reads and writes every byte of the packet. It needs one dependent load (the SA),
 * and two more for inbound packets (the selectors).
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

/* Prefetches the six cache lines of the packet's SA (security association) that every suite uses.
 * With many SAs, they are rarely in the cache. */
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
