/* Whole bins of ipsec, sixteen packets at a time. */
#ifndef GODWIT_IPSEC_WIDE_BIN_H
#define GODWIT_IPSEC_WIDE_BIN_H

#include "wide_chacha.h"
#include "wide_gcm_group.h"
#include "wide_next.h"
#include "wide_plain_leave.h"

/* Whether even groups of a suite go by themselves. */
GW_WIDE gw_u32 gw_wide_goes_even(gw_wide_form form)
{
    return form.suite.cipher == GW_IPSEC_CIPHER_CBC && gw_wide_state_words(form.suite) != 0;
}

/* Places that a plain group's transforms ask for, outbound. */
GW_WIDE gw_u32 gw_wide_places(gw_wide_form form, gw_u32 even, gw_u32 count)
{
    if (form.suite.auth == GW_IPSEC_AUTH_GHASH) {
        return 0;
    }
    return even && gw_wide_goes_even(form) ? 1 : count;
}

/* The group is these. */
GW_WIDE void gw_wide_plain_filled(gw_wide_group *group, gw_wide_batch *batch,
                                  const gw_wide_plain *plain, gw_u32 count)
{
    const __m512i places = _mm512_min_epu32(gw_wide_lane_numbers(), gw_wide_set(count - 1));
    const __m512i offset = _mm512_mullo_epi32(places, gw_wide_set(sizeof(group->places[0])));
    batch->next += count;
    group->count = count;
    group->plain = 1;
    gw_wide_addresses(group->packets, group->places, gw_wide_long(offset, 0),
                      gw_wide_long(offset, 1));
    group->even = plain->even;
    group->icv_bytes = plain->icv_bytes;
    group->extended = plain->extended;
    group->sas = plain->coming->sas;
    for (gw_u32 half = 0; half < 2; half++) {
        _mm512_store_si512(group->numbers[half], _mm512_load_si512(plain->coming->numbers[half]));
    }
    _mm512_store_si512(group->spi, _mm512_load_si512(plain->spi));
    _mm512_store_si512(group->data_bytes, _mm512_load_si512(plain->data_bytes));
}

/* Writes the padding of all packets. */
GW_WIDE void gw_wide_plain_pad(const gw_wide_plain *plain, gw_u32 count)
{
    gw_u8 *const *frame = plain->coming->frame;
    const gw_u32 first_bytes = plain->total_bytes[0];
    const gw_u32 first_pad_bytes = plain->data_bytes[0] - GW_ESP_TAIL_BYTES - first_bytes;
    gw_wide_padding padding = gw_wide_pad_of(first_pad_bytes);
    if (plain->even && gw_wide_same(_mm512_load_si512(plain->total_bytes))) {
        /* Lanes that are left do what the last one does. */
        GW_WIDE_UNROLL
        for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
            _mm256_mask_storeu_epi8(frame[i] + GW_ETHERNET_BYTES + first_bytes, padding.mask,
                                    padding.all);
        }
        return;
    }
    for (gw_u32 i = 0; i < count; i++) {
        const gw_u32 total_bytes = plain->total_bytes[i];
        const gw_u32 pad_bytes = plain->data_bytes[i] - GW_ESP_TAIL_BYTES - total_bytes;
        if (pad_bytes != padding.bytes) {
            padding = gw_wide_pad_of(pad_bytes);
        }
        _mm256_mask_storeu_epi8(frame[i] + GW_ETHERNET_BYTES + total_bytes, padding.mask,
                                padding.all);
    }
}

/* Begins up to sixteen packets at once, outbound; returns 0 where they are not alike: nothing is
 * done then. */
GW_WIDE gw_u32 gw_wide_fill_seal(gw_wide_group *group, gw_wide_batch *batch, gw_wide_form form)
{
    const gw_bin_call *call = batch->call;
    gw_wide_coming *coming = &batch->coming;
    gw_wide_plain plain;
    const gw_u32 count = coming->count;
    plain.coming = coming;
    if (count == 0 || !gw_wide_plain_seal(&plain, call->variant, form.suite)) {
        return 0;
    }
    const gw_u32 front = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(form.suite);
    const gw_u32 filled = gw_wide_places(form, plain.even, count);
    for (gw_u32 i = 0; i < filled; i++) {
        gw_wide_packet *packet = &group->places[i];
        gw_u8 *inner = coming->frame[i] + GW_ETHERNET_BYTES;
        packet->found.sa = coming->sas.sa[i];
        packet->text = inner - front;
        packet->data = inner;
        packet->sequence = (gw_u64)coming->numbers[0][i] << 32 | coming->numbers[1][i];
        packet->data_bytes = plain.data_bytes[i];
        packet->text_bytes = front + plain.data_bytes[i];
        packet->authentic = 1;
    }
    gw_wide_plain_pad(&plain, count);
    gw_wide_plain_said(batch, coming->index, _mm512_load_si512(coming->place),
                       _mm512_load_si512(plain.spi), count, GW_IPSEC_ENCRYPTED);
    gw_wide_move(group->data, coming->frame, GW_ETHERNET_BYTES);
    gw_wide_plain_filled(group, batch, &plain, count);
    return 1;
}

/* The same inbound. */
GW_WIDE gw_u32 gw_wide_fill_open(gw_wide_group *group, gw_wide_batch *batch, gw_wide_form form)
{
    gw_wide_coming *coming = &batch->coming;
    gw_wide_plain plain;
    const gw_u32 count = coming->count;
    plain.coming = coming;
    if (count == 0 || !gw_wide_plain_open(&plain, batch->call, form.suite)) {
        return 0;
    }
    const gw_u32 around = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(form.suite);
    group->for_any = plain.for_any;
    group->placed = 0;
    _mm512_store_si512(group->index, _mm512_load_si512(coming->index));
    _mm512_store_si512(group->place, _mm512_load_si512(coming->place));
    _mm512_store_si512(group->ecn, plain.ecn);
    gw_wide_move(group->data, coming->frame, GW_ETHERNET_BYTES + around);
    gw_wide_plain_filled(group, batch, &plain, count);
    if (form.suite.auth != GW_IPSEC_AUTH_GHASH) {
        gw_wide_place_open(group, batch, form.suite);
    }
    return 1;
}

/* Begins packets that are alike at once; returns 0 where they are not: nothing is done then. */
GW_WIDE gw_u32 gw_wide_fill_plain(gw_wide_group *group, gw_wide_batch *batch, gw_wide_form form)
{
    if (form.suite.protocol != GW_IPSEC_ESP) {
        return 0;
    }
    if (form.outbound) {
        return gw_ipsec_iv_bytes(form.suite) != 0 && gw_wide_fill_seal(group, batch, form);
    }
    return gw_wide_fill_open(group, batch, form);
}

/* Begins packets until there are sixteen that have more to do, or no more of the batch. */
GW_WIDE void gw_wide_fill(gw_wide_group *group, gw_wide_batch *batch, gw_wide_form form)
{
    const gw_bin_call *call = batch->call;
    gw_u32 begun = 0;
    gw_wide_ahead(batch, GW_WIDE_LANES);
    if (gw_wide_fill_plain(group, batch, form)) {
        gw_wide_look(batch);
        return;
    }
    group->plain = 0;
    while (begun < GW_WIDE_LANES && batch->next < batch->count) {
        gw_wide_packet *packet = &group->places[begun];
        packet->index = batch->order[batch->next++];
        packet->ah = form.suite.protocol == GW_IPSEC_AH ? &group->ahs[begun] : 0;
        const gw_u32 index = batch->first + packet->index;
        const gw_lane lane = gw_wide_lane(call, index);
        begun +=
            gw_wide_begin(packet, &lane, form, &call->descriptors[index], &call->outcomes[index]);
    }
    gw_wide_look(batch);
    group->count = begun;
    if (begun != 0) {
        gw_wide_group_filled(group);
        gw_wide_group_numbers(group);
        group->even = gw_wide_even(group);
    }
}

/* What is left to do with a group whose transforms are done. */
GW_WIDE void gw_wide_settle(gw_wide_group *group, const gw_wide_batch *batch, gw_wide_form form)
{
    const gw_bin_call *call = batch->call;
    const gw_u32 done = group->count != 0 && group->plain &&
                        (form.outbound || gw_wide_plain_leave_all(group, batch, form.suite));
    if (!done && group->plain) {
        gw_wide_place_open(group, batch, form.suite);
    }
    for (gw_u32 i = 0; i < group->count && !done; i++) {
        const gw_u32 index = batch->first + group->places[i].index;
        gw_descriptor *descriptor = &call->descriptors[index];
        if (!form.outbound && group->plain &&
            gw_wide_plain_leave(&group->places[i], call, form.suite, descriptor,
                                &call->outcomes[index])) {
            continue;
        }
        const gw_lane lane = gw_wide_lane(call, index);
        gw_wide_finish(&group->places[i], &lane, form, descriptor, &call->outcomes[index]);
    }
    group->count = 0;
}

/* A group through GCM or GMAC. */
GW_WIDE void gw_wide_ghash(gw_wide_group *group, gw_wide_batch *batch, gw_gcm_shape *shape,
                           gw_wide_form form)
{
    const gw_u32 wrong = gw_gcm_of(group, batch, shape, form.suite, form.outbound);
    if (wrong == 0) {
        return;
    }
    if (group->plain) {
        gw_wide_place_open(group, batch, form.suite);
    }
    for (gw_u32 i = 0; i < group->count; i++) {
        group->places[i].authentic = (wrong >> i & 1u) == 0;
    }
}

/* The cipher and the hash of two groups, or of one. */
GW_WIDE void gw_wide_both(gw_wide_group *to_cipher, gw_wide_group *to_hash, gw_wide_form form)
{
    gw_wide_hash hash;
    gw_wide_cipher cipher;
    const gw_u32 mode = gw_wide_mode(form.suite, form.outbound);
    const gw_u32 state_words = gw_wide_state_words(form.suite);
    hash.step = 0;
    hash.steps = 0;
    cipher.offset = 0;
    cipher.lanes.longest = 0;
    if (to_cipher->count != 0 && mode != GW_WIDE_NONE) {
        gw_wide_cipher_of(&cipher, to_cipher, form.suite, mode);
    }
    if (to_hash->count != 0 && state_words != 0) {
        gw_wide_hash_of(&hash, to_hash, state_words);
    }
    gw_wide_runner_of(state_words, mode)(&hash, &cipher);
    if (hash.steps != 0) {
        gw_ipsec_tag tags[GW_WIDE_LANES];
        gw_wide_hash_tags(&hash, tags);
        gw_wide_tags_of(tags, to_hash, form.suite, form.outbound);
    }
}

/*
 * Groups of one length by themselves. Of others, outbound, a group is encrypted while the one
 * before it is hashed; inbound, what is authentic of a group is decrypted while the one behind it
 * is hashed.
 */
GW_WIDE void gw_wide_batch_run(gw_wide_batch *batch, gw_wide_form form)
{
    gw_wide_group groups[2];
    gw_gcm_shape shape;
    gw_u32 side = 0;
    shape.is = ~0u;
    groups[1].count = 0;
    do {
        gw_wide_group *now = &groups[side];
        gw_wide_group *before = &groups[side ^ 1];
        gw_wide_fill(now, batch, form);
        if (now->count != 0 && form.suite.auth == GW_IPSEC_AUTH_GHASH) {
            gw_wide_ghash(now, batch, &shape, form);
            gw_wide_settle(now, batch, form);
        } else if (now->count != 0 && form.suite.auth == GW_IPSEC_AUTH_POLY1305) {
            gw_wide_chacha_of(now, batch, form.outbound);
            gw_wide_settle(now, batch, form);
        } else if (now->count != 0 && now->even && gw_wide_goes_even(form)) {
            const gw_u32 state_words = gw_wide_state_words(form.suite);
            if (form.outbound) {
                gw_wide_even_seal(now, batch, form.suite, state_words);
            } else {
                gw_wide_even_open(now, batch, form.suite, state_words);
            }
            gw_wide_settle(now, batch, form);
        } else if (now->count != 0 || before->count != 0) {
            gw_wide_both(form.outbound ? now : before, form.outbound ? before : now, form);
            gw_wide_settle(before, batch, form);
            side ^= 1;
        }
    } while (batch->next < batch->count || groups[side ^ 1].count != 0);
}

GW_WIDE void gw_wide_bin_of(const gw_bin_call *call, gw_wide_form form)
{
    gw_wide_batch batch;
    batch.call = call;
    for (batch.first = 0; batch.first < call->count; batch.first += GW_WIDE_BATCH) {
        const gw_u32 left = call->count - batch.first;
        batch.count = left < GW_WIDE_BATCH ? left : GW_WIDE_BATCH;
        batch.next = 0;
        batch.in_row = gw_wide_sort(call->descriptors + batch.first, batch.count, batch.order);
        gw_wide_look(&batch);
        gw_wide_batch_run(&batch, form);
    }
}

static __attribute__((noinline)) void gw_wide_bin_ah(const gw_bin_call *call, gw_wide_form form)
{
    form.suite.protocol = GW_IPSEC_AH;
    gw_wide_bin_of(call, form);
}

static __attribute__((noinline)) void gw_wide_bin_seal(const gw_bin_call *call, gw_wide_form form)
{
    form.suite.protocol = GW_IPSEC_ESP;
    form.outbound = 1;
    gw_wide_bin_of(call, form);
}

static __attribute__((noinline)) void gw_wide_bin_open(const gw_bin_call *call, gw_wide_form form)
{
    form.suite.protocol = GW_IPSEC_ESP;
    form.outbound = 0;
    gw_wide_bin_of(call, form);
}

static void gw_wide_bin(const gw_bin_call *call)
{
    const gw_wide_form form = {gw_ipsec_suite_of(call->variant),
                               gw_ipsec_direction(call->variant) == GW_IPSEC_OUTBOUND};
    if (form.suite.protocol == GW_IPSEC_AH) {
        gw_wide_bin_ah(call, form);
    } else if (form.outbound) {
        gw_wide_bin_seal(call, form);
    } else {
        gw_wide_bin_open(call, form);
    }
}

#endif
