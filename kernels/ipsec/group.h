/*
 * IPsec for GPUs. A work-group processes up to 64 packets of a batch at a time, with three threads
 * per packet. A team of two threads encrypts or decrypts the packet. One more thread, the hash
 * thread, hashes the packet one step later.
 *
 *   threads 0..127     team of packet 0 | team of packet 1 | ... | team of packet 63
 *   threads 192..255   hash thread of packet 0, of packet 1, ...
 *   other threads      wait at the barriers; AEADs use them (group_aead.h)
 *
 * A step processes 64 bytes of each packet and ends with a barrier. In step k, the teams write the
 * words of step k to a ring buffer in local memory. The hash threads read the words of step k - 1.
 * The authenticated text begins front_words words before the encrypted data, with SPI, sequence
 * number and IV. A hash block therefore covers parts of two steps:
 *
 *   hash     | block 0: front, 16 - front words | block 1: front, 16 - front words | ...
 *   cipher           | step 0: 16 words                 | step 1: 16 words         | ...
 *
 * The ring holds the words that the hash threads have not read and the words that the teams write.
 * These are at most 16 + 6 + 16 words.
 *
 * For outbound packets, each step encrypts: CBC one block after the other, CTR two blocks at once.
 * For inbound packets, the steps only copy the packet to the ring, and authentic packets are
 * decrypted afterwards. The threads of a finished or dropped packet idle until the longest of the
 * 64 packets ends. All threads must reach the same barriers (dummy packets, Hummingbird, section
 * 4).
 *
 * The hash threads process headers, checks and verdicts, with the same code that processes one
 * packet per thread.
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

/* The array of SAs (security associations) in a table image. */
typedef struct gw_ipsec_sas {
    const GW_GLOBAL gw_ipsec_sa *first;
    gw_u32 count;
} gw_ipsec_sas;

/* Returns the SA that the host has selected for a packet. For an invalid index, returns the first
 * SA, and a later check drops the packet. */
GW_LANE const GW_GLOBAL gw_ipsec_sa *gw_ipsec_named_sa(gw_ipsec_sas sas, gw_u64 parameter)
{
    const gw_u32 number = gw_ipsec_sa_index(parameter);
    return sas.first + (number < sas.count ? number : 0);
}

/* Returns whether ESP packets of an SA with these flags need a UDP checksum. */
GW_LANE gw_u32 gw_ipsec_has_udp_checksum(gw_u32 flags)
{
    const gw_u32 udp_in_ipv6 = GW_IPSEC_SA_UDP | GW_IPSEC_SA_OUTER_IPV6;
    return (flags & udp_in_ipv6) == udp_in_ipv6;
}

#include "group_simple.h"
#include "group_aead.h"

/* Number of packets that a work-group processes at the same time. */
#define GW_IPSEC_ROUND 64u
/* Number of threads that encrypt or decrypt packets: two threads per packet. */
#define GW_IPSEC_TEAM_LANES_ALL (GW_IPSEC_ROUND * GW_AES_TEAM_LANES)

/* Index of the first thread that hashes packets. For up to 32 packets, two warps encrypt and one
 * warp hashes. This index gives the hashing warp a scheduler of the multiprocessor for itself. */
#define GW_IPSEC_HASH_LANE_FIRST (GW_IPSEC_TEAM_LANES_ALL + 64u)
GW_STATIC_ASSERT(GW_GROUP_LANES >= GW_IPSEC_HASH_LANE_FIRST + GW_IPSEC_ROUND, ipsec_group_lanes);

#define GW_IPSEC_BLOCK_WORDS 4u
#define GW_IPSEC_STEP_BLOCKS 4u
#define GW_IPSEC_STEP_WORDS  16u
#define GW_IPSEC_RING_WORDS  40u
/* Distance between consecutive words of a packet in the ring buffer, in words, chosen to avoid bank
 * conflicts. */
#define GW_IPSEC_STRIDE (GW_IPSEC_ROUND + 8u)

typedef struct gw_ipsec_scratch {
    gw_aes_team_table table;
    gw_u32 table_direction; /* direction of the AES table */
    gw_ipsec_sas sas;       /* SAs of the image, loaded once */
    union {
        struct {
            gw_u64
                data[GW_IPSEC_ROUND]; /* offset of the first data block from the arena, in bytes */
            gw_u32 words[GW_IPSEC_ROUND]; /* words to encrypt, decrypt, or only hash; 0: none */
            gw_u32 found[GW_IPSEC_ROUND]; /* packed by gw_ipsec_pack_found */
            gw_u32 ring[GW_IPSEC_RING_WORDS * GW_IPSEC_STRIDE];
        };
        gw_aead_scratch aead;
    };
} gw_ipsec_scratch;

#define GW_IPSEC_TABLE_NONE 0xffffffffu

/* Returns the number of authenticated words before the encrypted data: SPI, sequence number and
 * IV. */
GW_LANE gw_u32 gw_ipsec_front_words(gw_ipsec_suite suite)
{
    return 2 + gw_ipsec_iv_bytes(suite) / 4;
}

/* Returns the number of hash blocks for a text of `words` words. The padding adds the word
 * 0x80000000 and two words for the length. */
GW_LANE gw_u32 gw_ipsec_hash_blocks(gw_u32 words)
{
    return (words + 3 + GW_IPSEC_STEP_WORDS - 1) / GW_IPSEC_STEP_WORDS;
}

/* Returns the data length, in words, of the work-group's longest current packet. All threads of a
 * warp call this function together. */
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

/* Returns the number of steps for packets of up to words_max words. A step processes 64 bytes of
 * each packet and ends with a barrier. */
GW_LANE gw_u32 gw_ipsec_steps(gw_ipsec_suite suite, gw_u32 words_max)
{
    if (words_max == 0) {
        return 0;
    }
    if (suite.auth == GW_IPSEC_AUTH_NONE) {
        return (words_max + GW_IPSEC_STEP_WORDS - 1) / GW_IPSEC_STEP_WORDS;
    }
    /* An extended sequence number adds one word to the text. Hashing lags one step behind
     * encryption, and the outer hash of HMAC takes another step. */
    return gw_ipsec_hash_blocks(gw_ipsec_front_words(suite) + words_max + 1) + 2;
}

#include "group_cipher.h"
#include "group_hash.h"

/* Stores the location of the SAs (security associations) in the work-group's local memory. The AES
 * table depends on the direction of the packets, so it is filled later. */
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

/* Returns whether the suite uses separate threads for encryption and hashing. */
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

/* Fills the AES table in local memory for a direction, unless it is already filled. All threads of
 * the work-group call this function after a barrier. */
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

/* Processes a packet batch. Some threads encrypt or decrypt, and other threads hash. Separate
 * functions for both tasks need fewer registers. All threads reach the same number of barriers. */
GW_GROUP void gw_ipsec_by_team(const gw_work *work, gw_ipsec_suite suite,
                               GW_LOCAL gw_ipsec_scratch *scratch)
{
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        gw_ipsec_fill_table(scratch, gw_ipsec_direction(work->variant));
    } else if (suite.cipher == GW_IPSEC_CIPHER_CTR) {
        gw_ipsec_fill_table(scratch, GW_IPSEC_OUTBOUND);
    }
    /* All threads of a warp have the same task (encryption, hashing or none), so these branches
     * keep the warp together. */
    const gw_u32 lane_id = gw_uniform(gw_lane_id());
    const gw_u32 chained_128 = gw_uniform(gw_ipsec_is_chained(work, suite) &&
                                          gw_ipsec_aes_rounds(suite) == GW_AES_TEAM_SPLIT);
    for (gw_u32 first = 0; first < work->count; first += GW_IPSEC_ROUND) {
        if (lane_id < GW_IPSEC_TEAM_LANES_ALL && chained_128) {
            gw_ipsec_team_chain_128(work, suite, scratch, first);
        } else if (lane_id < GW_IPSEC_TEAM_LANES_ALL && suite.cipher == GW_IPSEC_CIPHER_CTR) {
            gw_ipsec_team_counter(work, suite, scratch, first);
        } else if (lane_id < GW_IPSEC_TEAM_LANES_ALL) {
            gw_ipsec_team_round(work, suite, scratch, first);
        } else if (lane_id >= GW_IPSEC_HASH_LANE_FIRST &&
                   lane_id < GW_IPSEC_HASH_LANE_FIRST + GW_IPSEC_ROUND) {
            gw_ipsec_hash_round(work, suite, scratch, first);
        } else {
            gw_ipsec_idle_round(work, suite, scratch);
        }
    }
}

/* Processes all packets of a batch. All threads of the work-group call this function. A barrier
 * must separate the call from gw_ipsec_prepare and from the previous batch. */
GW_GROUP void gw_ipsec_bin(const gw_work *work, GW_LOCAL gw_ipsec_scratch *scratch)
{
    const gw_ipsec_suite suite = gw_ipsec_suite_of(work->variant);
    if (work->count == 0) {
        return;
    }
    const gw_u32 sas = gw_uniform(scratch->sas.count);
    if (sas != 0 && gw_ipsec_has_teams(suite)) {
        gw_ipsec_by_team(work, suite, scratch);
    } else if (sas != 0 && gw_aead_supports(suite)) {
        gw_ipsec_fill_table(scratch, GW_IPSEC_OUTBOUND);
        gw_aead_bin(work, suite, scratch->sas, &scratch->table, &scratch->aead);
    } else {
        gw_ipsec_by_lane(work);
        gw_warp_barrier();
    }
}

#endif
