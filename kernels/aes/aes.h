/* godwit function aes
summary = """\
    Encrypts or decrypts every packet with AES-128-CBC or ChaCha20-Poly1305, as a workload for \
    measurements."""
spec    = "FIPS 197, SP 800-38A, RFC 8439"
number  = 10
magic   = "AES "
reads   = "all"
writes  = "all"
tailroom = 16                    # tag of ChaCha20-Poly1305
variants = ["cbc_encrypt", "cbc_decrypt", "chacha20_poly1305_encrypt", "chacha20_poly1305_decrypt"]
[verdicts]
done = "The data of the packet is encrypted or decrypted."
[drops]
malformed = "The frame ends before its headers do, or its IP header is invalid."
forged = "The tag is wrong, or the frame is too short for one."
no_room = "The buffer has too little tailroom for the tag."
[structs.image]
text = "Table image: the key, and the IV of all packets"
fields.magic = "u32: GW_AES_MAGIC"
fields.pad = "u32[3]: 0"
fields.iv = "u32[4]: little-endian words of the IV; ChaCha20 uses three of them as nonce"
fields.round_keys = "u32[44]: round keys of AES; the key of ChaCha20"
*/
/*
 * aes: a cipher over every packet, as in the measurements of the thesis and of APUNet.
 *
 *   CBC                 | headers | whole blocks of the data | rest, unchanged |
 *   ChaCha20-Poly1305   | headers | data                             | padding | tag, 16 bytes |
 *
 * The data begins after the IP header and ends with the IP packet. In other frames, it consists of
 * the bytes after the Ethernet header and one VLAN tag. The headers stay unchanged, so a router can
 * forward the result. The tag follows the frame, where IP does not see it. It has no additional
 * data.
 *
 * All packets have the same IV, so the function protects nothing. It is a workload. ipsec protects
 * packets.
 */
#ifndef GODWIT_AES_FUNCTION_H
#define GODWIT_AES_FUNCTION_H

#include "../common/chacha20.h"
#include "../common/payload.h"
#include "../common/poly1305.h"
#include "../dialect/aes.h"

#define GW_AES_TAG_BYTES 16u
#define GW_AES_ROUNDS    10u /* rounds of AES-128 */

typedef struct gw_aes_tag {
    gw_u32 words[4]; /* little-endian */
} gw_aes_tag;

/* Returns the range of the data in a frame. A malformed frame has start > end. */
GW_LANE gw_payload gw_aes_data(const GW_GLOBAL gw_u8 *frame, gw_u32 length)
{
    const gw_l3 l3 = gw_l3_parse(frame, length);
    const gw_u32 offset = l3.offset;
    if (offset == 0) {
        return gw_payload_truncated();
    }
    if (l3.ether_type == GW_ETHER_TYPE_IPV4) {
        if (length - offset < 20) {
            return gw_payload_truncated();
        }
        const gw_u32 header_bytes = (gw_u32)(frame[offset] & 15) * 4;
        const gw_u32 total_bytes = gw_load_be16(frame + offset + 2);
        if (frame[offset] >> 4 != 4 || header_bytes < 20 || total_bytes < header_bytes ||
            total_bytes > length - offset) {
            return gw_payload_truncated();
        }
        return gw_payload_span(offset + header_bytes, offset + total_bytes);
    }
    if (l3.ether_type == GW_ETHER_TYPE_IPV6) {
        if (length - offset < 40 || frame[offset] >> 4 != 6) {
            return gw_payload_truncated();
        }
        const gw_u32 total_bytes = 40 + gw_load_be16(frame + offset + 4);
        if (total_bytes > length - offset) {
            return gw_payload_truncated();
        }
        return gw_payload_span(offset + 40, offset + total_bytes);
    }
    return gw_payload_span(offset, length);
}

/* Encrypts or decrypts whole blocks with CBC. */
GW_APART void gw_aes_cbc(const GW_GLOBAL gw_aes_image *image, gw_u32 variant, GW_GLOBAL gw_u8 *data,
                         gw_u32 blocks)
{
    const GW_GLOBAL gw_u8 *keys = (const GW_GLOBAL gw_u8 *)image->round_keys;
    const gw_aes_block iv = gw_aes_load((const GW_GLOBAL gw_u8 *)image->iv);
    if (variant == GW_AES_VARIANT_CBC_ENCRYPT) {
        gw_aes_cbc_encrypt(keys, GW_AES_ROUNDS, iv, data, blocks);
    } else {
        gw_aes_cbc_decrypt(keys, GW_AES_ROUNDS, iv, data, blocks);
    }
}

GW_LANE gw_chacha20_nonce gw_aes_nonce_of(const GW_GLOBAL gw_aes_image *image)
{
    gw_chacha20_nonce nonce;
    nonce.words[0] = image->iv[0];
    nonce.words[1] = image->iv[1];
    nonce.words[2] = image->iv[2];
    return nonce;
}

/* Returns the tag of encrypted data (RFC 8439, section 2.8). */
GW_APART gw_aes_tag gw_aes_poly1305(const GW_GLOBAL gw_aes_image *image,
                                    const GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    gw_u32 once[GW_CHACHA20_WORDS];
    gw_aes_tag tag;
    gw_chacha20_block(image->round_keys, gw_aes_nonce_of(image), 0, once);
    const gw_poly1305 r = gw_poly1305_clamp(once[0], once[1], once[2], once[3]);
    gw_poly1305 sum = gw_poly1305_text(gw_poly1305_zero(), r, gw_text_of(data, bytes));
    const gw_poly1305 lengths = gw_poly1305_words(0, 0, bytes, 0, 1);
    sum = gw_poly1305_multiply(gw_poly1305_add(sum, lengths), r);
    gw_poly1305_tag(sum, once + 4, tag.words);
    return tag;
}

/* Encrypts or decrypts data with ChaCha20. The first block of the key stream is for the tag. */
GW_APART void gw_aes_chacha20(const GW_GLOBAL gw_aes_image *image, GW_GLOBAL gw_u8 *data,
                              gw_u32 bytes)
{
    gw_chacha20(image->round_keys, gw_aes_nonce_of(image), 1, data, bytes);
}

/* Returns whether the tag at `bytes` is correct. The comparison takes constant time. */
GW_LANE gw_u32 gw_aes_is_authentic(const GW_GLOBAL gw_u8 *bytes, gw_aes_tag tag)
{
    gw_u32 difference = 0;
    for (gw_u32 i = 0; i < 4; i++) {
        difference |= gw_load_le32(bytes + 4 * i) ^ tag.words[i];
    }
    return difference == 0;
}

GW_LANE void gw_aes_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_aes_image *image = (const GW_GLOBAL gw_aes_image *)lane->image;
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 has_tag = lane->variant == GW_AES_VARIANT_CHACHA20_POLY1305_DECRYPT;
    gw_u32 length = descriptor->length;
    if (has_tag && length < GW_AES_TAG_BYTES) {
        gw_drop(outcome, GW_AES_FORGED);
        return;
    }
    length -= has_tag ? GW_AES_TAG_BYTES : 0;
    const gw_payload data = gw_aes_data(frame, length);
    if (data.start > data.end) {
        gw_drop(outcome, GW_AES_MALFORMED);
        return;
    }
    const gw_u32 bytes = data.end - data.start;
    if (lane->variant == GW_AES_VARIANT_CBC_ENCRYPT ||
        lane->variant == GW_AES_VARIANT_CBC_DECRYPT) {
        gw_aes_cbc(image, lane->variant, frame + data.start, bytes / 16);
        gw_verdict(outcome, GW_AES_DONE, 0, 0);
        return;
    }
    if (has_tag) {
        const gw_aes_tag tag = gw_aes_poly1305(image, frame + data.start, bytes);
        if (!gw_aes_is_authentic(frame + length, tag)) {
            gw_drop(outcome, GW_AES_FORGED);
            return;
        }
        gw_aes_chacha20(image, frame + data.start, bytes);
        descriptor->length = (gw_u16)length;
        gw_verdict(outcome, GW_AES_DONE, 0, 0);
        return;
    }
    if (descriptor->head + length + GW_AES_TAG_BYTES > descriptor->room * GW_BUFFER_UNIT) {
        gw_drop(outcome, GW_AES_NO_ROOM);
        return;
    }
    gw_aes_chacha20(image, frame + data.start, bytes);
    const gw_aes_tag tag = gw_aes_poly1305(image, frame + data.start, bytes);
    for (gw_u32 i = 0; i < 4; i++) {
        gw_store_le32(frame + length + 4 * i, tag.words[i]);
    }
    descriptor->length = (gw_u16)(length + GW_AES_TAG_BYTES);
    gw_verdict(outcome, GW_AES_DONE, 0, 0);
}

#endif
