/*
 * AES-GCM, AES-GMAC and ChaCha20-Poly1305 of ESP by a group: all lanes of a team share a packet,
 * and a head lane for each packet does what comes once.
 *
 *   lanes 0..255     team of packet 0 | team of packet 1 | ...     8, 16 or 32 lanes each: the
 *   lanes 256..287   head of packet 0, of packet 1, ...            fewer packets, the more
 *
 *              teams                    heads                       barrier behind it
 *   outbound                            headers, IV                 1
 *              encrypt                  once-only block             2
 *              partial sums                                         3
 *                                       the tag                     4
 *   inbound                             headers                     1
 *                                       once-only block (ChaCha20)  2
 *              partial sums             once-only block (GCM)       3
 *                                       compare the tag             4
 *              decrypt                                              5
 *                                       take the packet out         6
 *
 * Sums (GHASH, Poly1305) are polynomials of the key: a lane takes every so manyth block, steps by
 * that power of the key, and at last multiplies by what its place in the team lacks. Blocks that
 * are missing for a whole row are zeros in front of the first.
 *
 * Encryption goes in steps of 64 bytes a lane: lanes leave the stream in scratch memory, then the
 * team takes it to the packet in aligned words of 16 bytes, one next to the other.
 */
#ifndef GODWIT_IPSEC_GROUP_AEAD_H
#define GODWIT_IPSEC_GROUP_AEAD_H

#include "../dialect/aes_lane.h"

#define GW_AEAD_TEAM_LANES  256u
#define GW_AEAD_PACKETS_MAX 32u
GW_STATIC_ASSERT(GW_GROUP_LANES == GW_AEAD_TEAM_LANES + GW_AEAD_PACKETS_MAX, aead_lanes);
#define GW_AEAD_UNIT_BYTES 64u
#define GW_AEAD_UNIT_WORDS 16u
/* Of a team's part of the stream: its lanes' units, 16 bytes of the step before, and room for
 * padding. */
#define GW_AEAD_STREAM_WORDS(lanes) (17u * (lanes) + 8u)

/* What lanes leave for each other. */
typedef struct gw_aead_scratch {
    gw_u64 data[GW_AEAD_PACKETS_MAX];     /* bytes from the arena's start to what is encrypted */
    gw_u64 sequence[GW_AEAD_PACKETS_MAX]; /* all 64 bits */
    gw_u32 bytes[GW_AEAD_PACKETS_MAX];    /* how much is encrypted; 0: nothing to do */
    gw_u32 sa[GW_AEAD_PACKETS_MAX];       /* index */
    gw_u32 r[4][GW_AEAD_PACKETS_MAX];     /* Poly1305's */
    union {
        gw_u32 stream[GW_AEAD_TEAM_LANES * 17 + GW_AEAD_PACKETS_MAX * 8];
        gw_u32 sums[5][GW_AEAD_TEAM_LANES];
    } of;
} gw_aead_scratch;

/* What all lanes of the group know of a round of a bin. */
typedef struct gw_aead_round {
    const gw_work *work;
    gw_ipsec_suite suite;
    gw_u32 first; /* index of its first packet */
    gw_u32 lanes; /* of a team */
} gw_aead_round;

/* One lane of a team. */
typedef struct gw_aead_lane {
    const GW_GLOBAL gw_ipsec_sa *sa;
    GW_GLOBAL gw_u8 *data;
    gw_u32 bytes;  /* of data; a multiple of 4 */
    gw_u32 packet; /* place in the round */
    gw_u32 place;  /* in the team */
} gw_aead_lane;

GW_LANE const GW_GLOBAL gw_ipsec_sa *gw_aead_sa(const gw_work *work, gw_u32 index)
{
    const GW_GLOBAL gw_ipsec_image *image = (const GW_GLOBAL gw_ipsec_image *)work->image;
    return (const GW_GLOBAL gw_ipsec_sa *)(work->image + image->sa_offset) + index;
}

GW_LANE gw_aead_lane gw_aead_lane_of(const gw_aead_round *round,
                                     const GW_LOCAL gw_aead_scratch *scratch)
{
    gw_aead_lane lane;
    lane.packet = gw_lane_id() / round->lanes;
    lane.place = gw_lane_id() & (round->lanes - 1);
    lane.bytes = scratch->bytes[lane.packet];
    /* Without anything to do, a lane neither reads nor writes a packet. */
    lane.sa = gw_aead_sa(round->work, lane.bytes == 0 ? 0 : scratch->sa[lane.packet]);
    lane.data = round->work->arena + (lane.bytes == 0 ? 0 : scratch->data[lane.packet]);
    return lane;
}

/* The longest of the round: all lanes of a warp make the same number of steps. */
GW_LANE gw_u32 gw_aead_bytes_max(const GW_LOCAL gw_aead_scratch *scratch)
{
    gw_u32 most = 0;
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AEAD_PACKETS_MAX; i++) {
        const gw_u32 bytes = scratch->bytes[i];
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The stream of bytes 64 * unit and so on, as words that lie in memory. */
GW_LANE void gw_aead_unit(const gw_aead_round *round, const gw_aead_lane *lane,
                          const GW_LOCAL gw_u8 *table, gw_u32 unit, gw_u32 *words)
{
    const GW_GLOBAL gw_u8 *iv = lane->data - 8;
    if (round->suite.cipher == GW_IPSEC_CIPHER_CHACHA20) {
        gw_chacha20_block(lane->sa->keys, gw_ipsec_chacha20_nonce(lane->sa, iv), unit + 1, words);
        return;
    }
    const gw_u32 salt = lane->sa->salt;
    const gw_u32 iv_first = gw_load_le32(iv);
    const gw_u32 iv_second = gw_load_le32(iv + 4);
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AEAD_UNIT_WORDS; i += 4) {
        words[i] = salt;
        words[i + 1] = iv_first;
        words[i + 2] = iv_second;
        words[i + 3] = gw_swap32(unit * (GW_AEAD_UNIT_BYTES / 16) + i / 4 + 2);
    }
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AEAD_UNIT_WORDS; i += 4 * GW_AES_LANE_BLOCKS) {
        gw_aes_lane_encrypt(table, (const GW_GLOBAL gw_u8 *)lane->sa->keys,
                            gw_ipsec_aes_rounds(round->suite), words + i);
    }
}

/* Where a word of the stream lies in its team's part: `word` counts from 16 in front of the step's
 * first, of which the last four are there. Lanes that write or read side by side meet in no bank.
 */
GW_LANE gw_u32 gw_aead_stream_at(gw_u32 word)
{
    return word + (word >> 4) - 12;
}

/* One step: lanes leave the stream for their units. What is behind the packet's end is 0, and what
 * lies around the packet stays as it is. */
GW_LANE void gw_aead_leave_unit(const gw_aead_round *round, const gw_aead_lane *lane,
                                const GW_LOCAL gw_u8 *table, GW_LOCAL gw_u32 *stream, gw_u32 step)
{
    const gw_u32 unit = step * round->lanes + lane->place;
    const gw_u32 from = unit * GW_AEAD_UNIT_BYTES;
    gw_u32 words[GW_AEAD_UNIT_WORDS] = {0};
    if (from < lane->bytes) {
        gw_aead_unit(round, lane, table, unit, words);
    }
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AEAD_UNIT_WORDS; i++) {
        stream[gw_aead_stream_at(16 + GW_AEAD_UNIT_WORDS * lane->place + i)] =
            from + 4 * i < lane->bytes ? words[i] : 0;
    }
}

/* The same step: the team takes the stream to the packet. skew: bytes from the aligned word in
 * which the packet begins to its first. */
GW_LANE void gw_aead_apply(const gw_aead_round *round, const gw_aead_lane *lane,
                           const GW_LOCAL gw_u32 *stream, gw_u32 step, gw_u32 skew)
{
    const gw_u32 shift = 8 * (-skew & 3u);
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AEAD_UNIT_BYTES / 16; i++) {
        const gw_u32 chunk = i * round->lanes + lane->place;
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

/* Encrypts or decrypts the round's packets, by all teams. */
GW_GROUP void gw_aead_cipher(const gw_aead_round *round, const gw_aead_lane *lane,
                             const GW_LOCAL gw_aes_team_table *table,
                             GW_LOCAL gw_aead_scratch *scratch, gw_u32 bytes_max)
{
    const GW_LOCAL gw_u8 *entries = gw_aes_lane_table(table);
    GW_LOCAL gw_u32 *stream =
        scratch->of.stream + lane->packet * GW_AEAD_STREAM_WORDS(round->lanes);
    const gw_u32 skew = (gw_u32)(lane->data - round->work->arena) & 15u;
    const gw_u32 step_bytes = round->lanes * GW_AEAD_UNIT_BYTES;
    gw_u32 carried = 0;
    for (gw_u32 step = 0; step * step_bytes < bytes_max + 15; step++) {
        if (lane->place < 4) {
            stream[lane->place] = carried;
        }
        gw_aead_leave_unit(round, lane, entries, stream, step);
        gw_warp_barrier();
        gw_aead_apply(round, lane, stream, step, skew);
        if (lane->place < 4) {
            carried =
                stream[gw_aead_stream_at(GW_AEAD_UNIT_WORDS * round->lanes + 12 + lane->place)];
        }
        gw_warp_barrier();
    }
}

/*
 * The blocks of a sum:
 *
 *   | first, of four words | data, zeros up to the next block | lengths |
 */
typedef struct gw_aead_blocks {
    gw_u32 first[4];
    const GW_GLOBAL gw_u8 *data;
    gw_u32 bytes;      /* a multiple of 4 */
    gw_u32 lengths[2]; /* of the additional data and of what is encrypted, in bytes */
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
        /* GMAC: all is additional data, IV and payload too (gw_ipsec_gmac_esp). */
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

/* Block `index` but the last, as big-endian words. */
GW_LANE void gw_aead_block(const gw_aead_blocks *blocks, gw_u32 index, gw_u32 *words)
{
    const gw_u32 at = index == 0 ? 0 : 16 * (index - 1);
    const GW_GLOBAL gw_u8 *data = blocks->data + at;
    const gw_u32 shift = 8 * ((gw_u32)(gw_u64)data & 3u);
    const GW_GLOBAL gw_u32 *aligned = (const GW_GLOBAL gw_u32 *)(data - shift / 8);
    /* Words that do not reach into the data are not read. */
    const gw_u32 there = index == 0 ? 0 : blocks->bytes - at;
    gw_u32 low = there != 0 ? aligned[0] : 0;
    GW_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        const gw_u32 reaches = 4 * i + 4 < there || (4 * i < there && shift != 0);
        const gw_u32 high = reaches ? aligned[i + 1] : 0;
        const gw_u32 word = 4 * i < there ? gw_funnel_right32(low, high, shift) : 0;
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

/* This lane's part of GHASH. */
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
    /* Rows end with the last block. */
    const gw_u32 missing = rows * round->lanes - blocks->count;
    gw_ghash_element sum = gw_ghash_zero();
    GW_NO_COPY
    for (gw_u32 row = lane->place < missing ? 1 : 0; row < rows; row++) {
        const gw_u32 index = row * round->lanes + lane->place - missing;
        sum = gw_ghash_add(gw_ghash_multiply(sum, step), gw_aead_ghash_block(blocks, index));
    }
    /* To the power of what is behind: 1 to `lanes`. */
    const gw_u32 behind = round->lanes - 1 - lane->place;
    sum = gw_ghash_multiply(sum, gw_ghash_key(powers + (behind & 3u) * GW_GHASH_KEY_WORDS));
    step = fourth;
    for (gw_u32 lanes = 4; lanes < round->lanes; lanes *= 2) {
        if (behind & lanes) {
            sum = gw_ghash_multiply(sum, step);
        }
        step = gw_ghash_multiply(step, step);
    }
    return sum;
}

/* This lane's part of Poly1305. */
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
    GW_NO_COPY
    for (gw_u32 row = lane->place < missing ? 1 : 0; row < rows; row++) {
        const gw_u32 index = row * round->lanes + lane->place - missing;
        sum =
            gw_poly1305_add(gw_poly1305_multiply(sum, step), gw_aead_poly1305_block(blocks, index));
    }
    const gw_u32 behind = round->lanes - 1 - lane->place;
    sum = gw_poly1305_multiply(sum, r);
    step = r;
    for (gw_u32 lanes = 1; lanes < round->lanes; lanes *= 2) {
        if (behind & lanes) {
            sum = gw_poly1305_multiply(sum, step);
        }
        step = gw_poly1305_multiply(step, step);
    }
    return sum;
}

/* Leaves each lane's part of the packet's sum. */
GW_LANE void gw_aead_sum(const gw_aead_round *round, const gw_aead_lane *lane,
                         GW_LOCAL gw_aead_scratch *scratch)
{
    if (lane->bytes == 0) {
        return;
    }
    const gw_aead_blocks blocks = gw_aead_blocks_of(round, lane, scratch->sequence[lane->packet]);
    const gw_u32 id = gw_lane_id();
    if (round->suite.auth == GW_IPSEC_AUTH_POLY1305) {
        const gw_poly1305 r =
            gw_poly1305_clamp(scratch->r[0][lane->packet], scratch->r[1][lane->packet],
                              scratch->r[2][lane->packet], scratch->r[3][lane->packet]);
        const gw_poly1305 sum = gw_aead_poly1305(round, lane, &blocks, r);
        scratch->of.sums[0][id] = sum.limb0;
        scratch->of.sums[1][id] = sum.limb1;
        scratch->of.sums[2][id] = sum.limb2;
        scratch->of.sums[3][id] = sum.limb3;
        scratch->of.sums[4][id] = sum.limb4;
    } else {
        const gw_ghash_element sum = gw_aead_ghash(round, lane, &blocks);
        scratch->of.sums[0][id] = gw_ghash_word(sum, 0);
        scratch->of.sums[1][id] = gw_ghash_word(sum, 1);
        scratch->of.sums[2][id] = gw_ghash_word(sum, 2);
        scratch->of.sums[3][id] = gw_ghash_word(sum, 3);
    }
}

/* A round by the teams: the barriers are those of gw_aead_head_round. */
GW_GROUP void gw_aead_team_round(const gw_aead_round *round,
                                 const GW_LOCAL gw_aes_team_table *table,
                                 GW_LOCAL gw_aead_scratch *scratch)
{
    const gw_u32 outbound = gw_ipsec_direction(round->work->variant) == GW_IPSEC_OUTBOUND;
    const gw_u32 encrypted = round->suite.cipher != GW_IPSEC_CIPHER_NULL;
    gw_barrier();
    const gw_u32 bytes_max = gw_aead_bytes_max(scratch);
    gw_aead_lane lane = gw_aead_lane_of(round, scratch);
    if (outbound && encrypted) {
        gw_aead_cipher(round, &lane, table, scratch, bytes_max);
    }
    gw_barrier();
    gw_aead_sum(round, &lane, scratch);
    gw_barrier();
    gw_barrier();
    if (!outbound) {
        if (encrypted) {
            lane.bytes = scratch->bytes[lane.packet];
            gw_aead_cipher(round, &lane, table, scratch, bytes_max);
        }
        gw_barrier();
    }
}

/* A head lane and its packet. */
typedef struct gw_aead_head {
    gw_ipsec_found found;
    gw_u32 packet; /* place in the round */
    gw_u32 named_at;
    gw_u32 cipher_bytes; /* 0: none, or the packet is settled */
    gw_u64 sequence;
    GW_GLOBAL gw_u8 *esp;
    gw_u32 once[4]; /* what is added to the sum at last */
} gw_aead_head;

/* Parses and checks packet `index` of the bin, and says what the team has to do. */
GW_LANE void gw_aead_head_begin(gw_aead_head *head, const gw_aead_round *round,
                                GW_LOCAL gw_aead_scratch *scratch, gw_u32 index)
{
    const gw_work *work = round->work;
    head->cipher_bytes = 0;
    if (head->packet < GW_AEAD_TEAM_LANES / round->lanes && index < work->count) {
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
        work->outcomes[index] = outcome;
        if (head->cipher_bytes != 0) {
            const gw_u32 before = GW_IPSEC_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(round->suite);
            scratch->data[head->packet] = (gw_u64)(head->esp + before - work->arena);
            scratch->sequence[head->packet] = head->sequence;
            scratch->sa[head->packet] = gw_ipsec_sa_index(lane.parameter);
        }
    }
    scratch->bytes[head->packet] = head->cipher_bytes;
}

/* Poly1305's one-time key (RFC 8439, section 2.6). */
GW_LANE void gw_aead_head_poly1305(gw_aead_head *head, GW_LOCAL gw_aead_scratch *scratch)
{
    if (head->cipher_bytes == 0) {
        return;
    }
    gw_u32 block[GW_CHACHA20_WORDS];
    const GW_GLOBAL gw_u8 *iv = head->esp + GW_IPSEC_ESP_HEADER_BYTES;
    gw_chacha20_block(head->found.sa->keys, gw_ipsec_chacha20_nonce(head->found.sa, iv), 0, block);
    GW_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        scratch->r[i][head->packet] = block[i];
        head->once[i] = block[4 + i];
    }
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
        gw_u32 words[4];
        gw_poly1305_tag(number, head->once, words);
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
        gw_ipsec_sealing sealing;
        sealing.esp = head->esp;
        sealing.sequence = head->sequence;
        sealing.cipher_bytes = head->cipher_bytes;
        gw_ipsec_tag_store(icv, tag, head->found.sa->icv_bytes);
        gw_ipsec_seal_end(head->found, round->suite, sealing);
    } else if (!gw_ipsec_tag_same(icv, tag, head->found.sa->icv_bytes)) {
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
    if (poly1305) {
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

/* Lanes of a team: as many as leave one for each packet of the bin, if they can. */
GW_LANE gw_u32 gw_aead_lanes(gw_u32 packets)
{
    gw_u32 lanes = GW_AEAD_TEAM_LANES / GW_AEAD_PACKETS_MAX;
    while (lanes < 32 && packets * lanes * 2 <= GW_AEAD_TEAM_LANES) {
        lanes *= 2;
    }
    return lanes;
}

/* Whether this form is for the suite. */
GW_LANE gw_u32 gw_aead_takes(gw_ipsec_suite suite)
{
    return suite.protocol == GW_IPSEC_ESP &&
           (suite.auth == GW_IPSEC_AUTH_GHASH || suite.auth == GW_IPSEC_AUTH_POLY1305);
}

/*
 * All packets of a bin, by all lanes of the group, which come from a barrier. table: to encrypt;
 * not looked at for ChaCha20. Kept out of the loop, so that what it needs of registers is not taken
 * from others.
 */
GW_APART void gw_aead_bin(const gw_work *work, gw_ipsec_suite suite,
                          const GW_LOCAL gw_aes_team_table *table,
                          GW_LOCAL gw_aead_scratch *scratch)
{
    gw_aead_round round;
    round.work = work;
    round.suite = suite;
    round.lanes = gw_aead_lanes(work->count);
    for (round.first = 0; round.first < work->count;
         round.first += GW_AEAD_TEAM_LANES / round.lanes) {
        if (gw_lane_id() < GW_AEAD_TEAM_LANES) {
            gw_aead_team_round(&round, table, scratch);
        } else {
            gw_aead_head_round(&round, table, scratch);
        }
    }
}

#endif
