/* Packets of a bin between their beginnings and their ends, and groups of sixteen of them. */
#ifndef GODWIT_IPSEC_WIDE_GROUP_H
#define GODWIT_IPSEC_WIDE_GROUP_H

#include "wide_gcm.h"
#include "wide_run.h"

typedef struct gw_wide_packet {
    gw_ipsec_found found;
    gw_u8 *text; /* what is authenticated */
    gw_u8 *data; /* what is encrypted; the ICV of ESP comes behind */
    gw_u64 sequence;
    gw_u32 text_bytes;
    gw_u32 data_bytes;
    gw_u32 index;     /* in the bin */
    gw_u32 authentic; /* inbound */
    union {
        gw_ipsec_sealing sealing;
        gw_ipsec_opening opening;
        gw_ipsec_signing signing;
    } half;
    gw_ipsec_tag tag; /* AH */
} gw_wide_packet;

/* Up to sixteen packets of a batch; places that are left repeat the last. */
typedef struct gw_wide_group {
    gw_wide_packet *packets[GW_WIDE_LANES];
    gw_u32 count;
    gw_wide_sas sas;
} gw_wide_group;

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
            packet->tag = tags[i];
        } else if (outbound) {
            gw_ipsec_tag_store(icv, tags[i], icv_bytes);
        } else {
            packet->authentic = gw_ipsec_tag_same(icv, tags[i], icv_bytes);
        }
    }
}

/* The whole of GCM for a group. */
static __attribute__((noinline)) void gw_wide_gcm_of(gw_wide_group *group, gw_ipsec_suite suite,
                                                     gw_u32 outbound)
{
    gw_wide_gcm gcm;
    gw_ipsec_tag tags[GW_WIDE_LANES];
    __m128i aad[GW_WIDE_LANES];
    __m128i lengths[GW_WIDE_LANES];
    for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
        const gw_wide_packet *packet = group->packets[i];
        const gw_ipsec_aad front = gw_ipsec_aad_of(packet->found.sa, packet->sequence);
        aad[i] = gw_ghash_words(front.words[0], front.words[1], front.words[2], front.words[3]);
        lengths[i] = gw_ghash_words(0, 8 * front.bytes, 0, 8 * packet->data_bytes);
    }
    gw_wide_lanes_of(&gcm.lanes, group, 0);
    gw_wide_gcm_begin(&gcm, &group->sas, gw_ipsec_aes_rounds(suite));
    if (outbound) {
        gw_wide_gcm_run(&gcm, 1, aad, lengths, tags);
        gw_wide_tags_of(tags, group, suite, 1);
        return;
    }
    gw_wide_gcm_run(&gcm, 0, aad, lengths, tags);
    gw_wide_tags_of(tags, group, suite, 0);
    gw_u32 forged = 0;
    for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
        gw_wide_packet *packet = group->packets[i];
        forged |= !packet->authentic;
        gcm.lanes.bytes[i] = packet->authentic ? 0 : packet->data_bytes;
    }
    if (forged) {
        /* What is not authentic is left as it came (RFC 4303, section 3.4.4.1): decrypting twice
         * does that, and is seldom needed. */
        gcm.lanes.shortest = 0;
        gw_wide_counters(gcm.counter, gcm.lanes.at, &group->sas, 2);
        for (gw_u32 offset = 0; offset < gcm.lanes.longest; offset += GW_WIDE_ROW_BYTES) {
            gw_wide_gcm_row(&gcm, offset, 0, 0);
        }
    }
}

/* Headers of an ESP packet, outbound; returns whether there is more to do. */
GW_WIDE gw_u32 gw_wide_seal_begin(gw_wide_packet *packet, const gw_lane *lane, gw_ipsec_suite suite,
                                  gw_descriptor *descriptor, gw_outcome *outcome)
{
    const gw_ipsec_sealing sealing =
        gw_ipsec_seal_begin(lane, packet->found, suite, descriptor, outcome);
    gw_u8 *iv = sealing.esp + GW_IPSEC_ESP_HEADER_BYTES;
    const gw_ipsec_sa *sa = packet->found.sa;
    packet->half.sealing = sealing;
    packet->text = sealing.esp;
    packet->data = iv + gw_ipsec_iv_bytes(suite);
    packet->data_bytes = sealing.cipher_bytes;
    packet->sequence = sealing.sequence;
    if (sealing.cipher_bytes == 0) {
        return 0;
    }
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        /* As gw_ipsec_cbc_iv has it, before it is encrypted. */
        gw_aes_store(iv, gw_aes_words(sa->spi, (gw_u32)(sealing.sequence >> 32),
                                      (gw_u32)sealing.sequence, sa->destination[0]));
    } else if (gw_ipsec_iv_bytes(suite) != 0) {
        gw_store_be64(iv, sealing.sequence);
    }
    return 1;
}

/* The same inbound. */
GW_WIDE gw_u32 gw_wide_open_begin(gw_wide_packet *packet, const gw_lane *lane, gw_ipsec_suite suite,
                                  const gw_descriptor *descriptor, gw_outcome *outcome)
{
    const gw_ipsec_opening opening =
        gw_ipsec_open_begin(lane, packet->found, suite, descriptor, outcome);
    packet->half.opening = opening;
    packet->text = opening.esp;
    packet->data = opening.esp + GW_IPSEC_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    packet->data_bytes = opening.cipher_bytes;
    packet->sequence = opening.sequence;
    return opening.cipher_bytes != 0;
}

/* Headers of one packet; returns whether there is more to do. */
GW_WIDE gw_u32 gw_wide_begin(gw_wide_packet *packet, const gw_lane *lane,
                             gw_descriptor *at_descriptor, gw_outcome *at_outcome)
{
    const gw_ipsec_suite suite = gw_ipsec_suite_of(lane->variant);
    const gw_u32 outbound = gw_ipsec_direction(lane->variant) == GW_IPSEC_OUTBOUND;
    gw_descriptor descriptor = *at_descriptor;
    gw_outcome outcome = {0, 0, 0, 0};
    gw_u32 more = 0;
    packet->found = gw_ipsec_find(lane, &descriptor, &outcome);
    packet->authentic = 1;
    if (packet->found.sa == 0) {
    } else if (suite.protocol == GW_IPSEC_AH) {
        gw_ipsec_signing *signing = &packet->half.signing;
        if (outbound) {
            gw_ipsec_sign_begin(lane, packet->found, suite, signing, &descriptor, &outcome);
        } else {
            gw_ipsec_verify_begin(lane, packet->found, suite, signing, &descriptor, &outcome);
        }
        packet->text = signing->header;
        packet->text_bytes = signing->bytes;
        packet->sequence = signing->sequence;
        packet->data = signing->header;
        packet->data_bytes = 0;
        more = signing->bytes != 0;
    } else {
        more = outbound ? gw_wide_seal_begin(packet, lane, suite, &descriptor, &outcome)
                        : gw_wide_open_begin(packet, lane, suite, &descriptor, &outcome);
        packet->text_bytes =
            GW_IPSEC_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite) + packet->data_bytes;
    }
    at_descriptor->head = descriptor.head;
    at_descriptor->length = descriptor.length;
    *at_outcome = outcome;
    return more;
}

/* What is left to do with a packet whose transforms are done. */
GW_WIDE void gw_wide_finish(gw_wide_packet *packet, const gw_lane *lane,
                            gw_descriptor *at_descriptor, gw_outcome *at_outcome)
{
    const gw_ipsec_suite suite = gw_ipsec_suite_of(lane->variant);
    const gw_u32 outbound = gw_ipsec_direction(lane->variant) == GW_IPSEC_OUTBOUND;
    if (outbound) {
        if (suite.protocol == GW_IPSEC_AH) {
            gw_ipsec_sign_end(packet->found, suite, &packet->half.signing, packet->tag);
        } else {
            gw_ipsec_seal_end(packet->found, suite, packet->half.sealing);
        }
        return;
    }
    gw_descriptor descriptor = *at_descriptor;
    gw_outcome outcome = {0, 0, 0, 0};
    if (suite.protocol == GW_IPSEC_AH) {
        gw_ipsec_verify_end(lane, packet->found, suite, &packet->half.signing, packet->tag,
                            &descriptor, &outcome);
    } else if (!packet->authentic) {
        gw_drop(&outcome, GW_IPSEC_AUTHENTICATION);
    } else {
        gw_ipsec_open_end(lane, packet->found, suite, packet->half.opening, &descriptor, &outcome);
    }
    at_descriptor->head = descriptor.head;
    at_descriptor->length = descriptor.length;
    *at_outcome = outcome;
}

#endif
