/*
 * Copies packet data between host memory and device memory under CUDA, with all threads of a
 * work-group. gw_fetch copies frames to the device before a function reads them. gw_return copies
 * frames back after a function has written them. gw_fetch_arrays and gw_return_arrays copy
 * per-packet arrays, such as the descriptors.
 */
#ifndef GODWIT_BUS_CUDA_H
#define GODWIT_BUS_CUDA_H

#include "loops_device.h"

/* Number of bytes at the start of each frame that a configured function may read and write
 * (Contract::reads_bytes, Contract::writes_bytes). */
typedef struct gw_reach {
    gw_u32 reads_bytes;
    gw_u32 writes_bytes;
} gw_reach;

/* Value of a gw_reach field for a function that reads or writes whole frames. */
#define GW_REACH_ALL 0xffffu

/* Size of a word in bytes. A thread copies a word with one instruction. */
#define GW_WORD_BYTES 16u
#define GW_UNIT_WORDS (GW_BUFFER_UNIT / GW_WORD_BYTES)

/* Number of words that a thread loads before it waits for them. These loads overlap in one bus
 * round trip. */
#define GW_WORDS_IN_FLIGHT 12u

/* Range of aligned words that covers part of a packet. Buffers begin and end at multiples of 64
 * bytes, so the range stays within the packet's buffer. */
typedef struct gw_span {
    gw_u64 first; /* index of the first word, from the arena's start */
    gw_u32 words;
} gw_span;

/* Returns the range of aligned words that covers the first reach_bytes bytes of a frame, or the
 * whole frame if it is shorter. */
GW_LANE gw_span gw_span_of(const gw_descriptor *descriptor, gw_u32 reach_bytes)
{
    /* first descriptor words: buffer | head, length */
    const uint2 position = *(const uint2 *)descriptor;
    const gw_u32 head = position.y & 0xffffu;
    const gw_u32 length = position.y >> 16;
    const gw_u32 bytes = length < reach_bytes ? length : reach_bytes;
    gw_span span;
    span.first = (gw_u64)position.x * GW_UNIT_WORDS + head / GW_WORD_BYTES;
    span.words = (head % GW_WORD_BYTES + bytes + GW_WORD_BYTES - 1) / GW_WORD_BYTES;
    return span;
}

/* Returns the range of aligned words that covers a packet's first reach_bytes bytes. If `outcomes`
 * is not 0, dropped packets have an empty range. */
GW_LANE gw_span gw_span_at(const gw_descriptor *descriptors, const gw_outcome *outcomes,
                           gw_u32 packet, gw_u32 reach_bytes)
{
    gw_span span = gw_span_of(&descriptors[packet], reach_bytes);
    if (outcomes != 0 && outcomes[packet].verdict == GW_VERDICT_DROP) {
        span.words = 0;
    }
    return span;
}

/* Returns the number of words in the batch's longest packet. All threads of a warp call this
 * function together. */
GW_LANE gw_u32 gw_span_words_max(const gw_descriptor *descriptors, const gw_outcome *outcomes,
                                 gw_u32 count, gw_u32 reach_bytes)
{
    gw_u32 longest = 0;
    GW_NO_COPY
    for (gw_u32 i = threadIdx.x % warpSize; i < count; i += warpSize) {
        const gw_span span = gw_span_at(descriptors, outcomes, i, reach_bytes);
        longest = span.words > longest ? span.words : longest;
    }
    return gw_warp_max(longest);
}

/*
 * Copies the packets of a batch between host memory and device memory. Consecutive threads copy
 * consecutive words. Each packet gets as many threads as the longest one. Few threads are wasted,
 * because packets of one batch have similar lengths.
 */
GW_GROUP void gw_copy_packets(gw_u8 *to, const gw_u8 *from, const gw_descriptor *descriptors,
                              const gw_outcome *outcomes, gw_u32 count, gw_u32 reach_bytes)
{
    uint4 *target = (uint4 *)to;
    const uint4 *source = (const uint4 *)from;
    const gw_u32 words = gw_span_words_max(descriptors, outcomes, count, reach_bytes);
    if (words == 0) {
        return;
    }
    gw_u32 packet = threadIdx.x / words;
    gw_u32 word = threadIdx.x % words;
    if (words * count <= blockDim.x) {
        if (packet < count) {
            const gw_span span = gw_span_at(descriptors, outcomes, packet, reach_bytes);
            if (word < span.words) {
                target[span.first + word] = source[span.first + word];
            }
        }
        return;
    }
    const gw_u32 packet_step = blockDim.x / words;
    const gw_u32 word_step = blockDim.x % words;
    while (packet < count) {
        /* A branch between the loads below would serialise them. */
        gw_u64 indices[GW_WORDS_IN_FLIGHT];
        gw_u32 valid = 0;
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_WORDS_IN_FLIGHT; i++) {
            const gw_u32 bounded = packet < count ? packet : 0;
            const gw_span span = gw_span_at(descriptors, outcomes, bounded, reach_bytes);
            indices[i] = span.first + word;
            valid |= (gw_u32)(packet < count && word < span.words) << i;
            packet += packet_step;
            word += word_step;
            const gw_u32 over = word >= words;
            word -= over ? words : 0;
            packet += over;
        }
        uint4 values[GW_WORDS_IN_FLIGHT];
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_WORDS_IN_FLIGHT; i++) {
            values[i] = valid >> i & 1u ? source[indices[i]] : make_uint4(0, 0, 0, 0);
        }
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_WORDS_IN_FLIGHT; i++) {
            if (valid >> i & 1u) {
                target[indices[i]] = values[i];
            }
        }
    }
}

/* Copies packet bytes from host memory to device memory before a function reads them. `shadow` is
 * the copy of the packet buffers in device memory. */
GW_GROUP void gw_fetch(gw_u8 *shadow, const gw_u8 *host, const gw_descriptor *descriptors,
                       gw_u32 count, gw_reach reach)
{
    gw_copy_packets(shadow, host, descriptors, 0, count, reach.reads_bytes);
}

/* Copies packet bytes from device memory to host memory after a function has written them. Whole
 * words are copied, so some unchanged bytes may be copied as well. */
GW_GROUP void gw_return(gw_u8 *shadow, gw_u8 *host, const gw_descriptor *descriptors,
                        const gw_outcome *outcomes, gw_u32 count, gw_reach reach)
{
    if (reach.writes_bytes != 0) {
        gw_copy_packets(host, shadow, descriptors, outcomes, count, reach.writes_bytes);
    }
}

/*
 * Host address of the array `parameters`. It is 0 if the GPU's copy engines transfer all packet
 * data. The other packet arrays have the same distance from `parameters` in host memory as in
 * device memory.
 */
typedef gw_u64 gw_host_arrays;

/* Returns the address in host memory that corresponds to an array in device memory. */
#define GW_HOST_ARRAY(type, host, chunk, array)                                                    \
    ((type *)((host) + ((gw_u64)(array) - (gw_u64)(chunk)->parameters)))

/* Copies the descriptors and parameters of the packets in a batch from host memory to device
 * memory. */
GW_GROUP void gw_fetch_arrays(const gw_chunk_arrays *chunk, gw_host_arrays host, gw_u32 first,
                              gw_u32 count)
{
    uint4 *descriptors = (uint4 *)chunk->descriptors;
    gw_u64 *parameters = (gw_u64 *)chunk->parameters;
    const uint4 *host_descriptors = GW_HOST_ARRAY(const uint4, host, chunk, descriptors);
    const gw_u64 *host_parameters = (const gw_u64 *)host;
    for (gw_u32 i = first + gw_lane_id(); i < first + count; i += gw_lane_count()) {
        const uint4 descriptor = host_descriptors[i];
        const gw_u64 parameter = host_parameters[i];
        descriptors[i] = descriptor;
        parameters[i] = parameter;
    }
}

/*
 * Copies the results of a batch to host memory. If the work-group has several warps, the first warp
 * instead takes the next batch.
 */
GW_GROUP void gw_return_arrays(const gw_chunk_arrays *chunk, gw_host_arrays host, gw_u32 has_chain,
                               gw_u32 first, gw_u32 count)
{
    const gw_u32 skipped = gw_lane_count() > warpSize ? warpSize : 0;
    if (gw_lane_id() < skipped) {
        return;
    }
    const uint4 *descriptors = (const uint4 *)chunk->descriptors;
    const uint2 *outcomes = (const uint2 *)chunk->outcomes;
    const gw_u32 step = gw_lane_count() - skipped;
    for (gw_u32 i = first + gw_lane_id() - skipped; i < first + count; i += step) {
        GW_HOST_ARRAY(uint4, host, chunk, descriptors)[i] = descriptors[i];
        GW_HOST_ARRAY(uint2, host, chunk, outcomes)[i] = outcomes[i];
        if (has_chain) {
            GW_HOST_ARRAY(gw_u32, host, chunk, chunk->trails)[i] = chunk->trails[i];
        }
    }
}

#endif
