/* Per-packet work when several threads share a packet (group_aead.h). A separate thread per packet
 * processes the headers, computes the tag and the first key stream blocks, and sets the outcome. */
#ifndef GODWIT_IPSEC_GROUP_AEAD_HEAD_H
#define GODWIT_IPSEC_GROUP_AEAD_HEAD_H

/* State of the thread that processes the headers and the tag of a packet. */
typedef struct gw_aead_head {
    gw_ipsec_found found;
    gw_u32 packet; /* index of the packet in the round */
    gw_u32 next_header_at;
    gw_u32 cipher_bytes; /* 0: no packet, or the packet needs no further processing */
    gw_u64 sequence;
    GW_GLOBAL gw_u8 *esp;
    gw_u32 icv_bytes;
    gw_u32 udp_checksum; /* 1: gw_ipsec_esp_encapsulate_end must write a UDP checksum */
    gw_u32 mask[4];      /* GCM: encrypted first counter block, added to the sum */
} gw_aead_head;

/* Checks or writes the headers of any packet. Simple packets have a faster path (simple.h). */
GW_LANE void gw_aead_head_check(gw_aead_head *head, const gw_aead_round *round, gw_u32 index)
{
    const gw_work *work = round->work;
    gw_descriptor descriptor = work->descriptors[index];
    const gw_lane lane = gw_ipsec_lane(work, &descriptor, index);
    gw_outcome outcome = {0, 0, 0, 0};
    head->found = gw_ipsec_find(&lane, &descriptor, &outcome);
    if (head->found.sa != 0 && gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        const gw_ipsec_encryption encryption =
            gw_ipsec_esp_encapsulate_begin(&lane, head->found, round->suite, &descriptor, &outcome);
        head->esp = encryption.esp;
        head->cipher_bytes = encryption.cipher_bytes;
        head->sequence = encryption.sequence;
        work->descriptors[index] = descriptor;
        if (head->cipher_bytes != 0) {
            gw_store_be64(head->esp + GW_IPSEC_ESP_HEADER_BYTES, head->sequence);
        }
    } else if (head->found.sa != 0) {
        const gw_ipsec_decryption decryption =
            gw_ipsec_esp_decapsulate_begin(&lane, head->found, round->suite, &descriptor, &outcome);
        head->esp = decryption.esp;
        head->cipher_bytes = decryption.cipher_bytes;
        head->sequence = decryption.sequence;
        head->next_header_at = decryption.next_header_at;
    }
    if (head->cipher_bytes != 0) {
        head->icv_bytes = head->found.sa->icv_bytes;
        head->udp_checksum = gw_ipsec_has_udp_checksum(head->found.sa->flags);
    }
    work->outcomes[index] = outcome;
}

/* Processes the headers of packet `index`. Stores the location and length of its data for the
 * threads that encrypt or decrypt it. */
GW_LANE void gw_aead_head_begin(gw_aead_head *head, const gw_aead_round *round,
                                GW_LOCAL gw_aead_scratch *scratch, gw_u32 index)
{
    const gw_work *work = round->work;
    head->cipher_bytes = 0;
    if (head->packet < GW_AEAD_TEAM_LANES / round->lanes && index < work->count) {
        if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
            gw_ipsec_simple_out out;
            head->esp = gw_ipsec_encapsulate_simple(work, round->suite, round->sas, index, &out);
            head->found.sa = gw_ipsec_named_sa(round->sas, work->parameters[index]);
            head->cipher_bytes = head->esp != 0 ? out.cipher_bytes : 0;
            head->sequence = gw_ipsec_sequence(work->parameters[index]);
            head->icv_bytes = out.icv_bytes;
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

/* Computes an inbound packet's one-time Poly1305 key (RFC 8439, section 2.6). Another thread
 * computes the keys of outbound packets. */
GW_LANE void gw_aead_head_poly1305_key(gw_aead_head *head, GW_LOCAL gw_aead_scratch *scratch)
{
    if (head->cipher_bytes == 0) {
        return;
    }
    gw_u32 block[GW_CHACHA20_WORDS];
    const GW_GLOBAL gw_u8 *iv = head->esp + GW_IPSEC_ESP_HEADER_BYTES;
    gw_chacha20_block(head->found.sa->keys, gw_ipsec_chacha20_nonce(head->found.sa, iv), 0, block);
    gw_aead_store_key(scratch, head->packet, block);
}

/* Encrypts the first GCM counter block, which masks the tag, as big-endian words. */
GW_LANE void gw_aead_head_gcm_mask(gw_aead_head *head, const gw_aead_round *round,
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
        head->mask[i] = gw_swap32(blocks[i]);
    }
}

/* Returns a packet's tag: the partial sums of all threads, plus the second half of the one-time key
 * (Poly1305) or the encrypted first counter block (GCM). */
GW_LANE gw_ipsec_tag gw_aead_head_tag(const gw_aead_head *head, const gw_aead_round *round,
                                      const GW_LOCAL gw_aead_scratch *scratch)
{
    const gw_u32 from = head->packet * round->lanes;
    gw_u32 sum[5] = {0, 0, 0, 0, 0};
    if (round->suite.auth == GW_IPSEC_AUTH_POLY1305) {
        for (gw_u32 i = 0; i < round->lanes; i++) {
            GW_UNROLL
            for (gw_u32 j = 0; j < 5; j++) {
                sum[j] += scratch->shared.sums[j][from + i];
            }
        }
        gw_poly1305 number;
        number.limb0 = sum[0];
        number.limb1 = sum[1];
        number.limb2 = sum[2];
        number.limb3 = sum[3];
        number.limb4 = sum[4];
        gw_u32 one_time_key[4];
        GW_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            one_time_key[j] = scratch->one_time_key[4 + j][head->packet];
        }
        gw_u32 words[4];
        gw_poly1305_tag(number, one_time_key, words);
        return gw_ipsec_tag_words(gw_swap32(words[0]), gw_swap32(words[1]), gw_swap32(words[2]),
                                  gw_swap32(words[3]));
    }
    for (gw_u32 i = 0; i < round->lanes; i++) {
        GW_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            sum[j] ^= scratch->shared.sums[j][from + i];
        }
    }
    return gw_ipsec_tag_words(sum[0] ^ head->mask[0], sum[1] ^ head->mask[1],
                              sum[2] ^ head->mask[2], sum[3] ^ head->mask[3]);
}

/* Writes an outbound packet's ICV, or compares an inbound packet's ICV. A packet with a wrong ICV
 * is dropped without decryption. */
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
            gw_ipsec_encryption encryption;
            encryption.esp = head->esp;
            encryption.sequence = head->sequence;
            encryption.cipher_bytes = head->cipher_bytes;
            gw_ipsec_esp_encapsulate_end(head->found, round->suite, encryption);
        }
    } else if (!gw_ipsec_tag_equal(icv, tag, head->icv_bytes)) {
        gw_outcome outcome;
        gw_drop(&outcome, GW_IPSEC_AUTHENTICATION);
        work->outcomes[index] = outcome;
        head->cipher_bytes = 0;
        scratch->bytes[head->packet] = 0;
    }
}

GW_LANE void gw_aead_head_finish(const gw_aead_head *head, const gw_aead_round *round, gw_u32 index)
{
    if (head->cipher_bytes == 0) {
        return;
    }
    const gw_work *work = round->work;
    gw_descriptor descriptor = work->descriptors[index];
    const gw_lane lane = gw_ipsec_lane(work, &descriptor, index);
    gw_outcome outcome = {0, 0, 0, 0};
    gw_ipsec_decryption decryption;
    decryption.esp = head->esp;
    decryption.sequence = head->sequence;
    decryption.cipher_bytes = head->cipher_bytes;
    decryption.next_header_at = head->next_header_at;
    gw_ipsec_esp_decapsulate_end(&lane, head->found, round->suite, decryption, &descriptor,
                                 &outcome);
    work->descriptors[index] = descriptor;
    work->outcomes[index] = outcome;
}

/* Processes the headers and tags of the work-group's current packets, one packet per thread. It has
 * the same number of barriers as gw_aead_team_round. */
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
        gw_aead_head_poly1305_key(&head, scratch);
    }
    gw_barrier();
    if (!poly1305) {
        gw_aead_head_gcm_mask(&head, round, table);
    }
    gw_barrier();
    gw_aead_head_end(&head, round, scratch, index);
    gw_barrier();
    if (!outbound) {
        gw_barrier();
        gw_aead_head_finish(&head, round, index);
    }
}

#endif
