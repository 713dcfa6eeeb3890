/* Groups of up to sixteen packets that are processed together. */
#ifndef GODWIT_IPSEC_AVX512_GROUP_H
#define GODWIT_IPSEC_AVX512_GROUP_H

#include "avx512.h"
#include "packet.h"
#include "avx512_run.h"

/*
 * Up to sixteen packets that are processed together. Unused SIMD lanes repeat the last packet.
 *
 * The array `slots` contains the state of each packet. It may be incomplete if all packets are
 * simple IPv4 packets in a tunnel, because the other arrays then suffice.
 */
typedef struct gw_avx512_group {
    gw_native_packet slots[GW_AVX512_LANES];
    gw_native_ah ahs[GW_AVX512_LANES];
    gw_native_packet *packets[GW_AVX512_LANES] __attribute__((aligned(64)));
    gw_u8 *data[GW_AVX512_LANES] __attribute__((aligned(64))); /* data to encrypt or decrypt */
    gw_u32 icv_bytes; /* length of all ICVs; 0: the lengths differ or are unknown */
    gw_u32 count;
    gw_u32 simple;      /* 1: all packets are simple. Outbound packets need only encryption.
                           For inbound groups, see gw_avx512_simple_decapsulate_end. */
    gw_u32 same_length; /* result of gw_avx512_same_length */
    gw_u32 extended;    /* mask of the lanes with extended sequence numbers */
    gw_avx512_sas sas;
    gw_u32 data_bytes[GW_AVX512_LANES] __attribute__((aligned(64)));
    gw_u32 spi[GW_AVX512_LANES] __attribute__((aligned(64)));
    gw_u32 sequence[2][GW_AVX512_LANES] __attribute__((aligned(64))); /* upper, lower half */
    /* Fields that are used only for groups of simple inbound packets. */
    gw_u32 slots_filled; /* 1: the slots are filled */
    gw_u32 accepts_any;  /* 1: the SAs accept any inner packet */
    gw_u32 index[GW_AVX512_LANES] __attribute__((aligned(64)));       /* indices in the batch */
    gw_u32 head_length[GW_AVX512_LANES] __attribute__((aligned(64))); /* see gw_avx512_upcoming */
    gw_u32 ecn[GW_AVX512_LANES] __attribute__((aligned(64)));         /* ECN of the outer header */
} gw_avx512_group;

/* Sets a group's pointers to packets, SAs and data from the packet states in `slots`. The group
 * must contain at least one packet. */
GW_AVX512 void gw_avx512_group_link(gw_avx512_group *group)
{
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
        group->packets[i] = &group->slots[i < group->count ? i : group->count - 1];
        group->sas.sa[i] = group->packets[i]->found.sa;
        group->data[i] = group->packets[i]->data;
    }
    group->icv_bytes = 0;
}

/* Copies the SPIs, sequence numbers and lengths of a group's packets into arrays. */
GW_AVX512 void gw_avx512_group_gather(gw_avx512_group *group)
{
    gw_u32 extended = 0;
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
        const gw_native_packet *packet = group->packets[i];
        group->spi[i] = packet->found.sa->spi;
        group->sequence[0][i] = (gw_u32)(packet->sequence >> 32);
        group->sequence[1][i] = (gw_u32)packet->sequence;
        group->data_bytes[i] = packet->data_bytes;
        extended |= (gw_u32)((packet->found.sa->flags & GW_IPSEC_SA_ESN) != 0) << i;
    }
    group->extended = extended;
}

GW_AVX512 gw_u32 gw_avx512_mode(gw_ipsec_suite suite, gw_u32 outbound)
{
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        return outbound ? GW_AVX512_CBC_ENCRYPT : GW_AVX512_CBC_DECRYPT;
    }
    return suite.cipher == GW_IPSEC_CIPHER_CTR ? GW_AVX512_CTR : GW_AVX512_NONE;
}

/* Returns the number of state words of the suite's hash (SHA-1 or SHA-256). Returns 0 without a
 * hash. */
GW_AVX512 gw_u32 gw_avx512_state_words(gw_ipsec_suite suite)
{
    return suite.auth == GW_IPSEC_AUTH_SHA1 ? 5 : (suite.auth == GW_IPSEC_AUTH_SHA256 ? 8 : 0);
}

/* Sets the byte range of each of sixteen packets: the packet data and front_bytes bytes before it.
 * For a packet that is not authentic, the range is empty. */
GW_AVX512 void gw_avx512_group_lanes(gw_avx512_lanes *lanes, const gw_avx512_group *group,
                                     gw_u32 front_bytes)
{
    lanes->shortest = ~0u;
    lanes->longest = 0;
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
        const gw_native_packet *packet = group->packets[i];
        const gw_u32 bytes = packet->authentic ? packet->data_bytes + front_bytes : 0;
        lanes->at[i] = packet->data - front_bytes;
        lanes->bytes[i] = bytes;
        lanes->shortest = bytes < lanes->shortest ? bytes : lanes->shortest;
        lanes->longest = bytes > lanes->longest ? bytes : lanes->longest;
    }
}

/* Prepares the encryption or decryption of sixteen packets. The data of outbound CBC packets starts
 * with a nonce, whose encryption is the IV. */
static __attribute__((noinline)) void gw_avx512_group_cipher(gw_avx512_cipher *cipher,
                                                             const gw_avx512_group *group,
                                                             gw_ipsec_suite suite, gw_u32 mode)
{
    gw_avx512_lanes *lanes = &cipher->lanes;
    gw_avx512_group_lanes(lanes, group, mode == GW_AVX512_CBC_ENCRYPT ? 16 : 0);
    gw_avx512_keys_load(&cipher->keys, &group->sas, gw_ipsec_aes_rounds(suite));
    cipher->offset = 0;
    if (mode == GW_AVX512_CBC_DECRYPT) {
        gw_avx512_load_ivs(cipher);
    } else if (mode == GW_AVX512_CBC_ENCRYPT) {
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            cipher->chain[j] = _mm512_setzero_si512();
        }
    } else {
        gw_avx512_first_counters(cipher->chain, lanes->at, &group->sas, 1);
    }
}

static __attribute__((noinline)) void
gw_avx512_group_hash(gw_avx512_hash *hash, const gw_avx512_group *group, gw_u32 state_words)
{
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
        const gw_native_packet *packet = group->packets[i];
        const gw_u32 extended = (packet->found.sa->flags & GW_IPSEC_SA_ESN) != 0;
        gw_avx512_hash_lane(hash, i, packet->text, packet->text_bytes,
                            (gw_u32)(packet->sequence >> 32), extended ? 4 : 0);
    }
    gw_avx512_hash_begin(hash, &group->sas, state_words);
}

/* Stores the ICVs of sixteen outbound packets, or compares inbound ICVs with the computed tags. */
GW_AVX512 void gw_avx512_apply_tags(const gw_ipsec_tag tags[GW_AVX512_LANES],
                                    gw_avx512_group *group, gw_ipsec_suite suite, gw_u32 outbound)
{
    for (gw_u32 i = 0; i < group->count; i++) {
        gw_native_packet *packet = group->packets[i];
        gw_u8 *icv = packet->data + packet->data_bytes;
        const gw_u32 icv_bytes = packet->found.sa->icv_bytes;
        if (suite.protocol == GW_IPSEC_AH) {
            packet->ah->tag = tags[i];
        } else if (outbound) {
            gw_ipsec_tag_store(icv, tags[i], icv_bytes);
        } else {
            packet->authentic = gw_ipsec_tag_equal(icv, tags[i], icv_bytes);
        }
    }
}

GW_AVX512 __mmask8 gw_avx512_icv_mask(gw_u32 icv_bytes)
{
    return (__mmask8)((1u << (icv_bytes / 4)) - 1);
}

#endif
