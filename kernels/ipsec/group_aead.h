/*
 * AES-GCM, AES-GMAC and ChaCha20-Poly1305 of ESP by a group: all lanes of a team share a packet,
 * and a head lane for each packet does what comes once.
 *
 *   lanes 0..255     team of packet 0 | team of packet 1 | ...     8, 16 or 32 lanes each: the
 *   lanes 256..287   head of packet 0, of packet 1, ...            fewer packets, the more
 *
 *              teams                    heads                       barrier behind it
 *   outbound   first part of the stream headers, IV                 1
 *              encrypt                  once-only block (GCM)       2
 *              partial sums                                         3
 *                                       the tag                     4
 *   inbound                             headers                     1
 *                                       once-only block (ChaCha20)  2
 *              partial sums             once-only block (GCM)       3
 *                                       compare the tag             4
 *              decrypt                                              5
 *                                       take the packet out         6
 *
 * Outbound, SA and sequence number make the stream, so it does not wait for the headers.
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
    gw_u32 once[8][GW_AEAD_PACKETS_MAX];  /* Poly1305's key: r, and what is added at last */
    union {
        gw_u32 stream[GW_AEAD_TEAM_LANES * 17 + GW_AEAD_PACKETS_MAX * 8];
        gw_u32 sums[5][GW_AEAD_TEAM_LANES];
    } of;
} gw_aead_scratch;

/* What all lanes of the group know of a round of a bin. */
typedef struct gw_aead_round {
    const gw_work *work;
    gw_ipsec_suite suite;
    gw_ipsec_sas sas;
    gw_u32 first; /* index of its first packet */
    gw_u32 lanes; /* of a team */
} gw_aead_round;

/* One lane of a team. */
typedef struct gw_aead_lane {
    const GW_GLOBAL gw_ipsec_sa *sa;
    GW_GLOBAL gw_u8 *data;
    gw_u32 iv[2];  /* words, as they lie in memory */
    gw_u32 bytes;  /* of data; a multiple of 4 */
    gw_u32 packet; /* place in the round */
    gw_u32 place;  /* in the team */
} gw_aead_lane;

/* A lane whose packet's headers nobody has looked at yet: outbound, its IV is known. */
GW_LANE gw_aead_lane gw_aead_lane_of(const gw_aead_round *round)
{
    const gw_work *work = round->work;
    gw_aead_lane lane;
    lane.packet = gw_lane_id() / round->lanes;
    lane.place = gw_lane_id() & (round->lanes - 1);
    const gw_u32 index = round->first + lane.packet;
    const gw_u64 parameter = index < work->count ? work->parameters[index] : 0;
    lane.sa = gw_ipsec_named_sa(round->sas, parameter);
    const gw_u64 sequence = gw_ipsec_sequence(parameter);
    lane.iv[0] = gw_swap32((gw_u32)(sequence >> 32));
    lane.iv[1] = gw_swap32((gw_u32)sequence);
    return lane;
}

/* What its head has found out. Without anything to do, a lane neither reads nor writes a packet. */
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

#include "group_aead_team.h"
#include "group_aead_head.h"

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
