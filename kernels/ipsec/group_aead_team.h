/* Work of the threads that share a packet (group_aead.h). They compute the key stream, encrypt or
 * decrypt the data, and compute partial sums over the authenticated text. */
#ifndef GODWIT_IPSEC_GROUP_AEAD_TEAM_H
#define GODWIT_IPSEC_GROUP_AEAD_TEAM_H

/* Selects block 0 of the ChaCha20 key stream, which contains the one-time Poly1305 key. The key
 * stream for the data starts with block 1 (RFC 8439, section 2.6). */
#define GW_AEAD_UNIT_KEY 0xffffffffu

/* Stores the one-time Poly1305 key, which is the first half of ChaCha20's block 0. */
GW_LANE void gw_aead_store_key(GW_LOCAL gw_aead_scratch *scratch, gw_u32 packet,
                               const gw_u32 *block)
{
    GW_UNROLL
    for (gw_u32 i = 0; i < 8; i++) {
        scratch->one_time_key[i][packet] = block[i];
    }
}

/* Computes the key stream for data bytes 64 * unit to 64 * unit + 63, as words in memory order. */
GW_LANE void gw_aead_unit(const gw_aead_round *round, const gw_aead_lane *lane,
                          const GW_LOCAL gw_u8 *table, gw_u32 unit, gw_u32 *words)
{
    const gw_u32 salt = lane->sa->salt;
    if (round->suite.cipher == GW_IPSEC_CIPHER_CHACHA20) {
        const gw_chacha20_nonce nonce = {{salt, lane->iv[0], lane->iv[1]}};
        gw_chacha20_block(lane->sa->keys, nonce, unit + 1, words);
        return;
    }
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AEAD_UNIT_WORDS; i += 4) {
        words[i] = salt;
        words[i + 1] = lane->iv[0];
        words[i + 2] = lane->iv[1];
        words[i + 3] = gw_swap32(unit * (GW_AEAD_UNIT_BYTES / 16) + i / 4 + 2);
    }
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AEAD_UNIT_WORDS; i += 4 * GW_AES_LANE_BLOCKS) {
        gw_aes_lane_encrypt(table, (const GW_GLOBAL gw_u8 *)lane->sa->keys,
                            gw_ipsec_aes_rounds(round->suite), words + i);
    }
}

/* Returns where a key stream word is in local memory. Words from 16 on belong to the current step,
 * and words 12 to 15 to the previous step. Gaps between the words of different threads avoid bank
 * conflicts. */
GW_LANE gw_u32 gw_aead_stream_at(gw_u32 word)
{
    return word + (word >> 4) - 12;
}

/* Computes 64 key stream bytes of an outbound packet before another thread has checked the packet.
 * With Poly1305, the last thread computes the one-time key instead. Returns whether `words`
 * contains key stream for the data. */
GW_LANE gw_u32 gw_aead_early_unit(const gw_aead_round *round, const gw_aead_lane *lane,
                                  const GW_LOCAL gw_u8 *table, GW_LOCAL gw_aead_scratch *scratch,
                                  gw_u32 *words)
{
    const gw_u32 one_time_key =
        round->suite.auth == GW_IPSEC_AUTH_POLY1305 && lane->rank + 1 == round->lanes;
    gw_aead_unit(round, lane, table, one_time_key ? GW_AEAD_UNIT_KEY : lane->rank, words);
    if (one_time_key) {
        gw_aead_store_key(scratch, lane->packet, words);
    }
    return !one_time_key;
}

/* Stores this thread's 64 key stream bytes in local memory. Words after the end of the packet are
 * 0, so that the bytes there stay unchanged. */
GW_LANE void gw_aead_store_unit(const gw_aead_round *round, const gw_aead_lane *lane,
                                const gw_u32 *words, GW_LOCAL gw_u32 *stream, gw_u32 step)
{
    const gw_u32 from = (step * round->lanes + lane->rank) * GW_AEAD_UNIT_BYTES;
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AEAD_UNIT_WORDS; i++) {
        stream[gw_aead_stream_at(16 + GW_AEAD_UNIT_WORDS * lane->rank + i)] =
            from + 4 * i < lane->bytes ? words[i] : 0;
    }
}

/* Encrypts or decrypts one step's part of a packet by XOR with the key stream. `skew` is the offset
 * of the data within its first aligned word of 16 bytes. */
GW_LANE void gw_aead_xor(const gw_aead_round *round, const gw_aead_lane *lane,
                         const GW_LOCAL gw_u32 *stream, gw_u32 step, gw_u32 skew)
{
    const gw_u32 shift = 8 * (-skew & 3u);
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AEAD_UNIT_BYTES / 16; i++) {
        const gw_u32 chunk = i * round->lanes + lane->rank;
        const gw_u32 at = step * round->lanes * GW_AEAD_UNIT_BYTES + 16 * chunk;
        if (lane->bytes != 0 && at < skew + lane->bytes) {
            const gw_u32 word = (16 * chunk + 64 - skew) >> 2;
            gw_u32 words[5];
            GW_UNROLL
            for (gw_u32 j = 0; j < 5; j++) {
                words[j] = stream[gw_aead_stream_at(word + j)];
            }
            GW_GLOBAL gw_u8 *bytes = lane->data - skew + at;
            gw_block block = gw_load_block(bytes);
            block.word0 ^= gw_funnel_right32(words[0], words[1], shift);
            block.word1 ^= gw_funnel_right32(words[1], words[2], shift);
            block.word2 ^= gw_funnel_right32(words[2], words[3], shift);
            block.word3 ^= gw_funnel_right32(words[3], words[4], shift);
            gw_store_block(bytes, block);
        }
    }
}

/* Encrypts or decrypts the work-group's current packets. All threads that encrypt call this
 * function together. If `ready` is 1, `words` already contains the thread's first 64 key stream
 * bytes. */
GW_GROUP void gw_aead_cipher(const gw_aead_round *round, const gw_aead_lane *lane,
                             const GW_LOCAL gw_u8 *table, GW_LOCAL gw_aead_scratch *scratch,
                             gw_u32 bytes_max, gw_u32 *words, gw_u32 ready)
{
    GW_LOCAL gw_u32 *stream =
        scratch->shared.stream + lane->packet * GW_AEAD_STREAM_WORDS(round->lanes);
    const gw_u32 skew = (gw_u32)(lane->data - round->work->arena) & 15u;
    const gw_u32 step_bytes = round->lanes * GW_AEAD_UNIT_BYTES;
    gw_u32 previous = 0;
    GW_NO_COPY
    for (gw_u32 step = 0; step * step_bytes < bytes_max + 15; step++) {
        const gw_u32 unit = step * round->lanes + lane->rank;
        if (unit * GW_AEAD_UNIT_BYTES < lane->bytes && (step != 0 || !ready)) {
            gw_aead_unit(round, lane, table, unit, words);
        }
        if (lane->rank < 4) {
            stream[lane->rank] = previous;
        }
        gw_aead_store_unit(round, lane, words, stream, step);
        gw_warp_barrier();
        gw_aead_xor(round, lane, stream, step, skew);
        if (lane->rank < 4) {
            previous =
                stream[gw_aead_stream_at(GW_AEAD_UNIT_WORDS * round->lanes + 12 + lane->rank)];
        }
        gw_warp_barrier();
    }
}

/*
 * Blocks over which GHASH or Poly1305 computes a sum:
 *
 *   | first block, of four words | data, zeros up to the next block | lengths |
 */
typedef struct gw_aead_blocks {
    gw_u32 first[4];
    const GW_GLOBAL gw_u8 *data;
    gw_u32 bytes;      /* length of the data, a multiple of 4 */
    gw_u32 lengths[2]; /* lengths of additional and encrypted data, in bytes */
    gw_u32 count;
} gw_aead_blocks;

GW_LANE gw_aead_blocks gw_aead_blocks_of(const gw_aead_round *round, const gw_aead_lane *lane,
                                         gw_u64 sequence)
{
    const gw_ipsec_aad aad = gw_ipsec_aad_of(lane->sa, sequence);
    gw_aead_blocks blocks;
    GW_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        blocks.first[i] = aad.words[i];
    }
    blocks.data = lane->data;
    blocks.bytes = lane->bytes;
    blocks.lengths[0] = aad.bytes;
    blocks.lengths[1] = lane->bytes;
    if (round->suite.cipher == GW_IPSEC_CIPHER_NULL) {
        /* With GMAC, the whole packet is additional authenticated data, including IV and
         * payload. */
        const gw_u32 extended = aad.bytes == 12;
        const gw_u32 high = gw_load_be32(lane->data - 8);
        blocks.first[2] = extended ? aad.words[2] : high;
        blocks.first[3] = extended ? high : gw_load_be32(lane->data - 4);
        blocks.data -= extended ? 4 : 0;
        blocks.bytes += extended ? 4 : 0;
        blocks.lengths[0] = aad.bytes + 8 + lane->bytes;
        blocks.lengths[1] = 0;
    }
    blocks.count = 2 + (blocks.bytes + 15) / 16;
    return blocks;
}

/* Returns one block of the text that GHASH or Poly1305 authenticates, as big-endian words. The last
 * block contains the lengths and is not valid here. */
GW_LANE void gw_aead_block(const gw_aead_blocks *blocks, gw_u32 index, gw_u32 *words)
{
    const gw_u32 at = index == 0 ? 0 : 16 * (index - 1);
    const GW_GLOBAL gw_u8 *data = blocks->data + at;
    const gw_u32 shift = 8 * ((gw_u32)(gw_u64)data & 3u);
    const GW_GLOBAL gw_u32 *aligned = (const GW_GLOBAL gw_u32 *)(data - shift / 8);
    /* Words outside the data of the packet are not read. */
    const gw_u32 left = index == 0 ? 0 : blocks->bytes - at;
    gw_u32 low = left != 0 ? aligned[0] : 0;
    GW_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        const gw_u32 reaches = 4 * i + 4 < left || (4 * i < left && shift != 0);
        const gw_u32 high = reaches ? aligned[i + 1] : 0;
        const gw_u32 word = 4 * i < left ? gw_funnel_right32(low, high, shift) : 0;
        words[i] = index == 0 ? blocks->first[i] : gw_swap32(word);
        low = high;
    }
}

GW_LANE gw_ghash_element gw_aead_ghash_block(const gw_aead_blocks *blocks, gw_u32 index)
{
    if (index + 1 == blocks->count) {
        return gw_ghash_words(0, 8 * blocks->lengths[0], 0, 8 * blocks->lengths[1]);
    }
    gw_u32 words[4];
    gw_aead_block(blocks, index, words);
    return gw_ghash_words(words[0], words[1], words[2], words[3]);
}

GW_LANE gw_poly1305 gw_aead_poly1305_block(const gw_aead_blocks *blocks, gw_u32 index)
{
    if (index + 1 == blocks->count) {
        return gw_poly1305_words(blocks->lengths[0], 0, blocks->lengths[1], 0, 1);
    }
    gw_u32 words[4];
    gw_aead_block(blocks, index, words);
    return gw_poly1305_words(gw_swap32(words[0]), gw_swap32(words[1]), gw_swap32(words[2]),
                             gw_swap32(words[3]), 1);
}

GW_LANE gw_ghash_element gw_aead_ghash(const gw_aead_round *round, const gw_aead_lane *lane,
                                       const gw_aead_blocks *blocks)
{
    const GW_GLOBAL gw_u32 *powers = lane->sa->authentication;
    const gw_ghash_element fourth = gw_ghash_key(powers + 3 * GW_GHASH_KEY_WORDS);
    gw_ghash_element step = fourth;
    for (gw_u32 lanes = 4; lanes < round->lanes; lanes *= 2) {
        step = gw_ghash_multiply(step, step);
    }
    const gw_u32 rows = (blocks->count + round->lanes - 1) / round->lanes;
    /* Each thread adds one block per pass. The last pass ends with the last block of the packet, so
     * the first pass may be incomplete. */
    const gw_u32 missing = rows * round->lanes - blocks->count;
    gw_ghash_element sum = gw_ghash_zero();
    GW_NO_COPY
    for (gw_u32 row = lane->rank < missing ? 1 : 0; row < rows; row++) {
        const gw_u32 index = row * round->lanes + lane->rank - missing;
        sum = gw_ghash_add(gw_ghash_multiply(sum, step), gw_aead_ghash_block(blocks, index));
    }
    /* Multiply the sum by the power of the key for this thread's last block. The exponent is one
     * more than the number of blocks after it in the pass. */
    const gw_u32 following = round->lanes - 1 - lane->rank;
    sum = gw_ghash_multiply(sum, gw_ghash_key(powers + (following & 3u) * GW_GHASH_KEY_WORDS));
    step = fourth;
    for (gw_u32 lanes = 4; lanes < round->lanes; lanes *= 2) {
        if (following & lanes) {
            sum = gw_ghash_multiply(sum, step);
        }
        step = gw_ghash_multiply(step, step);
    }
    return sum;
}

GW_LANE gw_poly1305 gw_aead_poly1305(const gw_aead_round *round, const gw_aead_lane *lane,
                                     const gw_aead_blocks *blocks, gw_poly1305 r)
{
    gw_poly1305 step = r;
    for (gw_u32 lanes = 1; lanes < round->lanes; lanes *= 2) {
        step = gw_poly1305_multiply(step, step);
    }
    const gw_u32 rows = (blocks->count + round->lanes - 1) / round->lanes;
    const gw_u32 missing = rows * round->lanes - blocks->count;
    gw_poly1305 sum = gw_poly1305_zero();
    gw_u32 row = lane->rank < missing ? 1 : 0;
    gw_u32 index = row * round->lanes + lane->rank - missing;
    gw_poly1305 next = row < rows ? gw_aead_poly1305_block(blocks, index) : sum;
    GW_NO_COPY
    for (; row < rows; row++) {
        const gw_poly1305 block = next;
        index += round->lanes;
        if (row + 1 < rows) {
            next = gw_aead_poly1305_block(blocks, index);
        }
        sum = gw_poly1305_add(gw_poly1305_multiply(sum, step), block);
    }
    const gw_u32 following = round->lanes - 1 - lane->rank;
    sum = gw_poly1305_multiply(sum, r);
    step = r;
    for (gw_u32 lanes = 1; lanes < round->lanes; lanes *= 2) {
        if (following & lanes) {
            sum = gw_poly1305_multiply(sum, step);
        }
        step = gw_poly1305_multiply(step, step);
    }
    return sum;
}

/* Computes and stores this thread's part of the sum that authenticates the packet. */
GW_LANE void gw_aead_sum(const gw_aead_round *round, const gw_aead_lane *lane,
                         GW_LOCAL gw_aead_scratch *scratch)
{
    if (lane->bytes == 0) {
        return;
    }
    const gw_aead_blocks blocks = gw_aead_blocks_of(round, lane, scratch->sequence[lane->packet]);
    const gw_u32 id = gw_lane_id();
    if (round->suite.auth == GW_IPSEC_AUTH_POLY1305) {
        const gw_poly1305 r = gw_poly1305_clamp(
            scratch->one_time_key[0][lane->packet], scratch->one_time_key[1][lane->packet],
            scratch->one_time_key[2][lane->packet], scratch->one_time_key[3][lane->packet]);
        const gw_poly1305 sum = gw_aead_poly1305(round, lane, &blocks, r);
        scratch->shared.sums[0][id] = sum.limb0;
        scratch->shared.sums[1][id] = sum.limb1;
        scratch->shared.sums[2][id] = sum.limb2;
        scratch->shared.sums[3][id] = sum.limb3;
        scratch->shared.sums[4][id] = sum.limb4;
    } else {
        const gw_ghash_element sum = gw_aead_ghash(round, lane, &blocks);
        scratch->shared.sums[0][id] = gw_ghash_word(sum, 0);
        scratch->shared.sums[1][id] = gw_ghash_word(sum, 1);
        scratch->shared.sums[2][id] = gw_ghash_word(sum, 2);
        scratch->shared.sums[3][id] = gw_ghash_word(sum, 3);
    }
}

/* Encrypts or decrypts the work-group's current packets, and computes the sums for their tags. It
 * has the same number of barriers as gw_aead_head_round. */
GW_GROUP void gw_aead_team_round(const gw_aead_round *round,
                                 const GW_LOCAL gw_aes_team_table *table,
                                 GW_LOCAL gw_aead_scratch *scratch)
{
    const gw_u32 outbound = gw_ipsec_direction(round->work->variant) == GW_IPSEC_OUTBOUND;
    const gw_u32 encrypted = round->suite.cipher != GW_IPSEC_CIPHER_NULL;
    const GW_LOCAL gw_u8 *entries = gw_aes_lane_table(table);
    gw_aead_lane lane = gw_aead_lane_of(round);
    gw_u32 words[GW_AEAD_UNIT_WORDS] = {0};
    gw_u32 ready = 0;
    if (outbound && encrypted) {
        ready = gw_aead_early_unit(round, &lane, entries, scratch, words);
    }
    gw_barrier();
    const gw_u32 bytes_max = gw_aead_bytes_max(scratch);
    gw_aead_lane_begin(&lane, round, scratch);
    if (outbound && encrypted) {
        gw_aead_cipher(round, &lane, entries, scratch, bytes_max, words, ready);
    }
    gw_barrier();
    gw_aead_sum(round, &lane, scratch);
    gw_barrier();
    gw_barrier();
    if (!outbound) {
        if (encrypted) {
            lane.bytes = scratch->bytes[lane.packet];
            gw_aead_cipher(round, &lane, entries, scratch, bytes_max, words, ready);
        }
        gw_barrier();
    }
}

#endif
