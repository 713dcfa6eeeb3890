/* The heads' part of a round of AEADs (group_aead.h): headers, blocks of the stream that come once,
 * the tag, and what is said of a packet. */
#ifndef GODWIT_IPSEC_GROUP_AEAD_HEAD_H
#define GODWIT_IPSEC_GROUP_AEAD_HEAD_H

/* A head lane and its packet. */
typedef struct gw_aead_head {
    gw_ipsec_found found;
    gw_u32 packet; /* place in the round */
    gw_u32 named_at;
    gw_u32 cipher_bytes; /* 0: none, or the packet is settled */
    gw_u64 sequence;
    GW_GLOBAL gw_u8 *esp;
    gw_u32 icv_bytes;
    gw_u32 udp_checksum; /* 1: gw_ipsec_seal_end has something to do */
    gw_u32 once[4];      /* GCM: what is added to the sum at last */
} gw_aead_head;

/* Parses and checks any packet. */
GW_LANE void gw_aead_head_check(gw_aead_head *head, const gw_aead_round *round, gw_u32 index)
{
    const gw_work *work = round->work;
    gw_descriptor descriptor = work->descriptors[index];
    const gw_lane lane = gw_ipsec_lane(work, &descriptor, index);
    gw_outcome outcome = {0, 0, 0, 0};
    head->found = gw_ipsec_find(&lane, &descriptor, &outcome);
    if (head->found.sa != 0 && gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        const gw_ipsec_sealing sealing =
            gw_ipsec_seal_begin(&lane, head->found, round->suite, &descriptor, &outcome);
        head->esp = sealing.esp;
        head->cipher_bytes = sealing.cipher_bytes;
        head->sequence = sealing.sequence;
        work->descriptors[index] = descriptor;
        if (head->cipher_bytes != 0) {
            gw_store_be64(head->esp + GW_IPSEC_ESP_HEADER_BYTES, head->sequence);
        }
    } else if (head->found.sa != 0) {
        const gw_ipsec_opening opening =
            gw_ipsec_open_begin(&lane, head->found, round->suite, &descriptor, &outcome);
        head->esp = opening.esp;
        head->cipher_bytes = opening.cipher_bytes;
        head->sequence = opening.sequence;
        head->named_at = opening.named_at;
    }
    if (head->cipher_bytes != 0) {
        head->icv_bytes = head->found.sa->icv_bytes;
        head->udp_checksum = gw_ipsec_has_udp_checksum(head->found.sa->flags);
    }
    work->outcomes[index] = outcome;
}

/* Takes up packet `index` of the bin, and says what the team has to do. */
GW_LANE void gw_aead_head_begin(gw_aead_head *head, const gw_aead_round *round,
                                GW_LOCAL gw_aead_scratch *scratch, gw_u32 index)
{
    const gw_work *work = round->work;
    head->cipher_bytes = 0;
    if (head->packet < GW_AEAD_TEAM_LANES / round->lanes && index < work->count) {
        if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
            const gw_ipsec_plain packet =
                gw_ipsec_seal_plain(work, round->suite, round->sas, index);
            head->found.sa = gw_ipsec_named_sa(round->sas, work->parameters[index]);
            head->esp = packet.esp;
            head->cipher_bytes = packet.cipher_bytes;
            head->sequence = packet.sequence;
            head->icv_bytes = packet.icv_bytes;
            head->udp_checksum = 0;
        }
        if (head->cipher_bytes == 0) {
            gw_aead_head_check(head, round, index);
        }
        if (head->cipher_bytes != 0) {
            const gw_u32 before = GW_IPSEC_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(round->suite);
            scratch->data[head->packet] = (gw_u64)(head->esp + before - work->arena);
            scratch->sequence[head->packet] = head->sequence;
        }
    }
    scratch->bytes[head->packet] = head->cipher_bytes;
}

/* Poly1305's one-time key (RFC 8439, section 2.6), inbound: outbound, the team makes it. */
GW_LANE void gw_aead_head_poly1305(gw_aead_head *head, GW_LOCAL gw_aead_scratch *scratch)
{
    if (head->cipher_bytes == 0) {
        return;
    }
    gw_u32 block[GW_CHACHA20_WORDS];
    const GW_GLOBAL gw_u8 *iv = head->esp + GW_IPSEC_ESP_HEADER_BYTES;
    gw_chacha20_block(head->found.sa->keys, gw_ipsec_chacha20_nonce(head->found.sa, iv), 0, block);
    gw_aead_leave_once(scratch, head->packet, block);
}

/* GCM's first counter block, encrypted; big-endian words. */
GW_LANE void gw_aead_head_gcm(gw_aead_head *head, const gw_aead_round *round,
                              const GW_LOCAL gw_aes_team_table *table)
{
    if (head->cipher_bytes == 0) {
        return;
    }
    const GW_GLOBAL gw_ipsec_sa *sa = head->found.sa;
    const GW_GLOBAL gw_u8 *iv = head->esp + GW_IPSEC_ESP_HEADER_BYTES;
    gw_u32 blocks[4 * GW_AES_LANE_BLOCKS];
    GW_UNROLL
    for (gw_u32 i = 0; i < 4 * GW_AES_LANE_BLOCKS; i += 4) {
        blocks[i] = sa->salt;
        blocks[i + 1] = gw_load_le32(iv);
        blocks[i + 2] = gw_load_le32(iv + 4);
        blocks[i + 3] = gw_swap32(1);
    }
    gw_aes_lane_encrypt(gw_aes_lane_table(table), (const GW_GLOBAL gw_u8 *)sa->keys,
                        gw_ipsec_aes_rounds(round->suite), blocks);
    GW_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        head->once[i] = gw_swap32(blocks[i]);
    }
}

/* The tag, of what the lanes of the packet's team left. */
GW_LANE gw_ipsec_tag gw_aead_head_tag(const gw_aead_head *head, const gw_aead_round *round,
                                      const GW_LOCAL gw_aead_scratch *scratch)
{
    const gw_u32 from = head->packet * round->lanes;
    gw_u32 sum[5] = {0, 0, 0, 0, 0};
    if (round->suite.auth == GW_IPSEC_AUTH_POLY1305) {
        for (gw_u32 i = 0; i < round->lanes; i++) {
            GW_UNROLL
            for (gw_u32 j = 0; j < 5; j++) {
                sum[j] += scratch->of.sums[j][from + i];
            }
        }
        gw_poly1305 number;
        number.limb0 = sum[0];
        number.limb1 = sum[1];
        number.limb2 = sum[2];
        number.limb3 = sum[3];
        number.limb4 = sum[4];
        gw_u32 once[4];
        GW_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            once[j] = scratch->once[4 + j][head->packet];
        }
        gw_u32 words[4];
        gw_poly1305_tag(number, once, words);
        return gw_ipsec_tag_words(gw_swap32(words[0]), gw_swap32(words[1]), gw_swap32(words[2]),
                                  gw_swap32(words[3]));
    }
    for (gw_u32 i = 0; i < round->lanes; i++) {
        GW_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            sum[j] ^= scratch->of.sums[j][from + i];
        }
    }
    return gw_ipsec_tag_words(sum[0] ^ head->once[0], sum[1] ^ head->once[1],
                              sum[2] ^ head->once[2], sum[3] ^ head->once[3]);
}

/* Writes or compares the ICV. A packet that is not authentic is not decrypted. */
GW_LANE void gw_aead_head_end(gw_aead_head *head, const gw_aead_round *round,
                              GW_LOCAL gw_aead_scratch *scratch, gw_u32 index)
{
    if (head->cipher_bytes == 0) {
        return;
    }
    const gw_work *work = round->work;
    const gw_ipsec_tag tag = gw_aead_head_tag(head, round, scratch);
    GW_GLOBAL gw_u8 *icv = head->esp + GW_IPSEC_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(round->suite) +
                           head->cipher_bytes;
    if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        gw_ipsec_tag_store(icv, tag, head->icv_bytes);
        if (head->udp_checksum) {
            gw_ipsec_sealing sealing;
            sealing.esp = head->esp;
            sealing.sequence = head->sequence;
            sealing.cipher_bytes = head->cipher_bytes;
            gw_ipsec_seal_end(head->found, round->suite, sealing);
        }
    } else if (!gw_ipsec_tag_same(icv, tag, head->icv_bytes)) {
        gw_outcome outcome;
        gw_drop(&outcome, GW_IPSEC_AUTHENTICATION);
        work->outcomes[index] = outcome;
        head->cipher_bytes = 0;
        scratch->bytes[head->packet] = 0;
    }
}

/* Settles a packet that is decrypted. */
GW_LANE void gw_aead_head_settle(const gw_aead_head *head, const gw_aead_round *round, gw_u32 index)
{
    if (head->cipher_bytes == 0) {
        return;
    }
    const gw_work *work = round->work;
    gw_descriptor descriptor = work->descriptors[index];
    const gw_lane lane = gw_ipsec_lane(work, &descriptor, index);
    gw_outcome outcome = {0, 0, 0, 0};
    gw_ipsec_opening opening;
    opening.esp = head->esp;
    opening.sequence = head->sequence;
    opening.cipher_bytes = head->cipher_bytes;
    opening.named_at = head->named_at;
    gw_ipsec_open_end(&lane, head->found, round->suite, opening, &descriptor, &outcome);
    work->descriptors[index] = descriptor;
    work->outcomes[index] = outcome;
}

/* The same round by the head lanes. */
GW_GROUP void gw_aead_head_round(const gw_aead_round *round,
                                 const GW_LOCAL gw_aes_team_table *table,
                                 GW_LOCAL gw_aead_scratch *scratch)
{
    const gw_u32 outbound = gw_ipsec_direction(round->work->variant) == GW_IPSEC_OUTBOUND;
    const gw_u32 poly1305 = round->suite.auth == GW_IPSEC_AUTH_POLY1305;
    gw_aead_head head;
    head.packet = gw_lane_id() - GW_AEAD_TEAM_LANES;
    const gw_u32 index = round->first + head.packet;
    gw_aead_head_begin(&head, round, scratch, index);
    gw_barrier();
    if (poly1305 && !outbound) {
        gw_aead_head_poly1305(&head, scratch);
    }
    gw_barrier();
    if (!poly1305) {
        gw_aead_head_gcm(&head, round, table);
    }
    gw_barrier();
    gw_aead_head_end(&head, round, scratch, index);
    gw_barrier();
    if (!outbound) {
        gw_barrier();
        gw_aead_head_settle(&head, round, index);
    }
}

#endif
