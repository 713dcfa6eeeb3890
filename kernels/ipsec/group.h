/*
 * ipsec by a group: 32 packets at a time, a team of four lanes to encrypt or decrypt
 * each, and one lane more to hash it, which follows a step behind.
 *
 *   lanes 0..127     team of packet 0 | team of packet 1 | ... | team of packet 31
 *   lanes 128..159   hash of packet 0, of packet 1, ...
 *
 * A step is 64 bytes of each packet. In step k the teams leave its words in scratch
 * memory, while the hash lanes take those of step k - 1; a barrier ends the step.
 * What is authenticated begins 24 bytes in front of what is encrypted, so a block of
 * the hash takes the last 6 words of one step and the first 10 of the next:
 *
 *   hash     | block 0: SPI, sequence, IV, 10 words | block 1: 6 words, 10 words | ...
 *   cipher                         | step 0: 16 words         | step 1: 16 words | ...
 *
 * Encrypting, a step is encrypted; decrypting, the steps bring the packet to the
 * hash first, and what is authentic is decrypted afterwards. Packets that have ended
 * or are dropped go on as idle lanes until the round's longest ends (dummy packets,
 * Hummingbird, section 4): all lanes meet at the same barriers.
 *
 * Headers, checks and verdicts are those of the lane form, by the hash lanes.
 *
 * Windows are read and written in aligned words, each composed of two neighbouring
 * columns where the packet begins elsewhere. A word that reaches into the next
 * column is written with that, so nothing is written before it was read.
 */
#ifndef GODWIT_IPSEC_GROUP_H
#define GODWIT_IPSEC_GROUP_H

#include "../dialect/aes_team.h"

GW_LANE gw_lane gw_ipsec_lane(const gw_work *work, const gw_descriptor *descriptor, gw_u32 index)
{
    gw_lane lane;
    lane.window = work->arena + (gw_u64)descriptor->window * GW_WINDOW_UNIT;
    lane.image = work->image;
    lane.parameter = work->parameters[index];
    lane.variant = work->variant;
    return lane;
}

#include "group_aead.h"

/* Packets of one round. */
#define GW_IPSEC_ROUND 32u
#define GW_IPSEC_TEAM  4u
/* Lanes of all teams. */
#define GW_IPSEC_TEAMS       (GW_IPSEC_ROUND * GW_IPSEC_TEAM)
#define GW_IPSEC_BLOCK_BYTES 16u /* of the cipher */
#define GW_IPSEC_STEP_BLOCKS 4u
#define GW_IPSEC_STEP_WORDS  16u
/* Words from one word of a packet to its next: teams write and hash lanes read without conflict. */
#define GW_IPSEC_STRIDE (GW_IPSEC_ROUND + 8u)
/* Words in front of what is encrypted that are authenticated too: SPI, sequence number, IV. */
#define GW_IPSEC_AHEAD 6u

GW_STATIC_ASSERT(GW_GROUP_LANES == GW_IPSEC_TEAMS + GW_IPSEC_ROUND, ipsec_group_lanes);

/* What the teams know of their packets, and what they leave for the hash. */
typedef struct gw_ipsec_scratch {
    gw_aes_team_table table;
    gw_u32 table_direction; /* what the table is for */
    union {
        struct {
            gw_u64 data[GW_IPSEC_ROUND];   /* bytes from the arena's start to the first block */
            gw_u32 blocks[GW_IPSEC_ROUND]; /* to encrypt or decrypt; 0: none */
            gw_u32 places[GW_IPSEC_ROUND]; /* gw_ipsec_places of it */
            gw_u32 iv[4 * GW_IPSEC_STRIDE];
            gw_u32 stream[2][GW_IPSEC_STEP_WORDS * GW_IPSEC_STRIDE];
        };
        gw_aead_scratch aead;
    };
} gw_ipsec_scratch;

#define GW_IPSEC_TABLE_NONE 0xffffffffu

/* What of gw_ipsec_found and gw_ipsec_opening is needed once a packet is decrypted, in one word. */
GW_LANE gw_u32 gw_ipsec_places(gw_ipsec_found found, gw_u32 named_at)
{
    return named_at << 16 | found.version << 8 | found.l2_bytes;
}

/* The table depends on the direction, so the first bin fills it. */
GW_GROUP void gw_ipsec_prepare(const GW_GLOBAL gw_u8 *image, GW_LOCAL gw_ipsec_scratch *scratch)
{
    (void)image;
    if (gw_lane_id() == 0) {
        scratch->table_direction = GW_IPSEC_TABLE_NONE;
    }
}

/* One lane of a team, or what it knows. */
typedef struct gw_ipsec_cipher {
    gw_aes_team aes;
    GW_GLOBAL gw_u32 *words; /* the aligned word in which this lane's column of block 0 begins */
    gw_u32 shift;            /* bits from there to the column */
    gw_u32 packet;           /* place in the round */
    gw_u32 column;
    gw_u32 blocks;
    gw_u32 previous;                  /* encrypted column of the block before */
    gw_u32 written;                   /* column of the block before, as written */
    gw_u32 low[GW_IPSEC_STEP_BLOCKS]; /* of the step to come, as loaded */
    gw_u32 high[GW_IPSEC_STEP_BLOCKS];
} gw_ipsec_cipher;

GW_LANE gw_u32 gw_ipsec_load(const gw_ipsec_cipher *lane, const GW_GLOBAL gw_u32 *words)
{
    return gw_funnel_right32(words[0], words[lane->shift == 0 ? 0 : 1], lane->shift);
}

/* Loads the blocks of a step, ahead of their use. */
GW_LANE void gw_ipsec_fetch(gw_ipsec_cipher *lane, gw_u32 step)
{
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_STEP_BLOCKS; i++) {
        const gw_u32 block = step * GW_IPSEC_STEP_BLOCKS + i;
        if (block < lane->blocks) {
            lane->low[i] = lane->words[4 * block];
            lane->high[i] = lane->words[4 * block + (lane->shift == 0 ? 0 : 1)];
        }
    }
}

/* The same for blocks one after another: makes place 0 free, and loads one more behind the others.
 */
GW_LANE void gw_ipsec_fetch_next(gw_ipsec_cipher *lane, gw_u32 block)
{
    const gw_u32 last = GW_IPSEC_STEP_BLOCKS - 1;
    GW_UNROLL
    for (gw_u32 i = 0; i < last; i++) {
        lane->low[i] = lane->low[i + 1];
        lane->high[i] = lane->high[i + 1];
    }
    if (block < lane->blocks) {
        lane->low[last] = lane->words[4 * block];
        lane->high[last] = lane->words[4 * block + (lane->shift == 0 ? 0 : 1)];
    }
}

GW_LANE gw_u32 gw_ipsec_fetched(const gw_ipsec_cipher *lane, gw_u32 i)
{
    return gw_funnel_right32(lane->low[i], lane->high[i], lane->shift);
}

/* Writes this lane's column at `words`, by all lanes of a team. What sticks out of the aligned
 * words goes with the block to come, or, `last`, now. */
GW_LANE void gw_ipsec_write(gw_ipsec_cipher *lane, GW_GLOBAL gw_u32 *words, gw_u32 column,
                            gw_u32 active, gw_u32 last)
{
    const gw_u32 lent = lane->column == 3 ? lane->written : column;
    const gw_u32 before = gw_team_word(lent, (lane->column + 3) & 3u);
    if (!active) {
        return;
    }
    lane->written = column;
    words[0] = gw_funnel_left32(before, column, lane->shift);
    if (last && lane->column == 3) {
        GW_GLOBAL gw_u8 *bytes = (GW_GLOBAL gw_u8 *)(words + 1);
        for (gw_u32 i = 0; 8 * i < lane->shift; i++) {
            bytes[i] = (gw_u8)(column >> (32 - lane->shift + 8 * i));
        }
    }
}

/*
 * Takes up the keys of packet `index`, while its hash lane looks at the packet itself: the
 * parameter alone says which, and the IV too, which is gw_ipsec_cbc_iv's.
 */
GW_LANE void gw_ipsec_cipher_keys(gw_ipsec_cipher *lane, const gw_work *work,
                                  GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 first)
{
    lane->packet = gw_lane_id() / GW_IPSEC_TEAM;
    lane->column = gw_lane_id() % GW_IPSEC_TEAM;
    lane->previous = 0;
    lane->written = 0;
    const gw_u32 index = first + lane->packet;
    const gw_u64 parameter = index < work->count ? work->parameters[index] : 0;
    const GW_GLOBAL gw_ipsec_image *image = (const GW_GLOBAL gw_ipsec_image *)work->image;
    const gw_u32 number = gw_ipsec_sa_index(parameter);
    const GW_GLOBAL gw_ipsec_sa *sas =
        (const GW_GLOBAL gw_ipsec_sa *)(work->image + image->sa_offset);
    /* Without its SA the packet is dropped, and the team works with the first. */
    const GW_GLOBAL gw_ipsec_sa *sa = sas + (number < image->sa_count ? number : 0);
    gw_aes_team_begin(&lane->aes, &scratch->table, sa->keys, lane->column);
    if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        const gw_u32 sequence = gw_swap32((gw_u32)parameter);
        const gw_u32 upper = gw_swap32((gw_u32)(gw_ipsec_sequence(parameter) >> 32));
        const GW_GLOBAL gw_u32 *field = lane->column == 3 ? &sa->destination[0] : &sa->spi;
        const gw_u32 named = gw_swap32(*field);
        const gw_u32 nonce = lane->column == 1 ? upper : (lane->column == 2 ? sequence : named);
        lane->previous = gw_aes_team_encrypt(&lane->aes, lane->column, nonce);
        scratch->iv[lane->column * GW_IPSEC_STRIDE + lane->packet] = gw_swap32(lane->previous);
        /* What lies in front of the IV. */
        lane->written = sequence;
    }
}

/* Takes up the packet, once its hash lane has said what to do. */
GW_LANE void gw_ipsec_cipher_begin(gw_ipsec_cipher *lane, const gw_work *work,
                                   const GW_LOCAL gw_ipsec_scratch *scratch)
{
    lane->blocks = scratch->blocks[lane->packet];
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_STEP_BLOCKS; i++) {
        lane->low[i] = 0;
        lane->high[i] = 0;
    }
    /* An idle team points to the arena's second block, and writes nothing. */
    const gw_u64 data = lane->blocks == 0 ? GW_IPSEC_BLOCK_BYTES : scratch->data[lane->packet];
    lane->words = (GW_GLOBAL gw_u32 *)(work->arena + (data & ~(gw_u64)3)) + lane->column;
    lane->shift = 8 * ((gw_u32)data & 3u);
}

/* Hands a column over to the hash. */
GW_LANE void gw_ipsec_hand_over(const gw_ipsec_cipher *lane, GW_LOCAL gw_ipsec_scratch *scratch,
                                gw_u32 step, gw_u32 i, gw_u32 column)
{
    scratch->stream[step & 1u][(4 * i + lane->column) * GW_IPSEC_STRIDE + lane->packet] =
        gw_swap32(column);
}

/* One step of encryption; blocks_max: of the round's longest packet. */
GW_LANE void gw_ipsec_encrypt_step(gw_ipsec_cipher *lane, GW_LOCAL gw_ipsec_scratch *scratch,
                                   gw_u32 step, gw_u32 blocks_max)
{
    GW_NO_COPY
    for (gw_u32 i = 0; i < GW_IPSEC_STEP_BLOCKS; i++) {
        const gw_u32 block = step * GW_IPSEC_STEP_BLOCKS + i;
        if (block >= blocks_max) {
            return;
        }
        const gw_u32 plain = gw_ipsec_fetched(lane, 0);
        gw_ipsec_fetch_next(lane, block + GW_IPSEC_STEP_BLOCKS);
        lane->previous = gw_aes_team_encrypt(&lane->aes, lane->column, lane->previous ^ plain);
        gw_ipsec_hand_over(lane, scratch, step, i, lane->previous);
        gw_ipsec_write(lane, lane->words + 4 * block, lane->previous, block < lane->blocks,
                       block + 1 == lane->blocks);
    }
}

/* Brings one step to the hash as it is. */
GW_LANE void gw_ipsec_stage_step(gw_ipsec_cipher *lane, GW_LOCAL gw_ipsec_scratch *scratch,
                                 gw_u32 step)
{
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_STEP_BLOCKS; i++) {
        gw_ipsec_hand_over(lane, scratch, step, i, gw_ipsec_fetched(lane, i));
    }
    gw_ipsec_fetch(lane, step + 1);
}

/* Decrypts a packet; its blocks do not wait for each other. */
GW_LANE void gw_ipsec_decrypt_blocks(gw_ipsec_cipher *lane, gw_u32 blocks_max)
{
    if (lane->blocks != 0) {
        lane->previous = gw_ipsec_load(lane, lane->words - 4);
        lane->written = lane->previous;
    }
    gw_ipsec_fetch(lane, 0);
    for (gw_u32 step = 0; step * GW_IPSEC_STEP_BLOCKS < blocks_max; step++) {
        gw_u32 plain[GW_IPSEC_STEP_BLOCKS];
        gw_u32 cipher[GW_IPSEC_STEP_BLOCKS];
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_IPSEC_STEP_BLOCKS; i++) {
            cipher[i] = gw_ipsec_fetched(lane, i);
        }
        gw_ipsec_fetch(lane, step + 1);
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_IPSEC_STEP_BLOCKS; i++) {
            plain[i] = gw_aes_team_decrypt(&lane->aes, lane->column, cipher[i]);
        }
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_IPSEC_STEP_BLOCKS; i++) {
            const gw_u32 block = step * GW_IPSEC_STEP_BLOCKS + i;
            gw_ipsec_write(lane, lane->words + 4 * block, plain[i] ^ lane->previous,
                           block < lane->blocks, block + 1 == lane->blocks);
            lane->previous = cipher[i];
        }
    }
}

/* A hash lane and its packet. */
typedef struct gw_ipsec_hash {
    const GW_GLOBAL gw_ipsec_sa *sa;
    GW_GLOBAL gw_u8 *data; /* what is to be encrypted or decrypted */
    gw_u32 blocks;         /* 0: none, or the packet is settled */
    gw_u32 packet;         /* place in the round */
    gw_u32 upper;          /* half of an extended sequence number, which is authenticated last */
    gw_sha1 state;
    gw_u32 ahead[GW_IPSEC_AHEAD]; /* words of the stream that the next block begins with */
} gw_ipsec_hash;

/* Blocks of the hash over a packet of `blocks` blocks: its words, 0x80 and two of length. One word
 * more, of an extended sequence number, still fits. */
GW_LANE gw_u32 gw_ipsec_hash_blocks(gw_u32 blocks)
{
    return (GW_IPSEC_AHEAD + 4 * blocks + 3 + 15) / 16;
}

/* Parses and checks packet `index` of the bin, and says what the team has to do. */
GW_LANE void gw_ipsec_hash_begin(gw_ipsec_hash *hash, const gw_work *work,
                                 GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 index)
{
    hash->packet = gw_lane_id() - GW_IPSEC_TEAMS;
    hash->blocks = 0;
    const gw_ipsec_suite suite = gw_ipsec_suite_of(work->variant);
    if (index < work->count) {
        gw_descriptor descriptor = work->descriptors[index];
        const gw_lane lane = gw_ipsec_lane(work, &descriptor, index);
        gw_outcome outcome = {0, 0, 0, 0};
        const gw_ipsec_found found = gw_ipsec_find(&lane, &descriptor, &outcome);
        if (found.sa != 0) {
            /* Needed later, but asked for now, with everything else. */
            hash->state = gw_sha1_load(found.sa->authentication);
        }
        if (found.sa != 0 && gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
            const gw_ipsec_sealing sealing =
                gw_ipsec_seal_begin(&lane, found, suite, &descriptor, &outcome);
            hash->data = sealing.esp + 4 * GW_IPSEC_AHEAD;
            hash->blocks = sealing.cipher_bytes / GW_IPSEC_BLOCK_BYTES;
            hash->upper = (gw_u32)(sealing.sequence >> 32);
            hash->ahead[0] = found.sa->spi;
            hash->ahead[1] = (gw_u32)sealing.sequence;
            work->descriptors[index] = descriptor;
        } else if (found.sa != 0) {
            const gw_ipsec_opening opening =
                gw_ipsec_open_begin(&lane, found, suite, &descriptor, &outcome);
            hash->data = opening.esp + 4 * GW_IPSEC_AHEAD;
            hash->blocks = opening.cipher_bytes / GW_IPSEC_BLOCK_BYTES;
            hash->upper = (gw_u32)(opening.sequence >> 32);
            if (hash->blocks != 0) {
                GW_UNROLL
                for (gw_u32 i = 0; i < GW_IPSEC_AHEAD; i++) {
                    hash->ahead[i] = gw_load_be32(opening.esp + 4 * i);
                }
            }
            scratch->places[hash->packet] = gw_ipsec_places(found, opening.named_at);
        }
        work->outcomes[index] = outcome;
        if (hash->blocks != 0) {
            hash->sa = found.sa;
            scratch->data[hash->packet] = (gw_u64)(hash->data - work->arena);
        }
    }
    scratch->blocks[hash->packet] = hash->blocks;
}

/* One block of the hash: of the stream, or the outer one behind its last. */
GW_LANE void gw_ipsec_hash_turn(gw_ipsec_hash *hash, const gw_work *work,
                                const GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 turn)
{
    const gw_u32 turns = gw_ipsec_hash_blocks(hash->blocks);
    if (hash->blocks == 0 || turn > turns) {
        return;
    }
    gw_u32 w[16];
    if (turn == turns) {
        w[0] = hash->state.a;
        w[1] = hash->state.b;
        w[2] = hash->state.c;
        w[3] = hash->state.d;
        w[4] = hash->state.e;
        w[5] = 0x80000000u;
        GW_UNROLL
        for (gw_u32 i = 6; i < 15; i++) {
            w[i] = 0;
        }
        w[15] = 8 * (GW_SHA1_BLOCK_BYTES + 20);
        hash->state = gw_sha1_load(hash->sa->authentication + GW_IPSEC_HMAC_OUTER);
    } else {
        const GW_LOCAL gw_u32 *stream = scratch->stream[turn & 1u] + hash->packet;
        if (turn == 0 && gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
            GW_UNROLL
            for (gw_u32 i = 0; i < 4; i++) {
                hash->ahead[2 + i] = scratch->iv[i * GW_IPSEC_STRIDE + hash->packet];
            }
        }
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_IPSEC_AHEAD; i++) {
            w[i] = hash->ahead[i];
            hash->ahead[i] = stream[(10 + i) * GW_IPSEC_STRIDE];
        }
        GW_UNROLL
        for (gw_u32 i = 0; i < 10; i++) {
            w[GW_IPSEC_AHEAD + i] = stream[i * GW_IPSEC_STRIDE];
        }
        /* FIPS 180-4, section 5.1.1. */
        const gw_u32 words = GW_IPSEC_AHEAD + 4 * hash->blocks;
        if (16 * turn + 16 > words) {
            const gw_u32 extended = gw_ipsec_has(hash->sa, GW_IPSEC_SA_ESN);
            const gw_u32 first = extended ? hash->upper : 0x80000000u;
            const gw_u32 second = extended ? 0x80000000u : 0;
            GW_UNROLL
            for (gw_u32 i = 0; i < 16; i++) {
                const gw_u32 word = 16 * turn + i;
                w[i] = word < words ? w[i]
                                    : (word == words ? first : (word == words + 1 ? second : 0));
            }
            if (turn + 1 == turns) {
                w[15] = 8 * (GW_SHA1_BLOCK_BYTES + 4 * (words + extended));
            }
        }
    }
    gw_sha1_block(&hash->state, w);
}

/* Writes or compares the ICV. A packet that is not authentic is not decrypted. */
GW_LANE void gw_ipsec_hash_end(gw_ipsec_hash *hash, const gw_work *work,
                               GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 index)
{
    if (hash->blocks == 0) {
        return;
    }
    const gw_u32 cipher_bytes = hash->blocks * GW_IPSEC_BLOCK_BYTES;
    GW_GLOBAL gw_u8 *icv = hash->data + cipher_bytes;
    const gw_ipsec_tag tag =
        gw_ipsec_tag_words(hash->state.a, hash->state.b, hash->state.c, hash->state.d);
    if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        gw_ipsec_found found;
        gw_ipsec_sealing sealing;
        found.sa = hash->sa;
        sealing.esp = hash->data - 4 * GW_IPSEC_AHEAD;
        sealing.cipher_bytes = cipher_bytes;
        gw_ipsec_tag_store(icv, tag, hash->sa->icv_bytes);
        gw_ipsec_seal_end(found, gw_ipsec_suite_of(work->variant), sealing);
    } else if (!gw_ipsec_tag_same(icv, tag, hash->sa->icv_bytes)) {
        gw_outcome outcome;
        gw_drop(&outcome, GW_IPSEC_AUTHENTICATION);
        work->outcomes[index] = outcome;
        hash->blocks = 0;
        scratch->blocks[hash->packet] = 0;
    }
}

/* Settles a packet that is decrypted. */
GW_LANE void gw_ipsec_settle(const gw_ipsec_hash *hash, const gw_work *work,
                             const GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 index)
{
    if (hash->blocks == 0) {
        return;
    }
    gw_descriptor descriptor = work->descriptors[index];
    const gw_lane lane = gw_ipsec_lane(work, &descriptor, index);
    gw_outcome outcome = {0, 0, 0, 0};
    const gw_u32 places = scratch->places[hash->packet];
    gw_ipsec_found found;
    found.sa = hash->sa;
    found.l2_bytes = places & 0xffu;
    found.version = places >> 8 & 0xffu;
    gw_ipsec_opening opening;
    opening.esp = hash->data - 4 * GW_IPSEC_AHEAD;
    opening.sequence = 0;
    opening.cipher_bytes = hash->blocks * GW_IPSEC_BLOCK_BYTES;
    opening.named_at = places >> 16;
    gw_ipsec_open_end(&lane, found, gw_ipsec_suite_of(work->variant), opening, &descriptor,
                      &outcome);
    work->descriptors[index] = descriptor;
    work->outcomes[index] = outcome;
}

/* Blocks of the round's longest packet. */
GW_LANE gw_u32 gw_ipsec_blocks_max(const GW_LOCAL gw_ipsec_scratch *scratch)
{
    gw_u32 blocks_max = 0;
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_ROUND; i++) {
        const gw_u32 blocks = scratch->blocks[i];
        blocks_max = blocks > blocks_max ? blocks : blocks_max;
    }
    return blocks_max;
}

/* Steps of a round, or rather the hash's blocks and one for the outer hash; 0: nothing to do. */
GW_LANE gw_u32 gw_ipsec_turns(gw_u32 blocks_max)
{
    return blocks_max == 0 ? 0 : gw_ipsec_hash_blocks(blocks_max) + 1;
}

/* A round by the teams: the barriers are those of gw_ipsec_hash_round. */
GW_GROUP void gw_ipsec_team_round(const gw_work *work, GW_LOCAL gw_ipsec_scratch *scratch,
                                  gw_u32 first)
{
    gw_ipsec_cipher cipher;
    gw_ipsec_cipher_keys(&cipher, work, scratch, first);
    gw_barrier();
    const gw_u32 blocks_max = gw_ipsec_blocks_max(scratch);
    const gw_u32 turns = gw_ipsec_turns(blocks_max);
    gw_ipsec_cipher_begin(&cipher, work, scratch);
    gw_ipsec_fetch(&cipher, 0);
    if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        gw_ipsec_write(&cipher, cipher.words - 4, cipher.previous, cipher.blocks != 0, 0);
        for (gw_u32 step = 0; step <= turns; step++) {
            gw_ipsec_encrypt_step(&cipher, scratch, step, blocks_max);
            gw_barrier();
        }
        return;
    }
    for (gw_u32 step = 0; step <= turns; step++) {
        gw_ipsec_stage_step(&cipher, scratch, step);
        gw_barrier();
    }
    gw_barrier();
    cipher.blocks = scratch->blocks[cipher.packet];
    gw_ipsec_decrypt_blocks(&cipher, blocks_max);
    gw_barrier();
}

/* The same round by the hash lanes; first: index of its first packet. */
GW_GROUP void gw_ipsec_hash_round(const gw_work *work, GW_LOCAL gw_ipsec_scratch *scratch,
                                  gw_u32 first)
{
    gw_ipsec_hash hash;
    const gw_u32 index = first + gw_lane_id() - GW_IPSEC_TEAMS;
    gw_ipsec_hash_begin(&hash, work, scratch, index);
    gw_barrier();
    const gw_u32 turns = gw_ipsec_turns(gw_ipsec_blocks_max(scratch));
    gw_barrier();
    for (gw_u32 turn = 0; turn < turns; turn++) {
        gw_ipsec_hash_turn(&hash, work, scratch, turn);
        gw_barrier();
    }
    gw_ipsec_hash_end(&hash, work, scratch, index);
    if (gw_ipsec_direction(work->variant) != GW_IPSEC_OUTBOUND) {
        gw_barrier();
        gw_barrier();
        gw_ipsec_settle(&hash, work, scratch, index);
    }
}

/* Whether teams work on the bin; otherwise each lane takes packets of its own. */
GW_LANE gw_u32 gw_ipsec_has_teams(const gw_work *work)
{
    const GW_GLOBAL gw_ipsec_image *image = (const GW_GLOBAL gw_ipsec_image *)work->image;
    return work->variant >> 1 == 0 && image->sa_count != 0;
}

/* One packet by one lane, all of the bin. Kept out of the loop, so that what transforms need of
 * registers is not taken from the teams. */
GW_RARE void gw_ipsec_by_lanes(const gw_work *work)
{
    for (gw_u32 i = gw_lane_id(); i < work->count; i += gw_lane_count()) {
        gw_descriptor descriptor = work->descriptors[i];
        const gw_lane lane = gw_ipsec_lane(work, &descriptor, i);
        gw_outcome outcome = {0, 0, 0, 0};
        gw_ipsec_packet(&lane, &descriptor, &outcome);
        work->descriptors[i] = descriptor;
        work->outcomes[i] = outcome;
    }
}

/* Fills the table for a direction of AES, by all lanes, unless it is there. */
GW_GROUP void gw_ipsec_fill_table(GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 direction)
{
    gw_barrier();
    if (scratch->table_direction == direction) {
        return;
    }
    gw_aes_team_fill(&scratch->table, direction != GW_IPSEC_OUTBOUND);
    gw_barrier();
    if (gw_lane_id() == 0) {
        scratch->table_direction = direction;
    }
}

/*
 * Teams and hash lanes go their own ways, so that neither needs the registers of the
 * other; both come to the same number of barriers. No warp has lanes of both.
 */
GW_GROUP void gw_ipsec_bin(const gw_work *work, GW_LOCAL gw_ipsec_scratch *scratch)
{
    if (work->count == 0) {
        return;
    }
    if (gw_aead_takes(work)) {
        gw_ipsec_fill_table(scratch, GW_IPSEC_OUTBOUND);
        gw_aead_bin(work, &scratch->table, &scratch->aead);
        return;
    }
    if (!gw_ipsec_has_teams(work)) {
        gw_ipsec_by_lanes(work);
        return;
    }
    gw_ipsec_fill_table(scratch, gw_ipsec_direction(work->variant));
    for (gw_u32 first = 0; first < work->count; first += GW_IPSEC_ROUND) {
        if (gw_lane_id() < GW_IPSEC_TEAMS) {
            gw_ipsec_team_round(work, scratch, first);
        } else {
            gw_ipsec_hash_round(work, scratch, first);
        }
    }
}

#endif
