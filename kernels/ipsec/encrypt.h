/* Outbound: an IPv4 packet becomes an ESP packet between the tunnel's endpoints. */
#ifndef GODWIT_IPSEC_ENCRYPT_H
#define GODWIT_IPSEC_ENCRYPT_H

#define GW_IPSEC_TTL 64u

/*
 * The IV is the forward cipher of a nonce under the packet's own key (NIST SP
 * 800-38A, appendix C, the first method): unpredictable, as RFC 3602 section 3
 * demands, and yet a function of the sequence number, so that every processor
 * computes the same. The nonce (SPI, sequence number in 64 bits, destination)
 * never comes twice under a key: SPI and destination name the SA, and an SA uses
 * each sequence number once. A first block of plaintext that equals IV xor a
 * nonce would show that nonce's IV; nobody who does not know the IV beforehand
 * can choose such a block, and by chance it comes once in 2^96 blocks.
 */
GW_LANE gw_aes_block gw_ipsec_iv(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 sequence)
{
    return gw_aes_encrypt((const GW_GLOBAL gw_u8 *)sa->keys, 10,
                          gw_aes_words(sa->spi, 0, sequence, sa->destination[0]));
}

/* RFC 4301, section 5.1.2.1. tos and flags are those of the packet inside. */
GW_LANE void gw_ipsec_outer_ipv4(GW_GLOBAL gw_u8 *outer, const GW_GLOBAL gw_ipsec_sa *sa,
                                 gw_u32 sequence, gw_u32 total_bytes, gw_u32 tos, gw_u32 flags)
{
    /* DSCP as it is, ECN as RFC 6040 section 4.1 (normal mode) has it: both copied. */
    const gw_u32 first = 0x45000000u | tos << 16 | total_bytes;
    /* DF is copied (RFC 4301, section 8.1). One identification per packet, the same on every run.
     */
    const gw_u32 second = (sequence & 0xffffu) << 16 | (flags & 0x4000u);
    const gw_u32 third = GW_IPSEC_TTL << 24 | GW_PROTOCOL_ESP << 16;
    gw_u32 sum = (first >> 16) + (first & 0xffffu) + (second >> 16) + (second & 0xffffu) +
                 (third >> 16) + (sa->source[0] >> 16) + (sa->source[0] & 0xffffu) +
                 (sa->destination[0] >> 16) + (sa->destination[0] & 0xffffu);
    sum = (sum & 0xffffu) + (sum >> 16);
    sum = (sum & 0xffffu) + (sum >> 16);
    gw_store_be32(outer, first);
    gw_store_be32(outer + 4, second);
    gw_store_be32(outer + 8, third | (~sum & 0xffffu));
    gw_store_be32(outer + 12, sa->source[0]);
    gw_store_be32(outer + 16, sa->destination[0]);
}

/* RFC 4303, section 2.4: as much padding as the cipher needs, 1, 2, 3 and so on. */
GW_LANE void gw_ipsec_pad(GW_GLOBAL gw_u8 *trailer, gw_u32 pad_bytes)
{
    for (gw_u32 i = 0; i < pad_bytes; i++) {
        trailer[i] = (gw_u8)(i + 1);
    }
    trailer[pad_bytes] = (gw_u8)pad_bytes;
    trailer[pad_bytes + 1] = GW_PROTOCOL_IPV4;
}

/* What is left to do once a packet's headers and padding are written. */
typedef struct gw_ipsec_sealing {
    GW_GLOBAL gw_u8 *packet; /* of `blocks` blocks; IV and ESP header lie in front of it */
    gw_u32 sequence;
    gw_u32 blocks; /* 0: the packet is settled */
} gw_ipsec_sealing;

/* Settles the packet, but for IV, encryption and ICV. */
GW_LANE gw_ipsec_sealing gw_ipsec_seal_begin(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                                             gw_u32 l2_bytes, gw_descriptor *descriptor,
                                             gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    GW_GLOBAL gw_u8 *packet = frame + l2_bytes;
    const gw_ipsec_ipv4 ip = gw_ipsec_ipv4_parse(packet, descriptor->length - l2_bytes);
    gw_ipsec_sealing sealing;
    sealing.packet = packet;
    sealing.sequence = (gw_u32)gw_ipsec_sequence(lane->parameter);
    sealing.blocks = 0;
    if (ip.error != GW_IPSEC_FINE) {
        gw_drop(outcome, ip.error);
        return sealing;
    }
    const gw_u32 added = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + GW_AES_BLOCK_BYTES;
    const gw_u32 blocks =
        (ip.total_bytes + GW_ESP_TAIL_BYTES + GW_AES_BLOCK_BYTES - 1) / GW_AES_BLOCK_BYTES;
    const gw_u32 cipher_bytes = blocks * GW_AES_BLOCK_BYTES;
    const gw_u32 end = descriptor->head + l2_bytes + cipher_bytes + GW_ESP_ICV_BYTES;
    /* A window is far smaller than 2^16 bytes, so what fits into it fits into an IPv4 packet. */
    if (descriptor->head < added || end > descriptor->room * GW_WINDOW_UNIT) {
        gw_drop(outcome, GW_IPSEC_NO_ROOM);
        return sealing;
    }

    const gw_u32 tos = packet[1];
    const gw_u32 flags = gw_load_be16(packet + 6);
    GW_GLOBAL gw_u8 *esp = packet - GW_AES_BLOCK_BYTES - GW_ESP_HEADER_BYTES;
    const gw_u32 total_bytes = added + cipher_bytes + GW_ESP_ICV_BYTES;
    gw_ipsec_move_l2(frame - added, frame, l2_bytes);
    gw_ipsec_outer_ipv4(esp - GW_IPV4_BYTES, sa, sealing.sequence, total_bytes, tos, flags);
    gw_store_be32(esp, sa->spi);
    gw_store_be32(esp + 4, sealing.sequence);
    gw_ipsec_pad(packet + ip.total_bytes, cipher_bytes - GW_ESP_TAIL_BYTES - ip.total_bytes);

    sealing.blocks = blocks;
    descriptor->head = (gw_u16)(descriptor->head - added);
    descriptor->length = (gw_u16)(l2_bytes + total_bytes);
    gw_verdict(outcome, GW_IPSEC_ENCRYPTED, 0, sa->spi);
    return sealing;
}

GW_LANE void gw_ipsec_store_icv(GW_GLOBAL gw_u8 *to, gw_sha1 icv)
{
    gw_store_be32(to, icv.a);
    gw_store_be32(to + 4, icv.b);
    gw_store_be32(to + 8, icv.c);
}

GW_LANE void gw_ipsec_encrypt(const gw_lane *lane, const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 l2_bytes,
                              gw_descriptor *descriptor, gw_outcome *outcome)
{
    const gw_ipsec_sealing sealing = gw_ipsec_seal_begin(lane, sa, l2_bytes, descriptor, outcome);
    if (sealing.blocks == 0) {
        return;
    }
    const gw_aes_block iv = gw_ipsec_iv(sa, sealing.sequence);
    gw_aes_store(sealing.packet - GW_AES_BLOCK_BYTES, iv);
    gw_aes_cbc_encrypt((const GW_GLOBAL gw_u8 *)sa->keys, 10, iv, sealing.packet, sealing.blocks);

    GW_GLOBAL gw_u8 *esp = sealing.packet - GW_AES_BLOCK_BYTES - GW_ESP_HEADER_BYTES;
    const gw_u32 esp_bytes =
        GW_ESP_HEADER_BYTES + GW_AES_BLOCK_BYTES + sealing.blocks * GW_AES_BLOCK_BYTES;
    gw_ipsec_store_icv(esp + esp_bytes, gw_ipsec_icv(sa, esp, esp_bytes));
}

#endif
