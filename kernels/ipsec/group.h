/*
 * ipsec by a group: 64 packets at a time, a team of two lanes to encrypt or decrypt
 * each, and one lane more to hash it, which follows a step behind.
 *
 *   lanes 0..127     team of packet 0 | team of packet 1 | ... | team of packet 63
 *   lanes 192..255   hash of packet 0, of packet 1, ...
 *   the others       wait at the barriers; AEADs have use for them (group_aead.h)
 *
 * A step is 64 bytes of each packet. In step k the teams leave its words in a ring in
 * the group's memory, while the hash lanes take those of step k - 1; a barrier ends the step.
 * What is authenticated begins `ahead` words in front of what is encrypted, the SPI, the
 * sequence number and the IV, so a block of the hash reaches into two steps:
 *
 *   hash     | block 0: ahead, 16 - ahead words | block 1: ahead, 16 - ahead words | ...
 *   cipher             | step 0: 16 words                 | step 1: 16 words       | ...
 *
 * The ring holds what the hash may still ask for and what the teams write: 16 + 6 + 16
 * words at most.
 *
 * Encrypting, a step is encrypted, one block behind the other or, by CTR, two at once; decrypting,
 * the steps bring the packet to the hash first, and what is authentic is decrypted afterwards.
 * Packets that have ended or are dropped go on as idle lanes until the round's longest ends (dummy
 * packets, Hummingbird, section 4): all lanes meet at the same barriers.
 *
 * Headers, checks and verdicts are those of the lane form, by the hash lanes.
 */
#ifndef GODWIT_IPSEC_GROUP_H
#define GODWIT_IPSEC_GROUP_H

#include "../dialect/aes_team.h"
#include "ipsec.h"

GW_LANE gw_lane gw_ipsec_lane(const gw_work *work, const gw_descriptor *descriptor, gw_u32 index)
{
    gw_lane lane;
    lane.buffer = work->arena + (gw_u64)descriptor->buffer * GW_BUFFER_UNIT;
    lane.image = work->image;
    lane.parameter = work->parameters[index];
    lane.variant = work->variant;
    return lane;
}

/* The places for SAs of an image. */
typedef struct gw_ipsec_sas {
    const GW_GLOBAL gw_ipsec_sa *first;
    gw_u32 count;
} gw_ipsec_sas;

/* The SA that a packet's parameter names, before anything is known of the packet. One that is not
 * there gets the packet dropped; until then the first does for it. */
GW_LANE const GW_GLOBAL gw_ipsec_sa *gw_ipsec_named_sa(gw_ipsec_sas sas, gw_u64 parameter)
{
    const gw_u32 number = gw_ipsec_sa_index(parameter);
    return sas.first + (number < sas.count ? number : 0);
}

/* Whether gw_ipsec_seal_end has something to do for an SA with these flags. */
GW_LANE gw_u32 gw_ipsec_has_udp_checksum(gw_u32 flags)
{
    const gw_u32 udp_in_ipv6 = GW_IPSEC_SA_UDP | GW_IPSEC_SA_OUTER_IPV6;
    return (flags & udp_in_ipv6) == udp_in_ipv6;
}

#include "group_plain.h"
#include "group_aead.h"

/* Packets of one round. */
#define GW_IPSEC_ROUND 64u
/* Lanes of all teams. */
#define GW_IPSEC_TEAMS (GW_IPSEC_ROUND * GW_AES_TEAM_LANES)

/*
 * The first that hashes. Of a bin of up to 32 packets two warps are teams and one hashes, and it is
 * to have a scheduler and its instruction cache, of which a multiprocessor has four, for itself.
 */
#define GW_IPSEC_HASHES (GW_IPSEC_TEAMS + 64u)
GW_STATIC_ASSERT(GW_GROUP_LANES >= GW_IPSEC_HASHES + GW_IPSEC_ROUND, ipsec_group_lanes);

#define GW_IPSEC_BLOCK_WORDS 4u
#define GW_IPSEC_STEP_BLOCKS 4u
#define GW_IPSEC_STEP_WORDS  16u
#define GW_IPSEC_RING_WORDS  40u
/* Words from one word of a packet to its next: teams write and hash lanes read without conflict. */
#define GW_IPSEC_STRIDE (GW_IPSEC_ROUND + 8u)

/* What the lanes of a packet tell each other. */
typedef struct gw_ipsec_scratch {
    gw_aes_team_table table;
    gw_u32 table_direction; /* what the table is for */
    gw_ipsec_sas sas;       /* of the image: no bin waits for them */
    union {
        struct {
            gw_u64 data[GW_IPSEC_ROUND];   /* bytes from the arena's start to the first block */
            gw_u32 words[GW_IPSEC_ROUND];  /* to encrypt, decrypt, or only to hash; 0: none */
            gw_u32 places[GW_IPSEC_ROUND]; /* gw_ipsec_places */
            gw_u32 ring[GW_IPSEC_RING_WORDS * GW_IPSEC_STRIDE];
        };
        gw_aead_scratch aead;
    };
} gw_ipsec_scratch;

#define GW_IPSEC_TABLE_NONE 0xffffffffu

/* Words in front of what is encrypted that are authenticated too: SPI, sequence number, IV. */
GW_LANE gw_u32 gw_ipsec_ahead(gw_ipsec_suite suite)
{
    return 2 + gw_ipsec_iv_bytes(suite) / 4;
}

/* Blocks of the hash over so many words in front of the padding: 0x80 and two of length. */
GW_LANE gw_u32 gw_ipsec_hash_blocks(gw_u32 words)
{
    return (words + 3 + GW_IPSEC_STEP_WORDS - 1) / GW_IPSEC_STEP_WORDS;
}

/* The words of the round's longest packet, by all lanes of a warp. */
GW_LANE gw_u32 gw_ipsec_words_max(const GW_LOCAL gw_ipsec_scratch *scratch)
{
    gw_u32 words_max = 0;
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_IPSEC_ROUND; i += GW_AES_TABLE_LANES) {
        const gw_u32 words = scratch->words[i + gw_lane_id() % GW_AES_TABLE_LANES];
        words_max = words > words_max ? words : words_max;
    }
    return gw_uniform(gw_warp_max(words_max));
}

/* Steps of a round whose longest packet has so many words, each with a barrier at its end. */
GW_LANE gw_u32 gw_ipsec_steps(gw_ipsec_suite suite, gw_u32 words_max)
{
    if (words_max == 0) {
        return 0;
    }
    if (suite.auth == GW_IPSEC_AUTH_NONE) {
        return (words_max + GW_IPSEC_STEP_WORDS - 1) / GW_IPSEC_STEP_WORDS;
    }
    /* With the word of an extended sequence number; the teams are a step ahead; the outer hash. */
    return gw_ipsec_hash_blocks(gw_ipsec_ahead(suite) + words_max + 1) + 2;
}

#include "group_cipher.h"
#include "group_hash.h"

/* The table depends on the direction, so the first bin fills it. */
GW_GROUP void gw_ipsec_prepare(const GW_GLOBAL gw_u8 *image, GW_LOCAL gw_ipsec_scratch *scratch)
{
    if (gw_lane_id() == 0) {
        const GW_GLOBAL gw_ipsec_image *header = (const GW_GLOBAL gw_ipsec_image *)image;
        scratch->table_direction = GW_IPSEC_TABLE_NONE;
        scratch->sas.first = (const GW_GLOBAL gw_ipsec_sa *)(image + header->sa_offset);
        scratch->sas.count = header->sa_count;
    }
    gw_barrier();
}

/* Whether teams work on the suite; otherwise each lane takes packets of its own. */
GW_LANE gw_u32 gw_ipsec_has_teams(gw_ipsec_suite suite)
{
    return suite.protocol == GW_IPSEC_ESP &&
           (suite.cipher == GW_IPSEC_CIPHER_CBC || suite.cipher == GW_IPSEC_CIPHER_CTR ||
            suite.cipher == GW_IPSEC_CIPHER_NULL) &&
           (suite.auth == GW_IPSEC_AUTH_NONE || suite.auth == GW_IPSEC_AUTH_SHA1 ||
            suite.auth == GW_IPSEC_AUTH_SHA256);
}

GW_APART void gw_ipsec_by_lane(const gw_work *work)
{
    GW_NO_COPY
    for (gw_u32 i = gw_lane_id(); i < work->count; i += gw_lane_count()) {
        gw_descriptor descriptor = work->descriptors[i];
        const gw_lane lane = gw_ipsec_lane(work, &descriptor, i);
        gw_outcome outcome = {0, 0, 0, 0};
        gw_ipsec_packet(&lane, &descriptor, &outcome);
        work->descriptors[i] = descriptor;
        work->outcomes[i] = outcome;
    }
}

/* Fills the table for a direction of AES, by all lanes, unless it is there; all come from a
 * barrier. */
GW_GROUP void gw_ipsec_fill_table(GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 direction)
{
    if (gw_uniform(scratch->table_direction) == direction) {
        return;
    }
    gw_aes_team_fill(&scratch->table, direction == GW_IPSEC_INBOUND);
    gw_barrier();
    if (gw_lane_id() == 0) {
        scratch->table_direction = direction;
    }
}

/*
 * Teams and hash lanes go their own ways, so that neither needs the registers of the
 * other; all come to the same number of barriers. No warp has lanes of two kinds.
 */
GW_GROUP void gw_ipsec_by_team(const gw_work *work, gw_ipsec_suite suite,
                               GW_LOCAL gw_ipsec_scratch *scratch)
{
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        gw_ipsec_fill_table(scratch, gw_ipsec_direction(work->variant));
    } else if (suite.cipher == GW_IPSEC_CIPHER_CTR) {
        gw_ipsec_fill_table(scratch, GW_IPSEC_OUTBOUND);
    }
    /* Whole warps of each kind. */
    const gw_u32 place = gw_uniform(gw_lane_id());
    const gw_u32 chains_128 =
        gw_uniform(gw_ipsec_chains(work, suite) && gw_ipsec_aes_rounds(suite) == GW_AES_TEAM_SPLIT);
    for (gw_u32 first = 0; first < work->count; first += GW_IPSEC_ROUND) {
        if (place < GW_IPSEC_TEAMS && chains_128) {
            gw_ipsec_team_chain_128(work, suite, scratch, first);
        } else if (place < GW_IPSEC_TEAMS && suite.cipher == GW_IPSEC_CIPHER_CTR) {
            gw_ipsec_team_counter(work, suite, scratch, first);
        } else if (place < GW_IPSEC_TEAMS) {
            gw_ipsec_team_round(work, suite, scratch, first);
        } else if (place >= GW_IPSEC_HASHES && place < GW_IPSEC_HASHES + GW_IPSEC_ROUND) {
            gw_ipsec_hash_round(work, suite, scratch, first);
        } else {
            gw_ipsec_idle_round(work, suite, scratch);
        }
    }
}

/* All lanes come from a barrier: the last bin is done with, and the scratch memory prepared. */
GW_GROUP void gw_ipsec_bin(const gw_work *work, GW_LOCAL gw_ipsec_scratch *scratch)
{
    const gw_ipsec_suite suite = gw_ipsec_suite_of(work->variant);
    if (work->count == 0) {
        return;
    }
    const gw_u32 sas = gw_uniform(scratch->sas.count);
    if (sas != 0 && gw_ipsec_has_teams(suite)) {
        gw_ipsec_by_team(work, suite, scratch);
    } else if (sas != 0 && gw_aead_takes(suite)) {
        gw_ipsec_fill_table(scratch, GW_IPSEC_OUTBOUND);
        gw_aead_bin(work, suite, scratch->sas, &scratch->table, &scratch->aead);
    } else {
        gw_ipsec_by_lane(work);
        gw_warp_barrier();
    }
}

#endif
