/* godwit function hash
summary = "Computes the MD5, SHA-1 or SHA-256 digest of every packet, and compares it with a list."
spec    = "RFC 1321, FIPS 180-4"
number  = 9
magic   = "HASH"
reads   = "all"
variants = ["md5", "sha1", "sha256"]
[verdicts]
pass = {
    text = "The list does not contain the digest.",
    value = "the first four bytes of the digest",
}
listed = {
    text = "The list contains the digest.",
    value = "the line of the digest in its file",
}
[drops]
truncated = "The headers state more bytes than the frame has."
[constants]
starts_offset = "usize = 64: Offset of the indices of rows."
over_frame = "u32 = 0: Value of `over`: the digest covers the frame."
over_payload = "u32 = 1: Value of `over`: the digest covers the payload."
[structs.image]
text = "Header of the table image, drawn in hash.h"
fields.magic = "u32: GW_HASH_MAGIC"
fields.over = "u32: bytes that the digest covers"
fields.shift = "u32: 32 minus the number of bits that select a slot; 8 to 31"
fields.rows = "u32: number of digests"
fields.rows_offset = "u64: offset of the rows"
fields.bytes = "u64: size of the image"
[structs.row]
text = "Digest of the list"
fields.words = "u32[8]: big-endian words of the digest; the words after a shorter digest are 0"
fields.line = "u32: line of the digest in its file, from 1"
fields.pad = "u32[7]: 0"
*/
/*
 * hash: the digest of every packet.
 *
 * The digest covers the whole frame, from the Ethernet header to the last byte without FCS, or its
 * payload as common/payload.h defines it. The kernel compares the digest with a list. It does not
 * write to the packet.
 *
 * The kernel reads all covered bytes, then two adjacent indices and usually one row of the list.
 */
#ifndef GODWIT_HASH_H
#define GODWIT_HASH_H

#include "../common/md5.h"
#include "../common/payload.h"
#include "../common/sha1.h"
#include "../common/sha256.h"

/*
 * Table image of hash: digests in ascending order. The upper bits of a digest select a slot, which
 * is a range of rows. Digests are distributed evenly, so a slot has about one row.
 *
 *   0         64                         rows_offset       bytes
 *   | header  | (slots + 1) * gw_u32     | rows * 64       |
 *
 * Slot i consists of the rows starts[i] to starts[i + 1] - 1.
 */

#define GW_HASH_WORDS 8u /* maximum number of words in a digest */

/* Start values (RFC 1321, section 3.3; FIPS 180-4, sections 5.3.1 and 5.3.3). MD5 uses the first
 * four words of SHA-1. */
#define GW_HASH_SHA1_A   0x67452301u
#define GW_HASH_SHA1_B   0xefcdab89u
#define GW_HASH_SHA1_C   0x98badcfeu
#define GW_HASH_SHA1_D   0x10325476u
#define GW_HASH_SHA1_E   0xc3d2e1f0u
#define GW_HASH_SHA256_A 0x6a09e667u
#define GW_HASH_SHA256_B 0xbb67ae85u
#define GW_HASH_SHA256_C 0x3c6ef372u
#define GW_HASH_SHA256_D 0xa54ff53au
#define GW_HASH_SHA256_E 0x510e527fu
#define GW_HASH_SHA256_F 0x9b05688cu
#define GW_HASH_SHA256_G 0x1f83d9abu
#define GW_HASH_SHA256_H 0x5be0cd19u

GW_APART gw_md5 gw_hash_md5(const GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    gw_md5 state;
    state.a = GW_HASH_SHA1_A;
    state.b = GW_HASH_SHA1_B;
    state.c = GW_HASH_SHA1_C;
    state.d = GW_HASH_SHA1_D;
    gw_md5_finish(&state, gw_text_of(data, bytes));
    return state;
}

GW_APART gw_sha1 gw_hash_sha1(const GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    gw_sha1 state;
    state.a = GW_HASH_SHA1_A;
    state.b = GW_HASH_SHA1_B;
    state.c = GW_HASH_SHA1_C;
    state.d = GW_HASH_SHA1_D;
    state.e = GW_HASH_SHA1_E;
    gw_sha1_finish(&state, gw_text_of(data, bytes), 0);
    return state;
}

GW_APART gw_sha256 gw_hash_sha256(const GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    gw_sha256 state;
    state.a = GW_HASH_SHA256_A;
    state.b = GW_HASH_SHA256_B;
    state.c = GW_HASH_SHA256_C;
    state.d = GW_HASH_SHA256_D;
    state.e = GW_HASH_SHA256_E;
    state.f = GW_HASH_SHA256_F;
    state.g = GW_HASH_SHA256_G;
    state.h = GW_HASH_SHA256_H;
    gw_sha256_finish(&state, gw_text_of(data, bytes), 0);
    return state;
}

/* Computes a digest as big-endian words. The words after a shorter digest become 0. */
GW_LANE void gw_hash_digest(gw_u32 variant, const GW_GLOBAL gw_u8 *data, gw_u32 bytes,
                            gw_u32 *words)
{
    for (gw_u32 i = 4; i < GW_HASH_WORDS; i++) {
        words[i] = 0;
    }
    if (variant == GW_HASH_VARIANT_MD5) {
        const gw_md5 digest = gw_hash_md5(data, bytes);
        words[0] = gw_reverse32(digest.a);
        words[1] = gw_reverse32(digest.b);
        words[2] = gw_reverse32(digest.c);
        words[3] = gw_reverse32(digest.d);
    } else if (variant == GW_HASH_VARIANT_SHA1) {
        const gw_sha1 digest = gw_hash_sha1(data, bytes);
        words[0] = digest.a;
        words[1] = digest.b;
        words[2] = digest.c;
        words[3] = digest.d;
        words[4] = digest.e;
    } else {
        const gw_sha256 digest = gw_hash_sha256(data, bytes);
        words[0] = digest.a;
        words[1] = digest.b;
        words[2] = digest.c;
        words[3] = digest.d;
        words[4] = digest.e;
        words[5] = digest.f;
        words[6] = digest.g;
        words[7] = digest.h;
    }
}

/* Returns the bytes of a frame that the digest covers. */
GW_LANE gw_payload gw_hash_covered(const GW_GLOBAL gw_u8 *image_bytes, const GW_GLOBAL gw_u8 *frame,
                                   gw_u32 length)
{
    const GW_GLOBAL gw_hash_image *image = (const GW_GLOBAL gw_hash_image *)image_bytes;
    if (length < GW_ETHERNET_BYTES) {
        return gw_payload_truncated();
    }
    if (image->over == GW_HASH_OVER_PAYLOAD) {
        return gw_payload_parse(frame, length);
    }
    return gw_payload_span(0, length);
}

/* Writes the outcome of a packet with this digest. */
GW_LANE void gw_hash_conclude(const GW_GLOBAL gw_u8 *image_bytes, const gw_u32 *words,
                              gw_outcome *outcome)
{
    const GW_GLOBAL gw_hash_image *image = (const GW_GLOBAL gw_hash_image *)image_bytes;
    const GW_GLOBAL gw_u32 *starts =
        (const GW_GLOBAL gw_u32 *)(image_bytes + GW_HASH_STARTS_OFFSET);
    const GW_GLOBAL gw_hash_row *rows =
        (const GW_GLOBAL gw_hash_row *)(image_bytes + image->rows_offset);
    const gw_u32 slot = words[0] >> image->shift;
    const gw_u32 end = starts[slot + 1];
    for (gw_u32 row = starts[slot]; row < end; row++) {
        gw_u32 difference = 0;
        for (gw_u32 i = 0; i < GW_HASH_WORDS; i++) {
            difference |= rows[row].words[i] ^ words[i];
        }
        if (difference == 0) {
            gw_verdict(outcome, GW_HASH_LISTED, 0, rows[row].line);
            return;
        }
    }
    gw_verdict(outcome, GW_HASH_PASS, 0, words[0]);
}

GW_LANE void gw_hash_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_payload covered = gw_hash_covered(lane->image, frame, descriptor->length);
    gw_u32 words[GW_HASH_WORDS];
    if (covered.start > covered.end) {
        gw_drop(outcome, GW_HASH_TRUNCATED);
        return;
    }
    gw_hash_digest(lane->variant, frame + covered.start, covered.end - covered.start, words);
    gw_hash_conclude(lane->image, words, outcome);
}

#endif
