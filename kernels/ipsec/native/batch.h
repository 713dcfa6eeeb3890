/* Sorts up to 256 packets for the same function by length. All native forms use this code. */
#ifndef GODWIT_IPSEC_NATIVE_BATCH_H
#define GODWIT_IPSEC_NATIVE_BATCH_H

#include "packet.h"

/* Maximum number of packets in a batch. */
#define GW_NATIVE_BATCH 256u

/* Number of length classes for sorting packets. The last class contains all longer packets. */
#define GW_NATIVE_CLASSES 128u

/* Returns the length class of a frame. In each class, untagged IP packets have the same number of
 * 16-byte blocks. */
GW_NATIVE gw_u32 gw_native_length_class(const gw_descriptor *descriptor)
{
    const gw_u32 length_class = (descriptor->length + 3u) / 16;
    return length_class < GW_NATIVE_CLASSES ? length_class : GW_NATIVE_CLASSES - 1;
}

/* Sorts a packet batch by length class, so that packets that are processed together also end
 * together. Returns 1 if all packets are in the same class and keep their order. */
GW_NATIVE gw_u32 gw_native_sort(const gw_descriptor *descriptors, gw_u32 count, gw_u16 *order)
{
    const gw_u32 first = gw_native_length_class(&descriptors[0]);
    gw_u32 difference = 0;
    for (gw_u32 i = 0; i < count; i++) {
        difference |= gw_native_length_class(&descriptors[i]) ^ first;
        order[i] = (gw_u16)i;
    }
    if (difference == 0) {
        return 1;
    }
    gw_u16 starts[GW_NATIVE_CLASSES + 1] = {0};
    for (gw_u32 i = 0; i < count; i++) {
        starts[gw_native_length_class(&descriptors[i]) + 1]++;
    }
    for (gw_u32 i = 0; i < GW_NATIVE_CLASSES; i++) {
        starts[i + 1] = (gw_u16)(starts[i + 1] + starts[i]);
    }
    for (gw_u32 i = 0; i < count; i++) {
        order[starts[gw_native_length_class(&descriptors[i])]++] = (gw_u16)i;
    }
    return 0;
}

GW_NATIVE gw_lane gw_native_lane(const gw_bin_call *call, gw_u32 index)
{
    gw_lane lane = {.image = call->image, .variant = call->variant};
    lane.buffer = call->arena + (gw_u64)call->descriptors[index].buffer * GW_BUFFER_UNIT;
    lane.parameter = call->parameters[index];
    return lane;
}

#endif
