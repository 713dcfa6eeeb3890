/* Packets of a bin, in the order in which they are worked on. */
#ifndef GODWIT_IPSEC_WIDE_BATCH_H
#define GODWIT_IPSEC_WIDE_BATCH_H

#include "wide.h"

/* Packets that are sorted together. */
#define GW_WIDE_BATCH 256u

/* Classes that packets are sorted by; what is longer than all shares the last. */
#define GW_WIDE_CLASSES 128u

/* Frames of a class hold equally many blocks of 16 bytes, if they are IP in Ethernet and no more.
 */
GW_WIDE gw_u32 gw_wide_class(const gw_descriptor *descriptor)
{
    const gw_u32 class = (descriptor->length + 3u) / 16;
    return class < GW_WIDE_CLASSES ? class : GW_WIDE_CLASSES - 1;
}

/* The order of a batch by length, so that the lanes of a group end together. Returns whether they
 * are in it as they come. */
GW_WIDE gw_u32 gw_wide_sort(const gw_descriptor *descriptors, gw_u32 count, gw_u16 *order)
{
    const gw_u32 first = gw_wide_class(&descriptors[0]);
    gw_u32 difference = 0;
    for (gw_u32 i = 0; i < count; i++) {
        difference |= gw_wide_class(&descriptors[i]) ^ first;
        order[i] = (gw_u16)i;
    }
    if (difference == 0) {
        return 1;
    }
    gw_u16 places[GW_WIDE_CLASSES + 1] = {0};
    for (gw_u32 i = 0; i < count; i++) {
        places[gw_wide_class(&descriptors[i]) + 1]++;
    }
    for (gw_u32 i = 0; i < GW_WIDE_CLASSES; i++) {
        places[i + 1] = (gw_u16)(places[i + 1] + places[i]);
    }
    for (gw_u32 i = 0; i < count; i++) {
        order[places[gw_wide_class(&descriptors[i])]++] = (gw_u16)i;
    }
    return 0;
}

/* What the host says of up to sixteen packets that come next; lanes that are left do what the last
 * one does. */
typedef struct gw_wide_coming {
    gw_u8 *frame[GW_WIDE_LANES] __attribute__((aligned(64)));
    gw_u32 index[GW_WIDE_LANES] __attribute__((aligned(64))); /* in the bin */
    gw_u32 place[GW_WIDE_LANES] __attribute__((aligned(64))); /* descriptor: length << 16 | head */
    gw_u32 room[GW_WIDE_LANES] __attribute__((aligned(64)));
    gw_u32 numbers[2][GW_WIDE_LANES] __attribute__((aligned(64))); /* the sequence's halves */
    gw_wide_sas sas;
    gw_u32 count;   /* 0: none, or not all have an SA */
    gw_u32 fetched; /* so many of them */
} gw_wide_coming;

/* A batch under way. */
typedef struct gw_wide_batch {
    const gw_bin_call *call;
    gw_u32 first; /* packet of the bin */
    gw_u32 count;
    gw_u32 next;   /* place in `order` of the packet to begin next */
    gw_u32 in_row; /* `order` is that of the bin */
    gw_u16 order[GW_WIDE_BATCH];
    gw_wide_coming coming;
} gw_wide_batch;

GW_WIDE gw_lane gw_wide_lane(const gw_bin_call *call, gw_u32 index)
{
    gw_lane lane = {.image = call->image, .variant = call->variant};
    lane.buffer = call->arena + (gw_u64)call->descriptors[index].buffer * GW_BUFFER_UNIT;
    lane.parameter = call->parameters[index];
    return lane;
}

/* Fetches for up to so many packets more what they will need, of the sixteen that come next: a
 * packet's beginning with what comes in front, and its SA. The second cache is asked while the
 * group at hand is worked on, and not for all of them at once. */
GW_WIDE void gw_wide_ahead(gw_wide_batch *batch, gw_u32 packets)
{
    gw_wide_coming *coming = &batch->coming;
    gw_u32 end = coming->fetched + packets;
    end = end < coming->count ? end : coming->count;
    for (gw_u32 i = coming->fetched; i < end; i++) {
        const gw_u8 *frame = coming->frame[i];
        const gw_u8 *sa = (const gw_u8 *)coming->sas.sa[i];
        __builtin_prefetch(frame - GW_WIDE_ROW_BYTES);
        __builtin_prefetch(frame);
        __builtin_prefetch(frame + GW_WIDE_ROW_BYTES);
        GW_WIDE_UNROLL
        for (gw_u32 at = 0; at < sizeof(gw_ipsec_sa); at += GW_WIDE_ROW_BYTES) {
            __builtin_prefetch(sa + at);
        }
    }
    coming->fetched = end;
}

#endif
