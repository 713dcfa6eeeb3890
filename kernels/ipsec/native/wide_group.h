/* Groups of sixteen packets of a batch. */
#ifndef GODWIT_IPSEC_WIDE_GROUP_H
#define GODWIT_IPSEC_WIDE_GROUP_H

#include "wide_packet.h"
#include "wide_run.h"

/* Up to sixteen packets; places that are left repeat the last. Where the group is plain, places may
 * not be filled, or only the first one: what lies beside them says all that transforms need. */
typedef struct gw_wide_group {
    gw_wide_packet places[GW_WIDE_LANES];
    gw_wide_ah ahs[GW_WIDE_LANES];
    gw_wide_packet *packets[GW_WIDE_LANES] __attribute__((aligned(64)));
    gw_u8 *data[GW_WIDE_LANES] __attribute__((aligned(64))); /* what is encrypted */
    gw_u32 icv_bytes; /* of all packets; 0: they differ, or nobody looked */
    gw_u32 count;
    gw_u32 plain; /* outbound: nothing is left to do with it behind the transforms; inbound: it is
                     what gw_wide_plain_leave is for */
    gw_u32 even;  /* what gw_wide_even says */
    gw_u32 extended; /* bits of lanes whose sequence numbers are extended */
    gw_wide_sas sas;
    gw_u32 data_bytes[GW_WIDE_LANES] __attribute__((aligned(64)));
    gw_u32 spi[GW_WIDE_LANES] __attribute__((aligned(64)));
    gw_u32 numbers[2][GW_WIDE_LANES] __attribute__((aligned(64))); /* the sequence's halves */
    /* Of a plain group, inbound. */
    gw_u32 placed;                                            /* places are filled */
    gw_u32 for_any;                                           /* its SAs are for any packet */
    gw_u32 index[GW_WIDE_LANES] __attribute__((aligned(64))); /* in the bin */
    gw_u32 place[GW_WIDE_LANES] __attribute__((aligned(64))); /* as gw_wide_coming */
    gw_u32 ecn[GW_WIDE_LANES] __attribute__((aligned(64)));   /* of the outer header */
} gw_wide_group;

/* Once `count` places are filled; at least one is. */
GW_WIDE void gw_wide_group_filled(gw_wide_group *group)
{
    for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
        group->packets[i] = &group->places[i < group->count ? i : group->count - 1];
        group->sas.sa[i] = group->packets[i]->found.sa;
        group->data[i] = group->packets[i]->data;
    }
    group->icv_bytes = 0;
}

/* The same, where it is not known yet. */
GW_WIDE void gw_wide_group_numbers(gw_wide_group *group)
{
    gw_u32 extended = 0;
    for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
        const gw_wide_packet *packet = group->packets[i];
        group->spi[i] = packet->found.sa->spi;
        group->numbers[0][i] = (gw_u32)(packet->sequence >> 32);
        group->numbers[1][i] = (gw_u32)packet->sequence;
        group->data_bytes[i] = packet->data_bytes;
        extended |= (gw_u32)((packet->found.sa->flags & GW_IPSEC_SA_ESN) != 0) << i;
    }
    group->extended = extended;
}

/* How a suite's data is treated. */
GW_WIDE gw_u32 gw_wide_mode(gw_ipsec_suite suite, gw_u32 outbound)
{
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        return outbound ? GW_WIDE_CBC_SEAL : GW_WIDE_CBC_OPEN;
    }
    return suite.cipher == GW_IPSEC_CIPHER_CTR ? GW_WIDE_COUNTER : GW_WIDE_NONE;
}

/* Words of the state of a suite's hash; 0: none. */
GW_WIDE gw_u32 gw_wide_state_words(gw_ipsec_suite suite)
{
    return suite.auth == GW_IPSEC_AUTH_SHA1 ? 5 : (suite.auth == GW_IPSEC_AUTH_SHA256 ? 8 : 0);
}

/* The data of a group. `ahead`: bytes in front of it that belong to it here. What is not authentic
 * has none. */
GW_WIDE void gw_wide_lanes_of(gw_wide_lanes *lanes, const gw_wide_group *group, gw_u32 ahead)
{
    lanes->shortest = ~0u;
    lanes->longest = 0;
    for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
        const gw_wide_packet *packet = group->packets[i];
        const gw_u32 bytes = packet->authentic ? packet->data_bytes + ahead : 0;
        lanes->at[i] = packet->data - ahead;
        lanes->bytes[i] = bytes;
        lanes->shortest = bytes < lanes->shortest ? bytes : lanes->shortest;
        lanes->longest = bytes > lanes->longest ? bytes : lanes->longest;
    }
}

/* CBC is encrypted from the nonce on, which lies where the IV will be. */
static __attribute__((noinline)) void gw_wide_cipher_of(gw_wide_cipher *cipher,
                                                        const gw_wide_group *group,
                                                        gw_ipsec_suite suite, gw_u32 mode)
{
    gw_wide_lanes *lanes = &cipher->lanes;
    gw_wide_lanes_of(lanes, group, mode == GW_WIDE_CBC_SEAL ? 16 : 0);
    gw_wide_keys_load(&cipher->keys, &group->sas, gw_ipsec_aes_rounds(suite));
    cipher->offset = 0;
    if (mode == GW_WIDE_CBC_OPEN) {
        gw_wide_chain_behind(cipher);
    } else if (mode == GW_WIDE_CBC_SEAL) {
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            cipher->chain[j] = _mm512_setzero_si512();
        }
    } else {
        gw_wide_counters(cipher->chain, lanes->at, &group->sas, 1);
    }
}

static __attribute__((noinline)) void
gw_wide_hash_of(gw_wide_hash *hash, const gw_wide_group *group, gw_u32 state_words)
{
    for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
        const gw_wide_packet *packet = group->packets[i];
        const gw_u32 extended = (packet->found.sa->flags & GW_IPSEC_SA_ESN) != 0;
        gw_wide_hash_lane(hash, i, packet->text, packet->text_bytes,
                          (gw_u32)(packet->sequence >> 32), extended ? 4 : 0);
    }
    gw_wide_hash_begin(hash, &group->sas, state_words);
}

/* Takes tags to where they belong, or compares them with those that came. */
GW_WIDE void gw_wide_tags_of(const gw_ipsec_tag tags[GW_WIDE_LANES], gw_wide_group *group,
                             gw_ipsec_suite suite, gw_u32 outbound)
{
    for (gw_u32 i = 0; i < group->count; i++) {
        gw_wide_packet *packet = group->packets[i];
        gw_u8 *icv = packet->data + packet->data_bytes;
        const gw_u32 icv_bytes = packet->found.sa->icv_bytes;
        if (suite.protocol == GW_IPSEC_AH) {
            packet->ah->tag = tags[i];
        } else if (outbound) {
            gw_ipsec_tag_store(icv, tags[i], icv_bytes);
        } else {
            packet->authentic = gw_ipsec_tag_same(icv, tags[i], icv_bytes);
        }
    }
}

/* The words of an ICV of so many bytes. */
GW_WIDE __mmask8 gw_wide_icv_mask(gw_u32 icv_bytes)
{
    return (__mmask8)((1u << (icv_bytes / 4)) - 1);
}

#endif
