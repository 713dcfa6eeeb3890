/*
 * Copies over the bus by the lanes of a group under CUDA, between host memory and device memory.
 * gw_fetch and gw_return copy the bytes of packets that a function reads and writes, in 16-byte
 * words. gw_fetch_arrays and gw_return_arrays copy the per-packet arrays of a chunk.
 */
#ifndef GODWIT_BUS_CUDA_H
#define GODWIT_BUS_CUDA_H

#include "loops_device.h"

/* Read and write limits of a configured function: Contract::reads_bytes and writes_bytes. */
typedef struct gw_reach {
    gw_u32 reads_bytes;
    gw_u32 writes_bytes;
} gw_reach;

/* Value of a gw_reach field without a limit. */
#define GW_REACH_ALL 0xffffu

/* Size of a word in bytes. One thread copies a word with one instruction. */
#define GW_WORD_BYTES 16u
#define GW_UNIT_WORDS (GW_BUFFER_UNIT / GW_WORD_BYTES)

/* Number of words that one thread has in flight. A round trip over the bus takes as long for one
 * word as for all of them. */
#define GW_WORDS_IN_FLIGHT 12u

/* The words that contain a packet's bytes. They stay within the buffer, because buffers begin and
 * end at multiples of 64 bytes. */
typedef struct gw_span {
    gw_u64 first; /* index of the first word, from the arena's start */
    gw_u32 words;
} gw_span;

/* Returns the words that contain the first bytes of a frame, at most reach_bytes. */
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

/* Returns the words that contain the bytes of a packet of a bin. If `outcomes` is not 0, a dropped
 * packet has no words. */
GW_LANE gw_span gw_span_at(const gw_descriptor *descriptors, const gw_outcome *outcomes,
                           gw_u32 packet, gw_u32 reach_bytes)
{
    gw_span span = gw_span_of(&descriptors[packet], reach_bytes);
    if (outcomes != 0 && outcomes[packet].verdict == GW_VERDICT_DROP) {
        span.words = 0;
    }
    return span;
}

/* Returns the number of words of the bin's longest packet. All lanes of a warp call it. */
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
 * Copies the packets of a bin from one arena to another. Consecutive threads copy consecutive
 * words, as if all packets were as long as the longest. The packets of a bin have similar lengths.
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
        /* A branch here would serialise the loads. */
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

/* Copies the bytes that a bin's function reads from the host's arena to the shadow. */
GW_GROUP void gw_fetch(gw_u8 *shadow, const gw_u8 *host, const gw_descriptor *descriptors,
                       gw_u32 count, gw_reach reach)
{
    gw_copy_packets(shadow, host, descriptors, 0, count, reach.reads_bytes);
}

/* Copies the bytes that a bin's function wrote back to the host's arena. The first and last word
 * may contain other bytes. Those were fetched before or are outside the frame, so the copy does no
 * harm. */
GW_GROUP void gw_return(gw_u8 *shadow, gw_u8 *host, const gw_descriptor *descriptors,
                        const gw_outcome *outcomes, gw_u32 count, gw_reach reach)
{
    if (reach.writes_bytes != 0) {
        gw_copy_packets(host, shadow, descriptors, outcomes, count, reach.writes_bytes);
    }
}

/*
 * Address of a chunk's parameters in host memory; 0 if copy engines transfer arrays and buffers.
 * The arrays have the same layout in host memory and in device memory, so this address locates all
 * of them.
 */
typedef gw_u64 gw_host_arrays;

/* Returns the address in host memory of a device array. */
#define GW_HOST_ARRAY(type, host, chunk, array)                                                    \
    ((type *)((host) + ((gw_u64)(array) - (gw_u64)(chunk)->parameters)))

/* Copies the descriptors and parameters of a bin's packets to the device. */
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
 * Copies the results of a bin's packets to host memory. If the group has more than one warp, the
 * first warp does not take part, because one of its lanes takes the next bin at the same time.
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
