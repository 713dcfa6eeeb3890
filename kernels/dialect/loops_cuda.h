/*
 * The entries under CUDA. One-dimensional; GW_GROUP_LANES threads a block, which is a group.
 *
 *   gw_chunk        launched for one chunk; any number of groups
 *   gw_persistent   launched once; group i serves mailbox i until it is told to stop
 *
 * Functions work on a shadow of the arena in the device's memory, window by window
 * at the same offsets as in the host's arena. Copy engines bring the windows of a
 * chunk there and back where these lie side by side; otherwise, and for persistent
 * groups, the group itself fetches what its function reads and returns what it
 * wrote, over the bus, in whole 16-byte words (gw_fetch, gw_return).
 */
#ifndef GODWIT_LOOPS_CUDA_H
#define GODWIT_LOOPS_CUDA_H

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

/*
 * Copies bytes head .. head + bytes of a window, rounded outwards to whole words, which stay
 * within the window: it begins and ends at multiples of 64. By the 32 threads of a warp.
 */
GW_LANE void gw_copy_span(gw_u8 *to, const gw_u8 *from, const gw_descriptor *place, gw_u32 bytes)
{
    const gw_u64 window = (gw_u64)place->window * GW_WINDOW_UNIT;
    const gw_u32 first = place->head / GW_WORD_BYTES;
    const gw_u32 end = (place->head + bytes + GW_WORD_BYTES - 1) / GW_WORD_BYTES;
    uint4 *target = (uint4 *)(to + window);
    const uint4 *source = (const uint4 *)(from + window);
    for (gw_u32 word = first + threadIdx.x % warpSize; word < end; word += warpSize) {
        target[word] = source[word];
    }
}

/* Brings what a bin's function reads from the host's arena. A warp to a packet. */
GW_GROUP void gw_fetch(gw_u8 *shadow, const gw_u8 *host, const gw_descriptor *descriptors,
                       gw_u32 count, gw_reach reach)
{
    for (gw_u32 i = threadIdx.x / warpSize; i < count; i += blockDim.x / warpSize) {
        const gw_descriptor place = descriptors[i];
        gw_copy_span(shadow, host, &place,
                     place.length < reach.reads_bytes ? place.length : reach.reads_bytes);
    }
}

/*
 * Takes what a bin's function wrote back to the host's arena. Nobody needs a dropped packet.
 * Bytes in the words at both ends that the function did not write were fetched before, or lie
 * in front of or behind the frame.
 */
GW_GROUP void gw_return(gw_u8 *shadow, gw_u8 *host, const gw_descriptor *descriptors,
                        const gw_outcome *outcomes, gw_u32 count, gw_reach reach)
{
    if (reach.writes_bytes == 0) {
        return;
    }
    for (gw_u32 i = threadIdx.x / warpSize; i < count; i += blockDim.x / warpSize) {
        const gw_descriptor place = descriptors[i];
        if (outcomes[i].verdict != GW_VERDICT_DROP) {
            gw_copy_span(host, shadow, &place,
                         place.length < reach.writes_bytes ? place.length : reach.writes_bytes);
        }
    }
}

/* What the entries have in common, in memory that the device can reach. */
typedef struct gw_device {
    gw_u8 *shadow;               /* of the whole arena, in the device's memory; 64-byte aligned */
    gw_u8 *host;                 /* the arena itself, over the bus */
    const gw_u8 *images;         /* base of all table images, 64-byte aligned */
    const gw_u64 *image_offsets; /* per instance, bytes from the base, multiples of 64 */
    const gw_reach *reaches;     /* per instance */
} gw_device;

/* by_group: groups fetch and return windows; otherwise copy engines do. cycles: of each bin. */
extern "C" __global__ void __launch_bounds__(GW_GROUP_LANES)
    gw_chunk(gw_device device, gw_descriptor *descriptors, const gw_u64 *parameters,
             gw_outcome *outcomes, const gw_bin *bins, gw_u32 bin_count, gw_u32 *next_bin,
             gw_u32 *cycles, gw_u32 by_group)
{
    __shared__ gw_scratch scratch;
    __shared__ gw_u32 taken;
    gw_u32 prepared = GW_PREPARED_NONE;
    gw_chunk_arrays chunk;
    chunk.arena = device.shadow;
    chunk.images = device.images;
    chunk.image_offsets = device.image_offsets;
    chunk.descriptors = descriptors;
    chunk.parameters = parameters;
    chunk.outcomes = outcomes;
    chunk.bins = bins;
    chunk.bin_count = bin_count;
    for (gw_u32 turn = 0; turn < bin_count; turn++) {
        gw_barrier();
        if (gw_lane_id() == 0) {
            taken = atomicAdd(next_bin, 1u);
        }
        gw_barrier();
        const gw_u32 index = taken;
        if (index >= bin_count) {
            break;
        }
        const long long started = clock64();
        const gw_bin bin = chunk.bins[index];
        const gw_reach reach = device.reaches[bin.instance];
        if (by_group) {
            gw_fetch(device.shadow, device.host, descriptors + bin.first, bin.count, reach);
            gw_barrier();
        }
        gw_run_bin(&chunk, &bin, &scratch, &prepared);
        if (by_group) {
            gw_barrier();
            gw_return(device.shadow, device.host, descriptors + bin.first, outcomes + bin.first,
                      bin.count, reach);
        }
        if (gw_lane_id() == 0) {
            cycles[index] = (gw_u32)(clock64() - started);
        }
    }
}

/* Reads a word that the host writes; what it wrote before is visible after. */
GW_LANE gw_u32 gw_load_acquire(const gw_u32 *address)
{
    gw_u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

/* Writes a word that the host reads; what the group wrote before a barrier is visible by then. */
GW_LANE void gw_store_release(gw_u32 *address, gw_u32 value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/* Polls in vain before the group begins to pause between two of them. */
#define GW_POLLS_BEFORE_PAUSE 4096u
#define GW_PAUSE_NS           256u

/* Waits for the mailbox's next place, by one lane. Returns 0 when the group is to end. */
GW_LANE gw_u32 gw_await(const gw_mailbox *box, gw_u32 taken)
{
    for (gw_u32 polls = 0; gw_load_acquire(&box->posted) == taken; polls++) {
        /* Posted first, stop afterwards: when stop is seen, nothing is posted any more. */
        if (polls % 16 == 15 && gw_load_acquire(&box->stop) &&
            gw_load_acquire(&box->posted) == taken) {
            return 0;
        }
        if (polls >= GW_POLLS_BEFORE_PAUSE) {
            __nanosleep(GW_PAUSE_NS);
        }
    }
    return 1;
}

/*
 * A group that stays: takes bins out of its mailbox until it is told to stop.
 *
 * desks: for each group a place (abi.h) in the device's memory, where it works; what lies in
 * the mailbox is read once and written once, for each access to it crosses the bus.
 */
extern "C" __global__ void __launch_bounds__(GW_GROUP_LANES)
    gw_persistent(gw_device device, gw_u8 *mailboxes, gw_u64 mailbox_bytes, gw_u32 places,
                  gw_u32 bin_packets, gw_u8 *desks)
{
    __shared__ gw_scratch scratch;
    __shared__ gw_u32 go;
    __shared__ gw_bin bin;
    gw_u32 prepared = GW_PREPARED_NONE;
    gw_mailbox *box = (gw_mailbox *)(mailboxes + blockIdx.x * mailbox_bytes);
    gw_u8 *desk = desks + (gw_u64)blockIdx.x * GW_PLACE_BYTES(bin_packets);
    gw_descriptor *descriptors = (gw_descriptor *)(desk + GW_PLACE_DESCRIPTORS);
    gw_u64 *parameters = (gw_u64 *)(desk + GW_PLACE_PARAMETERS(bin_packets));
    gw_outcome *outcomes = (gw_outcome *)(desk + GW_PLACE_OUTCOMES(bin_packets));
    gw_chunk_arrays chunk;
    chunk.arena = device.shadow;
    chunk.images = device.images;
    chunk.image_offsets = device.image_offsets;
    chunk.descriptors = descriptors;
    chunk.parameters = parameters;
    chunk.outcomes = outcomes;
    chunk.bins = 0;
    chunk.bin_count = 1;
    if (gw_lane_id() == 0) {
        gw_store_release(&box->running, GW_MAILBOX_POLLING);
    }
    /* The host may start its counters anywhere. */
    gw_u32 taken = box->finished;
    for (;;) {
        gw_barrier();
        if (gw_lane_id() == 0) {
            go = gw_await(box, taken);
        }
        gw_barrier();
        if (!go) {
            break;
        }
        gw_u8 *place = (gw_u8 *)(box + 1) + (gw_u64)(taken % places) * GW_PLACE_BYTES(bin_packets);
        /* All loads at once, whatever the bin holds: each costs the same trip over the bus. */
        if (gw_lane_id() == 0) {
            bin = *(const gw_bin *)place;
        }
        for (gw_u32 i = gw_lane_id(); i < bin_packets; i += gw_lane_count()) {
            descriptors[i] = ((const gw_descriptor *)(place + GW_PLACE_DESCRIPTORS))[i];
            parameters[i] = ((const gw_u64 *)(place + GW_PLACE_PARAMETERS(bin_packets)))[i];
        }
        gw_barrier();
        const gw_bin mine = bin;
        const gw_reach reach = device.reaches[mine.instance];
        gw_fetch(device.shadow, device.host, descriptors, mine.count, reach);
        gw_barrier();
        gw_run_bin(&chunk, &mine, &scratch, &prepared);
        gw_barrier();
        gw_return(device.shadow, device.host, descriptors, outcomes, mine.count, reach);
        for (gw_u32 i = gw_lane_id(); i < mine.count; i += gw_lane_count()) {
            ((gw_descriptor *)(place + GW_PLACE_DESCRIPTORS))[i] = descriptors[i];
            ((gw_outcome *)(place + GW_PLACE_OUTCOMES(bin_packets)))[i] = outcomes[i];
        }
        taken++;
        gw_barrier();
        if (gw_lane_id() == 0) {
            gw_store_release(&box->finished, taken);
        }
    }
    if (gw_lane_id() == 0) {
        gw_store_release(&box->running, GW_MAILBOX_ENDED);
    }
}

#endif
