/*
 * What a group of lanes moves over the bus by itself under CUDA, between the host's memory and the
 * device's: what its function reads and wrote of packets, in whole 16-byte words (gw_fetch,
 * gw_return), and the numbers of packets (gw_fetch_arrays, gw_return_arrays).
 */
#ifndef GODWIT_BUS_CUDA_H
#define GODWIT_BUS_CUDA_H

#include "loops_device.h"

/* How far a configured function reads and writes: Contract::reads_bytes, writes_bytes. */
typedef struct gw_reach {
    gw_u32 reads_bytes;
    gw_u32 writes_bytes;
} gw_reach;

/* Says of a reach that it is not bounded. */
#define GW_REACH_ALL 0xffffu

/* Bytes that one thread moves at once. */
#define GW_WORD_BYTES 16u
#define GW_UNIT_WORDS (GW_BUFFER_UNIT / GW_WORD_BYTES)

/*
 * Words that one thread has under way at once. A trip over the bus takes as long for one of them
 * as for all.
 */
#define GW_WORDS_UNDER_WAY 12u

/* The words of a buffer that a packet's bytes lie in: they stay within the buffer, which begins
 * and ends at multiples of 64. */
typedef struct gw_span {
    gw_u64 first; /* counted from the arena's start */
    gw_u32 words;
} gw_span;

/* Of the first bytes of a frame, no more than reach_bytes. */
GW_LANE gw_span gw_span_of(const gw_descriptor *descriptor, gw_u32 reach_bytes)
{
    /* buffer | head, length */
    const uint2 place = *(const uint2 *)descriptor;
    const gw_u32 head = place.y & 0xffffu;
    const gw_u32 length = place.y >> 16;
    const gw_u32 bytes = length < reach_bytes ? length : reach_bytes;
    gw_span span;
    span.first = (gw_u64)place.x * GW_UNIT_WORDS + head / GW_WORD_BYTES;
    span.words = (head % GW_WORD_BYTES + bytes + GW_WORD_BYTES - 1) / GW_WORD_BYTES;
    return span;
}

/* outcomes: where to look for dropped packets, which nobody needs any more, or NULL. */
GW_LANE gw_span gw_span_at(const gw_descriptor *descriptors, const gw_outcome *outcomes,
                           gw_u32 packet, gw_u32 reach_bytes)
{
    gw_span span = gw_span_of(&descriptors[packet], reach_bytes);
    if (outcomes != 0 && outcomes[packet].verdict == GW_VERDICT_DROP) {
        span.words = 0;
    }
    return span;
}

/* The most words of any packet of a bin, by all lanes of a warp. */
GW_LANE gw_u32 gw_span_words_max(const gw_descriptor *descriptors, const gw_outcome *outcomes,
                                 gw_u32 count, gw_u32 reach_bytes)
{
    gw_u32 most = 0;
    GW_NO_COPY
    for (gw_u32 i = threadIdx.x % warpSize; i < count; i += warpSize) {
        const gw_span span = gw_span_at(descriptors, outcomes, i, reach_bytes);
        most = span.words > most ? span.words : most;
    }
    return gw_warp_max(most);
}

/*
 * Copies the packets of a bin from one arena to another. Thread after thread takes a word, packet
 * after packet, as if all packets were as long as the longest: a bin's are nearly.
 */
GW_GROUP void gw_carry(gw_u8 *to, const gw_u8 *from, const gw_descriptor *descriptors,
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
    const gw_u32 packets_on = blockDim.x / words;
    const gw_u32 words_on = blockDim.x % words;
    while (packet < count) {
        /* No branches, or the loads would wait for each other. */
        gw_u64 places[GW_WORDS_UNDER_WAY];
        gw_u32 there = 0;
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_WORDS_UNDER_WAY; i++) {
            const gw_u32 sure = packet < count ? packet : 0;
            const gw_span span = gw_span_at(descriptors, outcomes, sure, reach_bytes);
            places[i] = span.first + word;
            there |= (gw_u32)(packet < count && word < span.words) << i;
            packet += packets_on;
            word += words_on;
            const gw_u32 over = word >= words;
            word -= over ? words : 0;
            packet += over;
        }
        uint4 values[GW_WORDS_UNDER_WAY];
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_WORDS_UNDER_WAY; i++) {
            values[i] = there >> i & 1u ? source[places[i]] : make_uint4(0, 0, 0, 0);
        }
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_WORDS_UNDER_WAY; i++) {
            if (there >> i & 1u) {
                target[places[i]] = values[i];
            }
        }
    }
}

/* Brings what a bin's function reads from the host's arena. */
GW_GROUP void gw_fetch(gw_u8 *shadow, const gw_u8 *host, const gw_descriptor *descriptors,
                       gw_u32 count, gw_reach reach)
{
    gw_carry(shadow, host, descriptors, 0, count, reach.reads_bytes);
}

/*
 * Takes what a bin's function wrote back to the host's arena. Bytes in the words at both ends
 * that the function did not write were fetched before, or lie in front of or behind the frame.
 */
GW_GROUP void gw_return(gw_u8 *shadow, gw_u8 *host, const gw_descriptor *descriptors,
                        const gw_outcome *outcomes, gw_u32 count, gw_reach reach)
{
    if (reach.writes_bytes != 0) {
        gw_carry(host, shadow, descriptors, outcomes, count, reach.writes_bytes);
    }
}

/*
 * The arrays of a chunk lie in the host's memory as they do in the device's, one behind the other:
 * this is where the host's parameters lie, and so where all others do. 0: copy engines bring and
 * take them, and buffers.
 */
typedef gw_u64 gw_host_arrays;

/* In the host's memory, an array that the device has at `array`. */
#define GW_HOST_ARRAY(type, host, chunk, array)                                                    \
    ((type *)((host) + ((gw_u64)(array) - (gw_u64)(chunk)->parameters)))

/* Brings the numbers of a bin's packets. */
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
 * Takes back what has become of a bin's packets. The first warp, of which a lane looks for the next
 * bin meanwhile, leaves it to the others, where there are others.
 */
GW_GROUP void gw_return_arrays(const gw_chunk_arrays *chunk, gw_host_arrays host, gw_u32 follows,
                               gw_u32 first, gw_u32 count)
{
    const gw_u32 spared = gw_lane_count() > warpSize ? warpSize : 0;
    if (gw_lane_id() < spared) {
        return;
    }
    const uint4 *descriptors = (const uint4 *)chunk->descriptors;
    const uint2 *outcomes = (const uint2 *)chunk->outcomes;
    const gw_u32 step = gw_lane_count() - spared;
    for (gw_u32 i = first + gw_lane_id() - spared; i < first + count; i += step) {
        GW_HOST_ARRAY(uint4, host, chunk, descriptors)[i] = descriptors[i];
        GW_HOST_ARRAY(uint2, host, chunk, outcomes)[i] = outcomes[i];
        if (follows) {
            GW_HOST_ARRAY(gw_u32, host, chunk, chunk->trails)[i] = chunk->trails[i];
        }
    }
}

#endif
