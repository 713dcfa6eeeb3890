/*
 * ESP with AES-GCM, AES-GMAC and ChaCha20-Poly1305 for GPUs. A work-group processes a batch of
 * packets. A team of 8, 16 or 32 threads shares a packet. One more thread per packet, the head,
 * does the work that occurs once per packet.
 *
 *   threads 0..255     team of packet 0 | team of packet 1 | ...
 *   threads 256..287   head of packet 0, of packet 1, ...
 *
 * The fewer packets a batch has, the larger the teams are.
 *
 *              teams                     heads                          barrier that follows
 *   outbound   first part of key stream  headers, IV                    1
 *              encrypt                   mask of the tag (GCM)          2
 *              partial sums                                             3
 *                                        tag                            4
 *   inbound                              headers                        1
 *                                        one-time key (ChaCha20)        2
 *              partial sums              mask of the tag (GCM)          3
 *                                        compare the tag                4
 *              decrypt                                                  5
 *                                        remove headers, set outcome    6
 *
 * For outbound packets, the key stream depends only on the SA and the sequence number, so its
 * computation does not wait for the headers.
 *
 * GHASH and Poly1305 sums are polynomials in the key. In a team of n threads, each thread adds
 * every n-th block and multiplies by the n-th power of the key. Finally, it multiplies its sum by
 * the power for its position in the team. If the last row of n blocks is not full, zero blocks
 * before the first block fill it.
 *
 * Encryption proceeds in steps of 64 bytes per thread. The threads write the key stream to local
 * memory. The team then applies it to the packet in aligned, consecutive words of 16 bytes.
 */
#ifndef GODWIT_IPSEC_GROUP_AEAD_H
#define GODWIT_IPSEC_GROUP_AEAD_H

#include "../dialect/aes_lane.h"

#define GW_AEAD_TEAM_LANES  256u
#define GW_AEAD_PACKETS_MAX 32u
GW_STATIC_ASSERT(GW_GROUP_LANES == GW_AEAD_TEAM_LANES + GW_AEAD_PACKETS_MAX, aead_lanes);
#define GW_AEAD_UNIT_BYTES 64u
#define GW_AEAD_UNIT_WORDS 16u
/* Size in words of the key stream buffer of a packet that `lanes` threads share: 64 bytes per
 * thread, the last 16 bytes of the previous step, and padding against bank conflicts. */
#define GW_AEAD_STREAM_WORDS(lanes) (17u * (lanes) + 8u)

typedef struct gw_aead_scratch {
    gw_u64 data[GW_AEAD_PACKETS_MAX]; /* offset of the encrypted data from the arena, in bytes */
    gw_u64 sequence[GW_AEAD_PACKETS_MAX]; /* full 64-bit sequence number */
    gw_u32 bytes[GW_AEAD_PACKETS_MAX];    /* length of the encrypted data; 0: nothing to do */
    gw_u32 one_time_key[8][GW_AEAD_PACKETS_MAX]; /* Poly1305: r, then s */
    union {
        gw_u32 stream[GW_AEAD_TEAM_LANES * 17 + GW_AEAD_PACKETS_MAX * 8];
        gw_u32 sums[5][GW_AEAD_TEAM_LANES];
    } shared;
} gw_aead_scratch;

/* Packets that a work-group currently processes. All threads have the same values. */
typedef struct gw_aead_round {
    const gw_work *work;
    gw_ipsec_suite suite;
    gw_ipsec_sas sas;
    gw_u32 first; /* index of the round's first packet */
    gw_u32 lanes; /* threads per team */
} gw_aead_round;

/* State of a thread in a team, which encrypts or decrypts one packet. */
typedef struct gw_aead_lane {
    const GW_GLOBAL gw_ipsec_sa *sa;
    GW_GLOBAL gw_u8 *data;
    gw_u32 iv[2];  /* words in memory byte order */
    gw_u32 bytes;  /* length of the data, a multiple of 4 */
    gw_u32 packet; /* index of the packet in the round */
    gw_u32 rank;   /* index of the thread in its team */
} gw_aead_lane;

/* Assigns a packet to a thread before another thread checks the packet's headers. An outbound
 * packet's IV is its sequence number, so it is already known. */
GW_LANE gw_aead_lane gw_aead_lane_of(const gw_aead_round *round)
{
    const gw_work *work = round->work;
    gw_aead_lane lane;
    lane.packet = gw_lane_id() / round->lanes;
    lane.rank = gw_lane_id() & (round->lanes - 1);
    const gw_u32 index = round->first + lane.packet;
    const gw_u64 parameter = index < work->count ? work->parameters[index] : 0;
    lane.sa = gw_ipsec_named_sa(round->sas, parameter);
    const gw_u64 sequence = gw_ipsec_sequence(parameter);
    lane.iv[0] = gw_swap32((gw_u32)(sequence >> 32));
    lane.iv[1] = gw_swap32((gw_u32)sequence);
    return lane;
}

/* Reads the location and length of the packet data, which another thread has stored. If the length
 * is 0, this thread has no work. */
GW_LANE void gw_aead_lane_begin(gw_aead_lane *lane, const gw_aead_round *round,
                                const GW_LOCAL gw_aead_scratch *scratch)
{
    lane->bytes = scratch->bytes[lane->packet];
    lane->data = round->work->arena + (lane->bytes == 0 ? 0 : scratch->data[lane->packet]);
    if (lane->bytes != 0 && gw_ipsec_direction(round->work->variant) == GW_IPSEC_INBOUND) {
        lane->iv[0] = gw_load_le32(lane->data - 8);
        lane->iv[1] = gw_load_le32(lane->data - 4);
    }
}

/* Returns the data length of the work-group's longest current packet. All threads of a warp take
 * the steps that this packet needs. */
GW_LANE gw_u32 gw_aead_bytes_max(const GW_LOCAL gw_aead_scratch *scratch)
{
    gw_u32 bytes_max = 0;
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AEAD_PACKETS_MAX; i++) {
        const gw_u32 bytes = scratch->bytes[i];
        bytes_max = bytes > bytes_max ? bytes : bytes_max;
    }
    return bytes_max;
}

#include "group_aead_team.h"
#include "group_aead_head.h"

/* Returns the number of threads per packet: the largest number that needs no additional pass over
 * the batch. */
GW_LANE gw_u32 gw_aead_lanes(gw_u32 packets)
{
    gw_u32 lanes = GW_AEAD_TEAM_LANES / GW_AEAD_PACKETS_MAX;
    while (lanes < 32 && packets * lanes * 2 <= GW_AEAD_TEAM_LANES) {
        lanes *= 2;
    }
    return lanes;
}

/* Returns whether threads can share packets of this suite. */
GW_LANE gw_u32 gw_aead_supports(gw_ipsec_suite suite)
{
    return suite.protocol == GW_IPSEC_ESP &&
           (suite.auth == GW_IPSEC_AUTH_GHASH || suite.auth == GW_IPSEC_AUTH_POLY1305);
}

/* Processes a packet batch with GCM, GMAC or ChaCha20-Poly1305. All threads of the work-group call
 * this function after a barrier. `table` is the AES lookup table for encryption, which ChaCha20
 * ignores. The function is not inlined, because other code would then lose registers. */
GW_APART void gw_aead_bin(const gw_work *work, gw_ipsec_suite suite, gw_ipsec_sas sas,
                          const GW_LOCAL gw_aes_team_table *table,
                          GW_LOCAL gw_aead_scratch *scratch)
{
    gw_aead_round round;
    round.work = work;
    round.suite = suite;
    round.sas = sas;
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
