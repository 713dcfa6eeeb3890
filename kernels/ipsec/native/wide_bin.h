/* Whole bins of ipsec, sixteen packets at a time. */
#ifndef GODWIT_IPSEC_WIDE_BIN_H
#define GODWIT_IPSEC_WIDE_BIN_H

#include "wide_group.h"

/* Packets that are begun together, and then sorted by length. */
#define GW_WIDE_BATCH 256u

/* Classes of 64 bytes that packets are sorted by; what is longer than all shares the last. */
#define GW_WIDE_CLASSES 64u

GW_WIDE gw_u32 gw_wide_class(const gw_wide_packet *packet)
{
    const gw_u32 class = packet->text_bytes / GW_WIDE_ROW_BYTES;
    return class < GW_WIDE_CLASSES ? class : GW_WIDE_CLASSES - 1;
}

/* The order of a batch by length, so that the lanes of a group end together. */
GW_WIDE void gw_wide_sort(const gw_wide_packet *packets, gw_u32 count, gw_u16 *order)
{
    gw_u16 places[GW_WIDE_CLASSES + 1] = {0};
    for (gw_u32 i = 0; i < count; i++) {
        places[gw_wide_class(&packets[i]) + 1]++;
    }
    for (gw_u32 i = 0; i < GW_WIDE_CLASSES; i++) {
        places[i + 1] = (gw_u16)(places[i + 1] + places[i]);
    }
    for (gw_u32 i = 0; i < count; i++) {
        order[places[gw_wide_class(&packets[i])]++] = (gw_u16)i;
    }
}

/* Sixteen packets of a batch from place `first` of its order on. */
GW_WIDE void gw_wide_group_of(gw_wide_group *group, gw_wide_packet *packets, const gw_u16 *order,
                              gw_u32 first, gw_u32 count)
{
    group->count = count - first < GW_WIDE_LANES ? count - first : GW_WIDE_LANES;
    for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
        const gw_u32 place = i < group->count ? first + i : first + group->count - 1;
        group->packets[i] = &packets[order[place]];
        group->sas.sa[i] = group->packets[i]->found.sa;
    }
}

/* A group after the other. */
static void gw_wide_batch_gcm(gw_wide_packet *packets, gw_u32 count, gw_u32 variant)
{
    gw_u16 order[GW_WIDE_BATCH];
    gw_wide_sort(packets, count, order);
    for (gw_u32 first = 0; first < count; first += GW_WIDE_LANES) {
        gw_wide_group group;
        gw_wide_group_of(&group, packets, order, first, count);
        gw_wide_gcm_of(&group, gw_ipsec_suite_of(variant),
                       gw_ipsec_direction(variant) == GW_IPSEC_OUTBOUND);
    }
}

/* Outbound, a group is encrypted while the one before it is hashed; inbound, what is authentic of
 * a group is decrypted while the one behind it is hashed. */
static void gw_wide_batch(gw_wide_packet *packets, gw_u32 count, gw_u32 variant)
{
    gw_u16 order[GW_WIDE_BATCH];
    gw_wide_group groups[2];
    gw_wide_hash hash;
    gw_wide_cipher cipher;
    const gw_ipsec_suite suite = gw_ipsec_suite_of(variant);
    const gw_u32 outbound = gw_ipsec_direction(variant) == GW_IPSEC_OUTBOUND;
    const gw_u32 mode = gw_wide_mode(suite, outbound);
    const gw_u32 state_words = gw_wide_state_words(suite);
    gw_wide_runner *run = gw_wide_runner_of(state_words, mode);
    gw_wide_sort(packets, count, order);
    for (gw_u32 first = 0, side = 0; first < count + GW_WIDE_LANES;
         first += GW_WIDE_LANES, side ^= 1) {
        gw_wide_group *now = &groups[side];
        gw_wide_group *before = &groups[side ^ 1];
        gw_wide_group *to_hash = outbound ? before : now;
        gw_wide_group *to_cipher = outbound ? now : before;
        hash.step = 0;
        hash.steps = 0;
        cipher.offset = 0;
        cipher.lanes.longest = 0;
        now->count = 0;
        if (first == 0) {
            before->count = 0;
        }
        if (first < count) {
            gw_wide_group_of(now, packets, order, first, count);
        }
        if (to_cipher->count != 0 && mode != GW_WIDE_NONE) {
            gw_wide_cipher_of(&cipher, to_cipher, suite, mode);
        }
        if (to_hash->count != 0 && state_words != 0) {
            gw_wide_hash_of(&hash, to_hash, state_words);
        }
        run(&hash, &cipher);
        if (hash.steps != 0) {
            gw_ipsec_tag tags[GW_WIDE_LANES];
            gw_wide_hash_tags(&hash, tags);
            gw_wide_tags_of(tags, to_hash, suite, outbound);
        }
    }
}

/* Fetches what comes soon: the frame, then the SA. */
GW_WIDE void gw_wide_ahead(const gw_bin_call *call, gw_u32 i)
{
    gw_lane ahead = {.image = call->image, .variant = call->variant};
    if (i + 2 * GW_AHEAD < call->count) {
        const gw_descriptor *far = &call->descriptors[i + 2 * GW_AHEAD];
        __builtin_prefetch(call->arena + (gw_u64)far->window * GW_WINDOW_UNIT + far->head);
    }
    if (i + GW_AHEAD < call->count) {
        const gw_descriptor *near = &call->descriptors[i + GW_AHEAD];
        ahead.window = call->arena + (gw_u64)near->window * GW_WINDOW_UNIT;
        ahead.parameter = call->parameters[i + GW_AHEAD];
        gw_ipsec_touch(&ahead, near);
    }
}

GW_WIDE gw_lane gw_wide_lane(const gw_bin_call *call, gw_u32 index)
{
    gw_lane lane = {.image = call->image, .variant = call->variant};
    lane.window = call->arena + (gw_u64)call->descriptors[index].window * GW_WINDOW_UNIT;
    lane.parameter = call->parameters[index];
    return lane;
}

static void gw_wide_bin(const gw_bin_call *call)
{
    gw_wide_packet packets[GW_WIDE_BATCH];
    gw_u32 begun = 0;
    for (gw_u32 i = 0; i < GW_AHEAD && i < call->count; i++) {
        const gw_lane lane = gw_wide_lane(call, i);
        gw_ipsec_touch(&lane, &call->descriptors[i]);
    }
    for (gw_u32 i = 0; i < call->count; i++) {
        gw_wide_ahead(call, i);
        const gw_lane lane = gw_wide_lane(call, i);
        packets[begun].index = i;
        begun += gw_wide_begin(&packets[begun], &lane, &call->descriptors[i], &call->outcomes[i]);
        if (begun == GW_WIDE_BATCH || (i + 1 == call->count && begun != 0)) {
            if (gw_ipsec_suite_of(call->variant).auth == GW_IPSEC_AUTH_GHASH) {
                gw_wide_batch_gcm(packets, begun, call->variant);
            } else {
                gw_wide_batch(packets, begun, call->variant);
            }
            for (gw_u32 k = 0; k < begun; k++) {
                const gw_u32 index = packets[k].index;
                const gw_lane its = gw_wide_lane(call, index);
                gw_wide_finish(&packets[k], &its, &call->descriptors[index],
                               &call->outcomes[index]);
            }
            begun = 0;
        }
    }
}

#endif
