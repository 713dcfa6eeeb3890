/*
 * Work of the threads that encrypt or decrypt packets (group.h). A team of two threads processes
 * one packet. The team also copies the packet to a ring buffer, where another thread hashes it.
 *
 * Teams read and write packets in aligned words. A packet that is not aligned needs two
 * neighbouring aligned words for each 4-byte column of an AES block. An aligned word that contains
 * bytes of two columns is written together with the second column. No byte is thus overwritten
 * before it is read.
 */
#ifndef GODWIT_IPSEC_GROUP_CIPHER_H
#define GODWIT_IPSEC_GROUP_CIPHER_H

/* Number of independent AES blocks that a team processes at once. It works on one block while the
 * other block waits for table lookups. */
#define GW_IPSEC_PARALLEL_BLOCKS 2u

GW_LANE gw_u32 gw_ipsec_blocks(gw_u32 words)
{
    return (words + GW_IPSEC_BLOCK_WORDS - 1) / GW_IPSEC_BLOCK_WORDS;
}

/* Waits at the barriers of the given number of steps. */
GW_GROUP void gw_ipsec_wait(gw_u32 steps)
{
    for (gw_u32 step = 0; step < steps; step++) {
        gw_barrier();
    }
}

/* Aligned words that contain one thread's half of an AES block. */
typedef struct gw_ipsec_raw {
    gw_u32 word[3];
} gw_ipsec_raw;

/* State of a thread that encrypts or decrypts packets. */
typedef struct gw_ipsec_cipher {
    gw_aes_team aes;
    GW_GLOBAL gw_u32 *words;                /* aligned word at the start of this half of block 0 */
    gw_u32 shift;                           /* bits from that word to the half */
    gw_u32 packet;                          /* index of the packet in the round */
    gw_u32 half;                            /* index of the thread in its team */
    gw_u32 blocks;                          /* number of blocks; 0: none */
    gw_u32 ring;                            /* ring index of this thread's half block */
    gw_aes_half previous;                   /* encrypted half of the previous block */
    gw_u32 written;                         /* second word of the previous half, as written */
    gw_ipsec_raw raw[GW_IPSEC_STEP_BLOCKS]; /* words of blocks that are loaded ahead */
} gw_ipsec_cipher;

/* Loads this thread's half of an AES block. After the last block, it loads the first block again,
 * because a branch would split the warp. */
GW_LANE void gw_ipsec_fetch(gw_ipsec_cipher *lane, gw_ipsec_raw *raw, gw_u32 block)
{
    const GW_GLOBAL gw_u32 *words =
        lane->words + GW_IPSEC_BLOCK_WORDS * (block < lane->blocks ? block : 0);
    raw->word[0] = words[0];
    raw->word[1] = words[1];
    /* The word after the last block may be outside the buffer. */
    raw->word[2] = words[lane->shift != 0 ? 2 : 1];
}

GW_LANE gw_aes_half gw_ipsec_fetched(const gw_ipsec_cipher *lane, gw_ipsec_raw raw)
{
    gw_aes_half half;
    half.word[0] = gw_funnel_right32(raw.word[0], raw.word[1], lane->shift);
    half.word[1] = gw_funnel_right32(raw.word[1], raw.word[2], lane->shift);
    return half;
}

/* Writes this thread's half of a block to the packet. Both threads of the team call this function
 * together. In an unaligned packet, an aligned word can contain bytes of two blocks. Such a word is
 * written together with the second block. `third` contains the bytes after the last block. */
GW_LANE void gw_ipsec_write(gw_ipsec_cipher *lane, gw_u32 block, gw_aes_half half, gw_u32 third)
{
    const gw_u32 before = gw_pair_word(lane->half == 0 ? half.word[1] : lane->written);
    lane->written = half.word[1];
    GW_GLOBAL gw_u32 *words =
        lane->words + GW_IPSEC_BLOCK_WORDS * (block + 1) - GW_IPSEC_BLOCK_WORDS;
    const gw_u32 last = lane->half != 0 && lane->shift != 0 && block + 1 == lane->blocks;
    /* The IV is block -1. Empty packets have no IV. */
    const gw_u32 has_block = block + 1 <= lane->blocks && lane->blocks != 0;
    /* Shifts before conditions avoid branches. */
    const gw_u32 first = gw_funnel_left32(before, half.word[0], lane->shift);
    const gw_u32 second = gw_funnel_left32(half.word[0], half.word[1], lane->shift);
    const gw_u32 tail = gw_funnel_left32(half.word[1], third >> lane->shift, lane->shift);
    if (has_block) {
        words[0] = first;
        words[1] = second;
    }
    if (has_block & last) {
        words[2] = tail;
    }
}

/* Writes this thread's half of a block to the ring buffer, where another thread hashes it. */
GW_LANE void gw_ipsec_write_ring(gw_ipsec_cipher *lane, GW_LOCAL gw_ipsec_scratch *scratch,
                                 gw_aes_half half)
{
    GW_LOCAL gw_u32 *slot = scratch->ring + lane->ring;
    slot[0] = gw_swap32(half.word[0]);
    slot[GW_IPSEC_STRIDE] = gw_swap32(half.word[1]);
    lane->ring += GW_IPSEC_BLOCK_WORDS * GW_IPSEC_STRIDE;
    if (lane->ring >= GW_IPSEC_RING_WORDS * GW_IPSEC_STRIDE) {
        lane->ring -= GW_IPSEC_RING_WORDS * GW_IPSEC_STRIDE;
    }
}

/* Computes an outbound packet's CBC IV while another thread checks the packet. The IV depends only
 * on the SA and the sequence number. */
GW_LANE void gw_ipsec_team_iv(gw_ipsec_cipher *lane, const GW_GLOBAL gw_ipsec_sa *sa,
                              gw_u64 parameter)
{
    const gw_u64 sequence = gw_ipsec_sequence(parameter);
    const gw_u32 lower = gw_swap32((gw_u32)sequence);
    const gw_u32 upper = gw_swap32((gw_u32)(sequence >> 32));
    gw_aes_half nonce;
    nonce.word[0] = lane->half == 0 ? gw_swap32(sa->spi) : lower;
    nonce.word[1] = lane->half == 0 ? upper : gw_swap32(sa->destination[0]);
    nonce = gw_aes_team_rounds(&lane->aes, 0, gw_aes_team_start(&lane->aes, nonce), 1,
                               GW_AES_TEAM_SPLIT);
    lane->previous = gw_aes_team_encrypt_end(&lane->aes, nonce);
    lane->written = lower;
}

/* Starts the encryption or decryption of a packet whose headers are already checked. */
GW_LANE void gw_ipsec_team_begin(gw_ipsec_cipher *lane, const gw_work *work,
                                 const GW_LOCAL gw_ipsec_scratch *scratch)
{
    const gw_u32 words = scratch->words[lane->packet];
    lane->blocks = gw_ipsec_blocks(words);
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_STEP_BLOCKS; i++) {
        lane->raw[i].word[0] = 0;
        lane->raw[i].word[1] = 0;
        lane->raw[i].word[2] = 0;
    }
    /* Threads without a packet read the start of the tables instead, and write nothing. */
    const gw_u64 data = words == 0 ? 0 : scratch->data[lane->packet];
    const GW_GLOBAL gw_u8 *from = words == 0 ? work->image : work->arena + (data & ~(gw_u64)3);
    lane->words = (GW_GLOBAL gw_u32 *)from + GW_AES_TEAM_WORDS * lane->half;
    lane->shift = 8 * ((gw_u32)data & 3u);
    lane->ring = GW_AES_TEAM_WORDS * lane->half * GW_IPSEC_STRIDE + lane->packet;
}

/* Encrypts all packets of a warp with CBC, in step with the threads that hash them. The longest
 * packet has blocks_max blocks, and lane->previous holds the IV. While a block waits for table
 * lookups, the thread writes the previous block to the packet and to the ring buffer. */
GW_GROUP void gw_ipsec_encrypt_round(gw_ipsec_cipher *lane, GW_LOCAL gw_ipsec_scratch *scratch,
                                     gw_u32 blocks_max, gw_u32 steps)
{
    lane->ring += (GW_IPSEC_RING_WORDS - GW_IPSEC_BLOCK_WORDS) * GW_IPSEC_STRIDE;
    gw_ipsec_fetch(lane, &lane->raw[0], 0);
    gw_u32 third = 0;
    GW_NO_COPY
    for (gw_u32 block = 0; block < blocks_max; block++) {
        gw_aes_half state = gw_ipsec_fetched(lane, lane->raw[0]);
        const gw_aes_half before = lane->previous;
        state.word[0] ^= before.word[0];
        state.word[1] ^= before.word[1];
        state = gw_aes_team_start(&lane->aes, state);
        state = gw_aes_team_rounds(&lane->aes, 0, state, 1, 2);
        gw_ipsec_write(lane, block - 1, before, third);
        state = gw_aes_team_rounds(&lane->aes, 0, state, 2, 3);
        third = lane->raw[0].word[2];
        gw_ipsec_fetch(lane, &lane->raw[0], block + 1);
        state = gw_aes_team_rounds(&lane->aes, 0, state, 3, 5);
        gw_ipsec_write_ring(lane, scratch, before);
        state = gw_aes_team_rounds(&lane->aes, 0, state, 5, GW_AES_TEAM_SPLIT);
        lane->previous = gw_aes_team_encrypt_end(&lane->aes, state);
        if (block != 0 && block % GW_IPSEC_STEP_BLOCKS == 0) {
            gw_barrier();
            steps--;
        }
    }
    if (blocks_max != 0) {
        gw_ipsec_write_ring(lane, scratch, lane->previous);
        gw_ipsec_write(lane, blocks_max - 1, lane->previous, third);
    }
    gw_ipsec_wait(steps);
}

/* Copies the work-group's current packets to the ring buffer, where other threads hash them. */
GW_GROUP void gw_ipsec_stage_round(gw_ipsec_cipher *lane, GW_LOCAL gw_ipsec_scratch *scratch,
                                   gw_u32 steps)
{
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_STEP_BLOCKS; i++) {
        gw_ipsec_fetch(lane, &lane->raw[i], i);
    }
    for (gw_u32 step = 0; step < steps; step++) {
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_IPSEC_STEP_BLOCKS; i++) {
            gw_ipsec_write_ring(lane, scratch, gw_ipsec_fetched(lane, lane->raw[i]));
            gw_ipsec_fetch(lane, &lane->raw[i], (step + 1) * GW_IPSEC_STEP_BLOCKS + i);
        }
        gw_barrier();
    }
}

/* Loads this thread's half of the four words before the packet data: the IV of CBC, or the sequence
 * number and the IV of CTR. */
GW_LANE void gw_ipsec_parallel_begin(gw_ipsec_cipher *lane)
{
    lane->previous.word[0] = 0;
    lane->previous.word[1] = 0;
    if (lane->blocks != 0) {
        const GW_GLOBAL gw_u32 *words = lane->words - GW_IPSEC_BLOCK_WORDS;
        lane->raw[0].word[0] = words[0];
        lane->raw[0].word[1] = words[1];
        lane->raw[0].word[2] = words[2];
        lane->previous = gw_ipsec_fetched(lane, lane->raw[0]);
        lane->written = lane->previous.word[1];
    }
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_PARALLEL_BLOCKS; i++) {
        gw_ipsec_fetch(lane, &lane->raw[i], i);
    }
}

/* Decrypts all packets of a warp with AES in CBC mode. */
GW_LANE void gw_ipsec_decrypt_round(gw_ipsec_cipher *lane, gw_u32 blocks_max)
{
    gw_ipsec_parallel_begin(lane);
    GW_NO_COPY
    for (gw_u32 first = 0; first < blocks_max; first += GW_IPSEC_PARALLEL_BLOCKS) {
        gw_aes_half plain[GW_IPSEC_PARALLEL_BLOCKS];
        gw_aes_half cipher[GW_IPSEC_PARALLEL_BLOCKS];
        gw_u32 third[GW_IPSEC_PARALLEL_BLOCKS];
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_IPSEC_PARALLEL_BLOCKS; i++) {
            cipher[i] = gw_ipsec_fetched(lane, lane->raw[i]);
            third[i] = lane->raw[i].word[2];
            gw_ipsec_fetch(lane, &lane->raw[i], first + GW_IPSEC_PARALLEL_BLOCKS + i);
        }
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_IPSEC_PARALLEL_BLOCKS; i++) {
            plain[i] = gw_aes_team_start(&lane->aes, cipher[i]);
            plain[i] = gw_aes_team_rounds(&lane->aes, 1, plain[i], 1, GW_AES_TEAM_SPLIT);
            plain[i] = gw_aes_team_decrypt_end(&lane->aes, plain[i]);
        }
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_IPSEC_PARALLEL_BLOCKS; i++) {
            plain[i].word[0] ^= lane->previous.word[0];
            plain[i].word[1] ^= lane->previous.word[1];
            gw_ipsec_write(lane, first + i, plain[i], third[i]);
            lane->previous = cipher[i];
        }
    }
}

/*
 * Encrypts or decrypts all packets of a warp with CTR (RFC 3686, section 2.1). The longest packet
 * has blocks_max blocks. If `steps` is not 0, the function also copies the result to the ring
 * buffer, in step with the threads that hash it.
 *
 * The last block of a packet may extend into the ICV, whose bytes stay unchanged.
 */
GW_GROUP void gw_ipsec_counter_round(gw_ipsec_cipher *lane, GW_LOCAL gw_ipsec_scratch *scratch,
                                     const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 blocks_max,
                                     gw_u32 steps)
{
    const gw_u32 writes_ring = steps != 0;
    gw_ipsec_parallel_begin(lane);
    /* A CTR counter block consists of the salt, the IV, and the counter (RFC 3686, section 4). */
    gw_aes_half counter;
    counter.word[0] = lane->half == 0 ? sa->salt : lane->previous.word[1];
    counter.word[1] = gw_pair_word(lane->previous.word[0]);
    const gw_u32 words = scratch->words[lane->packet];
    GW_NO_COPY
    for (gw_u32 first = 0; first < blocks_max; first += GW_IPSEC_PARALLEL_BLOCKS) {
        gw_aes_half stream[GW_IPSEC_PARALLEL_BLOCKS];
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_IPSEC_PARALLEL_BLOCKS; i++) {
            counter.word[1] = lane->half == 0 ? counter.word[1] : gw_swap32(first + i + 1);
            stream[i] = gw_aes_team_start(&lane->aes, counter);
            stream[i] = gw_aes_team_rounds(&lane->aes, 0, stream[i], 1, GW_AES_TEAM_SPLIT);
            stream[i] = gw_aes_team_encrypt_end(&lane->aes, stream[i]);
        }
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_IPSEC_PARALLEL_BLOCKS; i++) {
            const gw_u32 third = lane->raw[i].word[2];
            gw_aes_half half = gw_ipsec_fetched(lane, lane->raw[i]);
            gw_ipsec_fetch(lane, &lane->raw[i], first + GW_IPSEC_PARALLEL_BLOCKS + i);
            GW_UNROLL
            for (gw_u32 j = 0; j < GW_AES_TEAM_WORDS; j++) {
                const gw_u32 word =
                    GW_IPSEC_BLOCK_WORDS * (first + i) + GW_AES_TEAM_WORDS * lane->half + j;
                half.word[j] ^= word < words ? stream[i].word[j] : 0;
            }
            if (writes_ring) {
                gw_ipsec_write_ring(lane, scratch, half);
            }
            gw_ipsec_write(lane, first + i, half, third);
        }
        if (writes_ring && (first + GW_IPSEC_PARALLEL_BLOCKS) % GW_IPSEC_STEP_BLOCKS == 0) {
            gw_barrier();
            steps--;
        }
    }
    gw_ipsec_wait(steps);
}

/* Assigns half of each AES block of a packet to this thread. Returns the packet's index in the
 * batch. */
GW_LANE gw_u32 gw_ipsec_team_index(gw_ipsec_cipher *lane, gw_u32 first)
{
    lane->packet = gw_lane_id() / GW_AES_TEAM_LANES;
    lane->half = gw_lane_id() % GW_AES_TEAM_LANES;
    return first + lane->packet;
}

/* Encrypts or decrypts the work-group's current packets. `rounds` is the number of AES rounds.
 * `encrypts` is 1 for outbound packets with CBC. The function has the same number of barriers as
 * gw_ipsec_hash_round. */
GW_LANE void gw_ipsec_team_work(const gw_work *work, gw_ipsec_suite suite,
                                GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 first, gw_u32 rounds,
                                gw_u32 encrypts)
{
    gw_ipsec_cipher lane;
    const gw_u32 index = gw_ipsec_team_index(&lane, first);
    const gw_u64 parameter = index < work->count ? work->parameters[index] : 0;
    const GW_GLOBAL gw_ipsec_sa *sa = gw_ipsec_named_sa(scratch->sas, parameter);
    if (encrypts) {
        gw_aes_team_begin(&lane.aes, &scratch->table, sa->keys, rounds, lane.half);
        /* A warp without packets skips the table lookups, which would slow down other warps. */
        if (gw_uniform(index) < work->count) {
            gw_ipsec_team_iv(&lane, sa, parameter);
        }
    }
    gw_barrier();
    const gw_u32 words_max = gw_ipsec_words_max(scratch);
    const gw_u32 steps = gw_ipsec_steps(suite, words_max);
    gw_ipsec_team_begin(&lane, work, scratch);
    const gw_u32 blocks_max = gw_uniform(gw_warp_max(lane.blocks));
    if (encrypts) {
        gw_ipsec_encrypt_round(&lane, scratch, blocks_max, steps);
    } else if (suite.auth != GW_IPSEC_AUTH_NONE) {
        gw_ipsec_stage_round(&lane, scratch, steps);
    } else {
        gw_ipsec_wait(steps);
    }
    if (!encrypts && gw_ipsec_direction(work->variant) == GW_IPSEC_INBOUND) {
        gw_barrier();
        if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
            gw_aes_team_begin(&lane.aes, &scratch->table, sa->keys, rounds, lane.half);
            lane.blocks = gw_ipsec_blocks(scratch->words[lane.packet]);
            gw_ipsec_decrypt_round(&lane, blocks_max);
        }
    }
    gw_barrier();
}

/* Returns whether each cipher block depends on the previous one, as with outbound CBC. */
GW_LANE gw_u32 gw_ipsec_is_chained(const gw_work *work, gw_ipsec_suite suite)
{
    return suite.cipher == GW_IPSEC_CIPHER_CBC &&
           gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND;
}

/* Encrypts or decrypts the work-group's current packets, for all suites except those with CTR. The
 * function is not inlined, so that the AES round keys stay in registers. */
GW_APART void gw_ipsec_team_round(const gw_work *work, gw_ipsec_suite suite,
                                  GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 first)
{
    gw_ipsec_team_work(work, suite, scratch, first, gw_ipsec_aes_rounds(suite),
                       gw_ipsec_is_chained(work, suite));
}

/* Encrypts the work-group's current packets with AES-128 in CBC mode. The number of AES rounds is a
 * constant, so the code has no branches and keeps all round keys in registers. */
GW_APART void gw_ipsec_team_chain_128(const gw_work *work, gw_ipsec_suite suite,
                                      GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 first)
{
    gw_ipsec_team_work(work, suite, scratch, first, GW_AES_TEAM_SPLIT, 1);
}

/* Encrypts or decrypts the work-group's current packets with CTR, whose key stream is the same for
 * both directions. */
GW_APART void gw_ipsec_team_counter(const gw_work *work, gw_ipsec_suite suite,
                                    GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 first)
{
    gw_ipsec_cipher lane;
    const gw_u32 index = gw_ipsec_team_index(&lane, first);
    const GW_GLOBAL gw_ipsec_sa *sa =
        gw_ipsec_named_sa(scratch->sas, index < work->count ? work->parameters[index] : 0);
    gw_aes_team_begin(&lane.aes, &scratch->table, sa->keys, gw_ipsec_aes_rounds(suite), lane.half);
    gw_barrier();
    gw_u32 steps = gw_ipsec_steps(suite, gw_ipsec_words_max(scratch));
    gw_ipsec_team_begin(&lane, work, scratch);
    const gw_u32 blocks_max = gw_uniform(gw_warp_max(lane.blocks));
    if (gw_ipsec_direction(work->variant) == GW_IPSEC_INBOUND) {
        gw_ipsec_stage_round(&lane, scratch, steps);
        gw_barrier();
        steps = 0;
        lane.blocks = gw_ipsec_blocks(scratch->words[lane.packet]);
    }
    gw_ipsec_counter_round(&lane, scratch, sa, blocks_max, steps);
    gw_barrier();
}

/* Waits at the same barriers as the threads that encrypt and hash packets. Threads without work
 * call this function. */
GW_GROUP void gw_ipsec_idle_round(const gw_work *work, gw_ipsec_suite suite,
                                  const GW_LOCAL gw_ipsec_scratch *scratch)
{
    gw_barrier();
    const gw_u32 steps = gw_ipsec_steps(suite, gw_ipsec_words_max(scratch));
    gw_ipsec_wait(steps + gw_ipsec_direction(work->variant) + 1);
}

#endif
