/* Sorts up to 256 packets for the same function by length. */
#ifndef GODWIT_IPSEC_AVX512_BATCH_H
#define GODWIT_IPSEC_AVX512_BATCH_H

#include "avx512.h"

/* Maximum number of packets in a batch. */
#define GW_AVX512_BATCH 256u

/* Number of length classes for sorting packets. The last class contains all longer packets. */
#define GW_AVX512_CLASSES 128u

/* Returns the length class of a frame. In each class, untagged IP packets have the same number of
 * 16-byte blocks. */
GW_AVX512 gw_u32 gw_avx512_length_class(const gw_descriptor *descriptor)
{
    const gw_u32 length_class = (descriptor->length + 3u) / 16;
    return length_class < GW_AVX512_CLASSES ? length_class : GW_AVX512_CLASSES - 1;
}

/* Sorts a packet batch by length class, so that packets that are processed together also end
 * together. Returns 1 if all packets are in the same class and keep their order. */
GW_AVX512 gw_u32 gw_avx512_sort(const gw_descriptor *descriptors, gw_u32 count, gw_u16 *order)
{
    const gw_u32 first = gw_avx512_length_class(&descriptors[0]);
    gw_u32 difference = 0;
    for (gw_u32 i = 0; i < count; i++) {
        difference |= gw_avx512_length_class(&descriptors[i]) ^ first;
        order[i] = (gw_u16)i;
    }
    if (difference == 0) {
        return 1;
    }
    gw_u16 starts[GW_AVX512_CLASSES + 1] = {0};
    for (gw_u32 i = 0; i < count; i++) {
        starts[gw_avx512_length_class(&descriptors[i]) + 1]++;
    }
    for (gw_u32 i = 0; i < GW_AVX512_CLASSES; i++) {
        starts[i + 1] = (gw_u16)(starts[i + 1] + starts[i]);
    }
    for (gw_u32 i = 0; i < count; i++) {
        order[starts[gw_avx512_length_class(&descriptors[i])]++] = (gw_u16)i;
    }
    return 0;
}

/* Descriptors, parameters and SAs of the next packets, at most sixteen. Unused SIMD lanes repeat
 * the last packet. */
typedef struct gw_avx512_upcoming {
    gw_u8 *frame[GW_AVX512_LANES] __attribute__((aligned(64)));
    gw_u32 index[GW_AVX512_LANES] __attribute__((aligned(64)));       /* indices in the batch */
    gw_u32 head_length[GW_AVX512_LANES] __attribute__((aligned(64))); /* length << 16 | head */
    gw_u32 room[GW_AVX512_LANES] __attribute__((aligned(64)));
    gw_u32 sequence[2][GW_AVX512_LANES] __attribute__((aligned(64))); /* upper and lower halves */
    gw_avx512_sas sas;
    gw_u32 count;   /* number of packets; 0: no packet is left, or a packet has no SA */
    gw_u32 fetched; /* number of prefetched packets */
} gw_avx512_upcoming;

/* Progress of the processing of a batch. */
typedef struct gw_avx512_batch {
    const gw_bin_call *call;
    gw_u32 first; /* index of the first packet in `call` */
    gw_u32 count;
    gw_u32 next;        /* index in `order` of the next packet */
    gw_u32 consecutive; /* `order` is the order of arrival */
    gw_u16 order[GW_AVX512_BATCH];
    gw_avx512_upcoming upcoming;
} gw_avx512_batch;

GW_AVX512 gw_lane gw_avx512_lane(const gw_bin_call *call, gw_u32 index)
{
    gw_lane lane = {.image = call->image, .variant = call->variant};
    lane.buffer = call->arena + (gw_u64)call->descriptors[index].buffer * GW_BUFFER_UNIT;
    lane.parameter = call->parameters[index];
    return lane;
}

/* Prefetches the first bytes and the SAs (security associations) of up to `packets` upcoming
 * packets. Callers prefetch a few packets at a time, because many prefetches at once would overload
 * the second-level cache. */
GW_AVX512 void gw_avx512_prefetch_upcoming(gw_avx512_batch *batch, gw_u32 packets)
{
    gw_avx512_upcoming *upcoming = &batch->upcoming;
    gw_u32 end = upcoming->fetched + packets;
    end = end < upcoming->count ? end : upcoming->count;
    for (gw_u32 i = upcoming->fetched; i < end; i++) {
        const gw_u8 *frame = upcoming->frame[i];
        const gw_u8 *sa = (const gw_u8 *)upcoming->sas.sa[i];
        __builtin_prefetch(frame - GW_AVX512_ROW_BYTES);
        __builtin_prefetch(frame);
        __builtin_prefetch(frame + GW_AVX512_ROW_BYTES);
        GW_AVX512_UNROLL
        for (gw_u32 at = 0; at < offsetof(gw_ipsec_sa, more); at += GW_AVX512_ROW_BYTES) {
            __builtin_prefetch(sa + at);
        }
    }
    upcoming->fetched = end;
}

#endif
