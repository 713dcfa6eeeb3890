/* Progress through a batch of up to 256 packets, and its next sixteen packets. */
#ifndef GODWIT_IPSEC_AVX512_BATCH_H
#define GODWIT_IPSEC_AVX512_BATCH_H

#include "avx512.h"
#include "batch.h"

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
    gw_u16 order[GW_NATIVE_BATCH];
    gw_avx512_upcoming upcoming;
} gw_avx512_batch;

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
