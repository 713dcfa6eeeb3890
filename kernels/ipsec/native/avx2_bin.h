/* Processes a batch of packets with the same suite and direction, eight packets at a time. */
#ifndef GODWIT_IPSEC_AVX2_BIN_H
#define GODWIT_IPSEC_AVX2_BIN_H

#include "avx2_cbc.h"
#include "avx2_chacha.h"
#include "avx2_ctr.h"
#include "avx2_gcm.h"
#include "avx2_hmac.h"
#include "avx2_poly.h"
#include "avx2_sha_ni.h"
#include "simple_packet.h"

/* Number of packets between the prefetch of a packet and its use. */
#define GW_AVX2_AHEAD 16u

/* Up to eight packets that are processed together. */
typedef struct gw_avx2_group {
    gw_native_packet packets[GW_AVX2_LANES];
    gw_native_ah ahs[GW_AVX2_LANES];
    gw_u32 simple; /* mask of the simple packets, whose headers are written or checked */
    gw_u32 count;
} gw_avx2_group;

/* Progress of the processing of a batch. */
typedef struct gw_avx2_batch {
    const gw_bin_call *call;
    gw_u32 first; /* index of the first packet in `call` */
    gw_u32 count;
    gw_u32 next; /* index in `order` of the next packet */
    gw_u16 order[GW_NATIVE_BATCH];
    gw_avx2_gcm gcm; /* keys of the SA of the previous packet */
} gw_avx2_batch;

/* Prefetches the first bytes of a packet and its SA. */
GW_NATIVE void gw_avx2_prefetch(const gw_avx2_batch *batch, gw_u32 at)
{
    if (at >= batch->count) {
        return;
    }
    const gw_u32 index = batch->first + batch->order[at];
    const gw_descriptor *descriptor = &batch->call->descriptors[index];
    const gw_lane lane = gw_native_lane(batch->call, index);
    const gw_u8 *frame = lane.buffer + descriptor->head;
    __builtin_prefetch(frame - 64);
    __builtin_prefetch(frame);
    __builtin_prefetch(frame + 64);
    gw_ipsec_touch(&lane, descriptor);
}

/* Writes or checks the headers of a simple packet. Returns 0 and changes nothing for other packets.
 */
GW_NATIVE gw_u32 gw_avx2_begin_simple(gw_native_packet *packet, const gw_bin_call *call,
                                      gw_u32 index, gw_native_operation operation)
{
    if (operation.suite.protocol == GW_IPSEC_AH) {
        return 0;
    }
    return operation.outbound
               ? gw_native_simple_encapsulate(packet, call, index, operation.suite)
               : gw_native_simple_decapsulate_begin(packet, call, index, operation.suite);
}

/* Takes the next packets from the batch and writes or checks their headers. Stops at eight packets
 * that need cryptography, or at the end of the batch. */
GW_NATIVE void gw_avx2_fill(gw_avx2_group *group, gw_avx2_batch *batch,
                            gw_native_operation operation)
{
    const gw_bin_call *call = batch->call;
    gw_u32 started = 0;
    group->simple = 0;
    while (started < GW_AVX2_LANES && batch->next < batch->count) {
        gw_native_packet *packet = &group->packets[started];
        gw_avx2_prefetch(batch, batch->next + GW_AVX2_AHEAD);
        packet->index = batch->order[batch->next++];
        const gw_u32 index = batch->first + packet->index;
        if (gw_avx2_begin_simple(packet, call, index, operation)) {
            group->simple |= 1u << started;
            started++;
            continue;
        }
        packet->ah = operation.suite.protocol == GW_IPSEC_AH ? &group->ahs[started] : 0;
        const gw_lane lane = gw_native_lane(call, index);
        started += gw_native_begin(packet, &lane, operation, &call->descriptors[index],
                                   &call->outcomes[index]);
    }
    group->count = started;
}

GW_NATIVE void gw_avx2_finish(gw_avx2_group *group, const gw_avx2_batch *batch,
                              gw_native_operation operation)
{
    const gw_bin_call *call = batch->call;
    for (gw_u32 i = 0; i < group->count; i++) {
        gw_native_packet *packet = &group->packets[i];
        const gw_u32 index = batch->first + packet->index;
        const gw_u32 simple = group->simple >> i & 1u;
        if (simple && (operation.outbound || (packet->authentic && gw_native_simple_decapsulate_end(
                                                                       packet, call, index)))) {
            continue;
        }
        const gw_lane lane = gw_native_lane(call, index);
        gw_native_finish(packet, &lane, operation, &call->descriptors[index],
                         &call->outcomes[index]);
    }
}

/* Returns the packet of a lane. Unused lanes repeat the last packet. */
GW_NATIVE gw_native_packet *gw_avx2_packet(gw_avx2_group *group, gw_u32 i)
{
    return &group->packets[i < group->count ? i : group->count - 1];
}

/* Encrypts the data of a group, or decrypts it for authentic packets. */
GW_NATIVE void gw_avx2_cipher(gw_avx2_group *group, gw_native_operation operation)
{
    const gw_ipsec_suite suite = operation.suite;
    const gw_u32 rounds = gw_ipsec_aes_rounds(suite);
    if (suite.cipher == GW_IPSEC_CIPHER_CBC && operation.outbound) {
        gw_avx2_cbc cbc;
        cbc.shortest = ~0u;
        cbc.longest = 0;
        cbc.unused = _mm_setzero_si128();
        for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
            gw_avx2_cbc_lane(&cbc, i, gw_avx2_packet(group, i), rounds);
        }
        gw_avx2_cbc_encrypt(&cbc, rounds);
        return;
    }
    for (gw_u32 i = 0; i < group->count; i++) {
        const gw_native_packet *packet = &group->packets[i];
        if (packet->authentic && suite.cipher == GW_IPSEC_CIPHER_CBC) {
            gw_avx2_cbc_decrypt(packet, rounds);
        } else if (packet->authentic) {
            gw_avx2_ctr(packet, rounds);
        }
    }
}

/* Computes the tags of a group. Stores the ICVs of outbound packets, and compares the ICVs of
 * inbound packets. */
GW_NATIVE void gw_avx2_authenticate(gw_avx2_group *group, gw_native_operation operation)
{
    gw_avx2_texts texts;
    gw_ipsec_tag tags[GW_AVX2_LANES];
    texts.shortest = ~0u;
    texts.longest = 0;
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        gw_avx2_text(&texts, i, gw_avx2_packet(group, i));
    }
    if (operation.suite.auth == GW_IPSEC_AUTH_SHA1) {
        gw_avx2_hmac_sha1(&texts, tags);
    } else {
        gw_avx2_hmac_sha256(&texts, tags);
    }
    for (gw_u32 i = 0; i < group->count; i++) {
        gw_native_apply_tag(&group->packets[i], operation, tags[i]);
    }
}

/* Encrypts or decrypts a group with GCM. A packet with a wrong ICV is encrypted again, so that it
 * is unchanged. */
GW_NATIVE void gw_avx2_gcm_group(gw_avx2_group *group, gw_avx2_gcm *gcm,
                                 gw_native_operation operation)
{
    for (gw_u32 i = 0; i < group->count; i++) {
        gw_native_packet *packet = &group->packets[i];
        const gw_ipsec_sa *sa = packet->found.sa;
        gw_avx2_gcm_keys(gcm, sa, gw_ipsec_aes_rounds(operation.suite),
                         gw_avx2_gcm_power(packet->data_bytes));
        gw_native_apply_tag(packet, operation, gw_avx2_gcm_packet(gcm, packet, operation.outbound));
        if (!packet->authentic) {
            gw_ipsec_stream(sa, operation.suite, packet->data - 8, packet->data,
                            packet->data_bytes);
        }
    }
}

GW_NATIVE void gw_avx2_poly_group(gw_avx2_group *group, const gw_u32 once[GW_AVX2_LANES][8],
                                  gw_native_operation operation)
{
    gw_avx2_poly_texts texts;
    gw_ipsec_tag tags[GW_AVX2_LANES];
    texts.shortest = ~0u;
    texts.longest = 0;
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        gw_avx2_poly_text(&texts, i, gw_avx2_packet(group, i));
    }
    gw_avx2_poly_tags(&texts, once, tags);
    for (gw_u32 i = 0; i < group->count; i++) {
        gw_native_apply_tag(&group->packets[i], operation, tags[i]);
    }
}

/* Encrypts or decrypts a group with ChaCha20-Poly1305. */
GW_NATIVE void gw_avx2_chacha_group(gw_avx2_group *group, gw_native_operation operation)
{
    gw_u32 once[GW_AVX2_LANES][8];
    gw_avx2_chacha chacha;
    chacha.count = 0;
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        __builtin_memset(once[i], 0, sizeof(once[i]));
        gw_avx2_chacha_add(&chacha, gw_avx2_packet(group, i), 0, (gw_u8 *)once[i], sizeof(once[i]));
    }
    gw_avx2_chacha_apply(&chacha);
    if (!operation.outbound) {
        gw_avx2_poly_group(group, once, operation);
    }
    for (gw_u32 i = 0; i < group->count; i++) {
        if (group->packets[i].authentic) {
            gw_avx2_chacha_packet(&chacha, &group->packets[i]);
        }
    }
    gw_avx2_chacha_end(&chacha);
    if (operation.outbound) {
        gw_avx2_poly_group(group, once, operation);
    }
}

GW_NATIVE void gw_avx2_run(gw_avx2_group *group, gw_avx2_batch *batch,
                           gw_native_operation operation)
{
    if (operation.suite.auth == GW_IPSEC_AUTH_GHASH) {
        gw_avx2_gcm_group(group, &batch->gcm, operation);
        return;
    }
    if (operation.suite.auth == GW_IPSEC_AUTH_POLY1305) {
        gw_avx2_chacha_group(group, operation);
        return;
    }
    const gw_u32 authenticated = operation.suite.auth != GW_IPSEC_AUTH_NONE;
    const gw_u32 encrypted = operation.suite.cipher != GW_IPSEC_CIPHER_NULL;
    if (authenticated && !operation.outbound) {
        gw_avx2_authenticate(group, operation);
    }
    if (encrypted) {
        gw_avx2_cipher(group, operation);
    }
    if (authenticated && operation.outbound) {
        gw_avx2_authenticate(group, operation);
    }
}

static __attribute__((noinline)) void gw_avx2_batch_run(gw_avx2_batch *batch,
                                                        gw_native_operation operation)
{
    gw_avx2_group group;
    for (gw_u32 i = 0; i < GW_AVX2_AHEAD; i++) {
        gw_avx2_prefetch(batch, i);
    }
    while (batch->next < batch->count) {
        gw_avx2_fill(&group, batch, operation);
        if (group.count != 0) {
            gw_avx2_run(&group, batch, operation);
            gw_avx2_finish(&group, batch, operation);
        }
    }
}

static void gw_avx2_bin(const gw_bin_call *call)
{
    const gw_native_operation operation = {gw_ipsec_suite_of(call->variant),
                                           gw_ipsec_direction(call->variant) == GW_IPSEC_OUTBOUND};
    gw_avx2_batch batch;
    batch.call = call;
    batch.gcm.sa = 0;
    for (batch.first = 0; batch.first < call->count; batch.first += GW_NATIVE_BATCH) {
        const gw_u32 left = call->count - batch.first;
        batch.count = left < GW_NATIVE_BATCH ? left : GW_NATIVE_BATCH;
        batch.next = 0;
        gw_native_sort(call->descriptors + batch.first, batch.count, batch.order);
        gw_avx2_batch_run(&batch, operation);
    }
}

#endif
