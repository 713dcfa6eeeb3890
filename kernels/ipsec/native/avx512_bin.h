/* Processes a batch of packets with the same suite and direction, sixteen packets at a time. */
#ifndef GODWIT_IPSEC_AVX512_BIN_H
#define GODWIT_IPSEC_AVX512_BIN_H

#include "avx512_chacha.h"
#include "avx512_gcm_group.h"
#include "avx512_mac.h"
#include "avx512_next.h"
#include "avx512_padding.h"
#include "avx512_sha512.h"
#include "avx512_simple_finish.h"

/* Returns whether the suite is CBC with HMAC, which has special code for groups of equally long
 * packets. */
GW_AVX512 gw_u32 gw_avx512_is_cbc_hmac(gw_native_operation operation)
{
    return operation.suite.cipher == GW_IPSEC_CIPHER_CBC &&
           gw_avx512_state_words(operation.suite) != 0;
}

/* Returns how many packet states (gw_native_packet) a group of simple outbound packets needs: none
 * with GHASH, and one for equally long packets with CBC and HMAC. */
GW_AVX512 gw_u32 gw_avx512_slots_needed(gw_native_operation operation, gw_u32 same_length,
                                        gw_u32 count)
{
    if (operation.suite.auth == GW_IPSEC_AUTH_GHASH) {
        return 0;
    }
    return same_length && gw_avx512_is_cbc_hmac(operation) ? 1 : count;
}

/* Moves up to sixteen simple IPv4 packets in a tunnel from the batch to the current group. Their
 * headers are already checked. */
GW_AVX512 void gw_avx512_simple_group(gw_avx512_group *group, gw_avx512_batch *batch,
                                      const gw_avx512_simple *simple, gw_u32 count)
{
    const __m512i slots = _mm512_min_epu32(gw_avx512_lane_indices(), gw_avx512_set(count - 1));
    const __m512i offset = _mm512_mullo_epi32(slots, gw_avx512_set(sizeof(group->slots[0])));
    batch->next += count;
    group->count = count;
    group->simple = 1;
    gw_avx512_addresses(group->packets, group->slots, gw_avx512_to_u64(offset, 0),
                        gw_avx512_to_u64(offset, 1));
    group->same_length = simple->same_length;
    group->icv_bytes = simple->icv_bytes;
    group->extended = simple->extended;
    group->sas = simple->upcoming->sas;
    for (gw_u32 half = 0; half < 2; half++) {
        _mm512_store_si512(group->sequence[half],
                           _mm512_load_si512(simple->upcoming->sequence[half]));
    }
    _mm512_store_si512(group->spi, _mm512_load_si512(simple->spi));
    _mm512_store_si512(group->data_bytes, _mm512_load_si512(simple->data_bytes));
}

GW_AVX512 void gw_avx512_simple_pad(const gw_avx512_simple *simple, gw_u32 count)
{
    gw_u8 *const *frame = simple->upcoming->frame;
    const gw_u32 first_bytes = simple->total_bytes[0];
    const gw_u32 first_pad_bytes = simple->data_bytes[0] - GW_ESP_TAIL_BYTES - first_bytes;
    gw_avx512_padding padding = gw_avx512_padding_of(first_pad_bytes);
    if (simple->same_length && gw_avx512_all_equal(_mm512_load_si512(simple->total_bytes))) {
        /* Unused SIMD lanes repeat the last packet, so storing its trailer again is harmless. */
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
            _mm256_mask_storeu_epi8(frame[i] + GW_ETHERNET_BYTES + first_bytes, padding.mask,
                                    padding.all);
        }
        return;
    }
    for (gw_u32 i = 0; i < count; i++) {
        const gw_u32 total_bytes = simple->total_bytes[i];
        const gw_u32 pad_bytes = simple->data_bytes[i] - GW_ESP_TAIL_BYTES - total_bytes;
        if (pad_bytes != padding.bytes) {
            padding = gw_avx512_padding_of(pad_bytes);
        }
        _mm256_mask_storeu_epi8(frame[i] + GW_ETHERNET_BYTES + total_bytes, padding.mask,
                                padding.all);
    }
}

/* Writes the headers and trailers of up to sixteen outbound packets at once. Returns 0 and changes
 * nothing unless all of them are simple IPv4 packets in a tunnel. */
GW_AVX512 gw_u32 gw_avx512_fill_outbound(gw_avx512_group *group, gw_avx512_batch *batch,
                                         gw_native_operation operation)
{
    const gw_bin_call *call = batch->call;
    gw_avx512_upcoming *upcoming = &batch->upcoming;
    gw_avx512_simple simple;
    const gw_u32 count = upcoming->count;
    simple.upcoming = upcoming;
    if (count == 0 || !gw_avx512_simple_encapsulate(&simple, call->variant, operation.suite)) {
        return 0;
    }
    const gw_u32 front = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(operation.suite);
    const gw_u32 filled = gw_avx512_slots_needed(operation, simple.same_length, count);
    for (gw_u32 i = 0; i < filled; i++) {
        gw_native_packet *packet = &group->slots[i];
        gw_u8 *inner = upcoming->frame[i] + GW_ETHERNET_BYTES;
        packet->found.sa = upcoming->sas.sa[i];
        packet->text = inner - front;
        packet->data = inner;
        packet->sequence = (gw_u64)upcoming->sequence[0][i] << 32 | upcoming->sequence[1][i];
        packet->data_bytes = simple.data_bytes[i];
        packet->text_bytes = front + simple.data_bytes[i];
        packet->authentic = 1;
    }
    gw_avx512_simple_pad(&simple, count);
    gw_avx512_simple_store_results(batch, upcoming->index, _mm512_load_si512(upcoming->head_length),
                                   _mm512_load_si512(simple.spi), gw_avx512_first_lanes(count),
                                   GW_IPSEC_ENCRYPTED);
    gw_avx512_offset_addresses(group->data, upcoming->frame, GW_ETHERNET_BYTES);
    gw_avx512_simple_group(group, batch, &simple, count);
    return 1;
}

/* Checks the headers of up to sixteen inbound packets at once. Returns 0 and changes nothing unless
 * all of them are simple IPv4 packets in a tunnel. */
GW_AVX512 gw_u32 gw_avx512_fill_inbound(gw_avx512_group *group, gw_avx512_batch *batch,
                                        gw_native_operation operation)
{
    gw_avx512_upcoming *upcoming = &batch->upcoming;
    gw_avx512_simple simple;
    const gw_u32 count = upcoming->count;
    simple.upcoming = upcoming;
    if (count == 0 || !gw_avx512_simple_decapsulate_begin(&simple, batch->call, operation.suite)) {
        return 0;
    }
    const gw_u32 overhead =
        GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(operation.suite);
    group->accepts_any = simple.accepts_any;
    group->slots_filled = 0;
    _mm512_store_si512(group->index, _mm512_load_si512(upcoming->index));
    _mm512_store_si512(group->head_length, _mm512_load_si512(upcoming->head_length));
    gw_avx512_store_words(group->ecn, simple.ecn);
    gw_avx512_offset_addresses(group->data, upcoming->frame, GW_ETHERNET_BYTES + overhead);
    gw_avx512_simple_group(group, batch, &simple, count);
    if (operation.suite.auth != GW_IPSEC_AUTH_GHASH) {
        gw_avx512_fill_slots(group, batch, operation.suite);
    }
    return 1;
}

/* Writes the headers of up to sixteen outbound packets, or checks the headers of inbound packets.
 * Returns 0 and changes nothing unless all of them are simple IPv4 packets in a tunnel. */
GW_AVX512 gw_u32 gw_avx512_fill_simple(gw_avx512_group *group, gw_avx512_batch *batch,
                                       gw_native_operation operation)
{
    if (operation.suite.protocol != GW_IPSEC_ESP) {
        return 0;
    }
    if (operation.outbound) {
        return gw_avx512_fill_outbound(group, batch, operation);
    }
    return gw_avx512_fill_inbound(group, batch, operation);
}

/* Takes the next packets from the batch and writes or checks their headers. Stops at sixteen
 * packets that need cryptography, or at the end of the batch. */
GW_AVX512 void gw_avx512_fill(gw_avx512_group *group, gw_avx512_batch *batch,
                              gw_native_operation operation)
{
    const gw_bin_call *call = batch->call;
    gw_u32 started = 0;
    gw_avx512_prefetch_upcoming(batch, GW_AVX512_LANES);
    if (gw_avx512_fill_simple(group, batch, operation)) {
        gw_avx512_load_upcoming(batch);
        return;
    }
    group->simple = 0;
    while (started < GW_AVX512_LANES && batch->next < batch->count) {
        gw_native_packet *packet = &group->slots[started];
        packet->index = batch->order[batch->next++];
        packet->ah = operation.suite.protocol == GW_IPSEC_AH ? &group->ahs[started] : 0;
        const gw_u32 index = batch->first + packet->index;
        const gw_lane lane = gw_native_lane(call, index);
        started += gw_native_begin(packet, &lane, operation, &call->descriptors[index],
                                   &call->outcomes[index]);
    }
    gw_avx512_load_upcoming(batch);
    group->count = started;
    if (started != 0) {
        gw_avx512_group_link(group);
        gw_avx512_group_gather(group);
        group->same_length = gw_avx512_same_length(group);
    }
}

GW_AVX512 void gw_avx512_finish_group(gw_avx512_group *group, const gw_avx512_batch *batch,
                                      gw_native_operation operation)
{
    const gw_bin_call *call = batch->call;
    const gw_u32 all = gw_avx512_first_lanes(group->count);
    gw_u32 done = 0;
    if (all != 0 && group->simple) {
        done = operation.outbound ? all
                                  : gw_avx512_simple_decapsulate_end(group, batch, operation.suite);
    }
    if (done != all && group->simple) {
        gw_avx512_fill_slots(group, batch, operation.suite);
    }
    for (gw_u32 left = all & ~done; left != 0; left &= left - 1) {
        const gw_u32 i = (gw_u32)__builtin_ctz(left);
        const gw_u32 index = batch->first + group->slots[i].index;
        gw_descriptor *descriptor = &call->descriptors[index];
        const gw_lane lane = gw_native_lane(call, index);
        gw_native_finish(&group->slots[i], &lane, operation, descriptor, &call->outcomes[index]);
    }
    group->count = 0;
}

GW_AVX512 void gw_avx512_ghash(gw_avx512_group *group, gw_avx512_batch *batch, gw_gcm_shape *shape,
                               gw_native_operation operation)
{
    const gw_u32 wrong = gw_gcm_run_group(group, batch, shape, operation.suite, operation.outbound);
    if (wrong == 0) {
        return;
    }
    if (group->simple) {
        gw_avx512_fill_slots(group, batch, operation.suite);
    }
    for (gw_u32 i = 0; i < group->count; i++) {
        group->slots[i].authentic = (wrong >> i & 1u) == 0;
    }
}

/* Computes the tags of a group with an algorithm that is not interleaved with a cipher. */
static __attribute__((noinline)) void
gw_avx512_other_tags(const gw_avx512_group *group, gw_u32 auth, gw_ipsec_tag tags[GW_AVX512_LANES])
{
    if (auth == GW_IPSEC_AUTH_SHA384 || auth == GW_IPSEC_AUTH_SHA512) {
        gw_avx512_sha512_tags(group, auth, tags);
    } else {
        gw_avx512_mac_tags(group, tags);
    }
}

/* Encrypts or decrypts one group of sixteen packets while it hashes another group. Either group may
 * be empty. */
GW_AVX512 void gw_avx512_run_groups(gw_avx512_group *to_cipher, gw_avx512_group *to_hash,
                                    gw_native_operation operation)
{
    gw_avx512_hash hash;
    gw_avx512_cipher cipher;
    const gw_u32 mode = gw_avx512_mode(operation.suite, operation.outbound);
    const gw_u32 state_words = gw_avx512_state_words(operation.suite);
    hash.step = 0;
    hash.steps = 0;
    cipher.offset = 0;
    cipher.lanes.longest = 0;
    if (to_cipher->count != 0 && mode != GW_AVX512_NONE) {
        gw_avx512_group_cipher(&cipher, to_cipher, operation.suite, mode);
    }
    if (to_hash->count != 0 && state_words != 0) {
        gw_avx512_group_hash(&hash, to_hash, state_words);
    }
    gw_avx512_runner_of(state_words, mode)(&hash, &cipher);
    if (hash.steps != 0) {
        gw_ipsec_tag tags[GW_AVX512_LANES];
        gw_avx512_hash_tags(&hash, tags);
        gw_avx512_apply_tags(tags, to_hash, operation.suite, operation.outbound);
    } else if (to_hash->count != 0 && operation.suite.auth != GW_IPSEC_AUTH_NONE) {
        gw_ipsec_tag tags[GW_AVX512_LANES];
        gw_avx512_other_tags(to_hash, operation.suite.auth, tags);
        gw_avx512_apply_tags(tags, to_hash, operation.suite, operation.outbound);
    }
}

/*
 * Processes a packet batch in groups of sixteen. Groups with GCM or ChaCha20, and groups of equally
 * long packets with CBC and HMAC, do not overlap. Other groups overlap. An outbound group is
 * encrypted while the previous group is hashed, and an inbound group is hashed while the previous
 * group is decrypted.
 */
GW_AVX512 void gw_avx512_batch_run(gw_avx512_batch *batch, gw_native_operation operation)
{
    gw_avx512_group groups[2];
    gw_gcm_shape shape;
    gw_u32 side = 0;
    shape.id = ~0u;
    groups[1].count = 0;
    do {
        gw_avx512_group *now = &groups[side];
        gw_avx512_group *before = &groups[side ^ 1];
        gw_avx512_fill(now, batch, operation);
        if (now->count != 0 && operation.suite.auth == GW_IPSEC_AUTH_GHASH) {
            gw_avx512_ghash(now, batch, &shape, operation);
            gw_avx512_finish_group(now, batch, operation);
        } else if (now->count != 0 && operation.suite.auth == GW_IPSEC_AUTH_POLY1305) {
            gw_avx512_chacha_group(now, batch, operation.outbound);
            gw_avx512_finish_group(now, batch, operation);
        } else if (now->count != 0 && now->same_length && gw_avx512_is_cbc_hmac(operation)) {
            const gw_u32 state_words = gw_avx512_state_words(operation.suite);
            if (operation.outbound) {
                gw_avx512_cbc_hmac_encrypt(now, batch, operation.suite, state_words);
            } else {
                gw_avx512_cbc_hmac_decrypt(now, batch, operation.suite, state_words);
            }
            gw_avx512_finish_group(now, batch, operation);
        } else if (now->count != 0 || before->count != 0) {
            gw_avx512_run_groups(operation.outbound ? now : before,
                                 operation.outbound ? before : now, operation);
            gw_avx512_finish_group(before, batch, operation);
            side ^= 1;
        }
    } while (batch->next < batch->count || groups[side ^ 1].count != 0);
}

GW_AVX512 void gw_avx512_bin_operation(const gw_bin_call *call, gw_native_operation operation)
{
    gw_avx512_batch batch;
    batch.call = call;
    for (batch.first = 0; batch.first < call->count; batch.first += GW_NATIVE_BATCH) {
        const gw_u32 left = call->count - batch.first;
        batch.count = left < GW_NATIVE_BATCH ? left : GW_NATIVE_BATCH;
        batch.next = 0;
        batch.consecutive =
            gw_native_sort(call->descriptors + batch.first, batch.count, batch.order);
        gw_avx512_load_upcoming(&batch);
        gw_avx512_batch_run(&batch, operation);
    }
}

static __attribute__((noinline)) void gw_avx512_bin_ah(const gw_bin_call *call,
                                                       gw_native_operation operation)
{
    operation.suite.protocol = GW_IPSEC_AH;
    gw_avx512_bin_operation(call, operation);
}

static __attribute__((noinline)) void gw_avx512_bin_outbound(const gw_bin_call *call,
                                                             gw_native_operation operation)
{
    operation.suite.protocol = GW_IPSEC_ESP;
    operation.outbound = 1;
    gw_avx512_bin_operation(call, operation);
}

static __attribute__((noinline)) void gw_avx512_bin_inbound(const gw_bin_call *call,
                                                            gw_native_operation operation)
{
    operation.suite.protocol = GW_IPSEC_ESP;
    operation.outbound = 0;
    gw_avx512_bin_operation(call, operation);
}

static void gw_avx512_bin(const gw_bin_call *call)
{
    const gw_native_operation operation = {gw_ipsec_suite_of(call->variant),
                                           gw_ipsec_direction(call->variant) == GW_IPSEC_OUTBOUND};
    if (operation.suite.protocol == GW_IPSEC_AH) {
        gw_avx512_bin_ah(call, operation);
    } else if (operation.outbound) {
        gw_avx512_bin_outbound(call, operation);
    } else {
        gw_avx512_bin_inbound(call, operation);
    }
}

#endif
