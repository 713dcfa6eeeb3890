/*
 * The entries under CUDA. One-dimensional; GW_GROUP_LANES threads a block, which is a group.
 *
 *   gw_chunk        launched for one chunk; any number of groups
 *   gw_persistent   launched once; group i serves mailbox i until it is told to stop
 *
 * Functions work on a shadow of the arena in the device's memory, buffer by buffer
 * at the same offsets as in the host's arena. Copy engines bring the buffers of a
 * chunk there and back where these lie side by side, and the chunk's arrays; otherwise,
 * and for persistent groups, the group itself does (bus_cuda.h).
 * A persistent group has buffers that lie side by side in its own memory instead
 * (GW_NEAR_WORDS).
 */
#ifndef GODWIT_LOOPS_CUDA_H
#define GODWIT_LOOPS_CUDA_H

#include "bus_cuda.h"

/* What the entries have in common, in memory that the device can reach. */
typedef struct gw_device {
    gw_u8 *shadow;               /* of the whole arena, in the device's memory; 64-byte aligned */
    gw_u8 *host;                 /* the arena itself, over the bus */
    const gw_u8 *images;         /* base of all table images, 64-byte aligned */
    const gw_u64 *image_offsets; /* per instance, bytes from the base, multiples of 64 */
    const gw_reach *reaches;     /* per instance */
} gw_device;

/*
 * A group's scratch memory. It is more than a kernel may have without being asked, so the host
 * asks for gw_scratch_bytes at each launch.
 */
#ifndef GW_SHARED_SCRATCH
#define GW_SHARED_SCRATCH(name) extern __shared__ uint4 name[]
#endif
GW_STATIC_ASSERT(sizeof(gw_scratch) <= 96 << 10, scratch_bytes);
extern "C" __device__ const gw_u32 gw_scratch_bytes = sizeof(gw_scratch);

/*
 * Lane 0 takes the next bin: the one behind the last, where that is another part of the same bin
 * (more), otherwise `index`, or, where that is for the group of the bin in front, what the counter
 * says. Not below bin_count: there is none. How far its function reaches is written down too.
 */
GW_LANE gw_u32 gw_take(gw_steps *steps, gw_reach *reach, const gw_device *device,
                       const gw_bin *bins, gw_u32 bin_count, gw_u32 *next_bin, gw_u32 index,
                       gw_u32 more)
{
    while (index < bin_count) {
        const gw_bin bin = bins[index];
        if (more || (bin.part & GW_PART_REST) == 0) {
            gw_begin_steps(steps, bin, device->image_offsets[bin.instance],
                           gw_has_chain(device->images));
            *reach = device->reaches[bin.instance];
            break;
        }
        index = gridDim.x + atomicInc(next_bin, bin_count - 1);
    }
    return index;
}

/* Writes a word that the host reads; what the group wrote before a barrier is visible by then. */
GW_LANE void gw_store_release(gw_u32 *address, gw_u32 value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/*
 * Tells the host that a chunk is done, which would else hear it later, and of the driver. By a lane
 * of each group, behind a barrier behind its last bin; the group that is the last of them says it.
 *
 * What its lanes wrote to the host's memory is before the barrier, that before the fence, and that
 * before the group counts itself; the last counts behind all others, and releases the word to the
 * system behind that. Both are cumulative: whoever acquires the word sees what any group wrote. A
 * fence of the system in each group would wait for the bus, and so under load cost a tenth.
 */
GW_LANE void gw_tell_done(gw_u32 *host_done, gw_u32 *ended)
{
    __threadfence();
    if (atomicInc(ended, gridDim.x - 1) == gridDim.x - 1) {
        gw_store_release(host_done, 1);
    }
}

/* What groups count by in the device's memory: both are 0 before a launch, and after. */
typedef struct gw_counters {
    gw_u32 next_bin;
    gw_u32 ended; /* groups */
} gw_counters;

/*
 * host_arrays: groups fetch and return buffers and the chunk's arrays, and host_done is to be 1
 * when all is back in the host's memory. Otherwise copy engines do, and both are 0. bins and cycles
 * (of each bin) may lie in the host's memory: each is read, or written, once.
 */
extern "C" __global__ void __launch_bounds__(GW_GROUP_LANES, GW_GROUPS_MIN)
    gw_chunk(gw_device device, gw_host_arrays host_arrays, gw_u64 *parameters,
             gw_descriptor *descriptors, gw_outcome *outcomes, gw_u32 *trails, const gw_bin *bins,
             gw_u32 bin_count, gw_counters *counters, gw_u32 *cycles, gw_u8 *scratch,
             gw_u32 scratch_packets, gw_u32 *host_done)
{
    gw_u32 *next_bin = &counters->next_bin;
    GW_SHARED_SCRATCH(shared);
    gw_scratch *scratch = (gw_scratch *)shared;
    __shared__ gw_steps steps;
    __shared__ gw_reach reach;
    __shared__ gw_u32 taken;
    __shared__ long long started;
    /* Each lane's own; no register is spent on what is looked at once a bin. */
    __shared__ gw_prepared prepared[GW_GROUP_LANES];
    gw_unprepare(&prepared[gw_lane_id()]);
    gw_chunk_arrays chunk;
    chunk.arena = device.shadow;
    chunk.images = device.images;
    chunk.image_offsets = device.image_offsets;
    chunk.descriptors = descriptors;
    chunk.parameters = parameters;
    chunk.outcomes = outcomes;
    chunk.trails = trails;
    chunk.scratch = scratch;
    chunk.scratch_packets = scratch_packets;
    chunk.bins = bins;
    chunk.bin_count = bin_count;
    if (gw_lane_id() == 0) {
        /* The first bin of each group is known; the counter is for those behind. */
        taken = gw_take(&steps, &reach, &device, bins, bin_count, next_bin, blockIdx.x, 0);
        started = clock64();
    }
    gw_barrier();
    while (gw_uniform(taken) < bin_count) {
        if (host_arrays != 0) {
            gw_fetch_arrays(&chunk, host_arrays, steps.bin.first, steps.bin.count);
            gw_barrier();
            gw_fetch(device.shadow, device.host, descriptors + steps.bin.first, steps.bin.count,
                     reach);
            gw_barrier();
        }
        gw_run_bin(&chunk, &steps, scratch, &prepared[gw_lane_id()]);
        const gw_u32 first = gw_uniform(steps.bin.first);
        const gw_u32 count = gw_uniform(steps.bin.count);
        const gw_u32 follows = gw_uniform(steps.follows);
        if (host_arrays != 0) {
            gw_barrier();
            gw_return(device.shadow, device.host, descriptors + first, outcomes + first, count,
                      reach);
        }
        gw_barrier();
        if (host_arrays != 0) {
            gw_return_arrays(&chunk, host_arrays, follows, first, count);
        }
        if (gw_lane_id() == 0) {
            const long long now = clock64();
            cycles[taken] = (gw_u32)(now - started);
            started = now;
            /* Each group asks once in vain, so all ask bin_count times, and the last finds 0 again.
             */
            const gw_u32 more = steps.bin.part & GW_PART_MORE;
            const gw_u32 index = more ? taken + 1 : gridDim.x + atomicInc(next_bin, bin_count - 1);
            taken = gw_take(&steps, &reach, &device, bins, bin_count, next_bin, index, more);
        }
        gw_barrier();
    }
    if (host_arrays != 0 && gw_lane_id() == 0) {
        gw_tell_done(host_done, &counters->ended);
    }
}

/* What the host has written into a mailbox; what it wrote before is visible after. */
typedef struct gw_look {
    gw_u64 counters; /* posted | stop << 32 */
    gw_u64 extent;
} gw_look;

/* One request on the bus. Of its two words either may be read before the other. */
GW_LANE gw_look gw_look_into(const gw_mailbox *box)
{
    gw_look look;
    asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(look.counters), "=l"(look.extent)
                 : "l"(box)
                 : "memory");
    return look;
}

/* Polls in vain before the group begins to pause between two of them. */
#define GW_POLLS_BEFORE_PAUSE 4096u
#define GW_PAUSE_NS           256u

/* What lane 0 tells the group when it has seen something in the mailbox. */
typedef struct gw_seen {
    gw_u32 posted; /* the bins taken: the group is to end */
    gw_u32 first;  /* where the next bin's buffers lie side by side, in units, */
    gw_u32 units;  /* and how many; 0: they do not, or it is not known */
} gw_seen;

/* Waits for the mailbox's next place, by one lane. */
GW_LANE gw_seen gw_await(const gw_mailbox *box, gw_u32 taken)
{
    gw_look look = gw_look_into(box);
    for (gw_u32 polls = 0; look.counters == taken; polls++) {
        if (polls >= GW_POLLS_BEFORE_PAUSE) {
            __nanosleep(GW_PAUSE_NS);
        }
        look = gw_look_into(box);
    }
    gw_seen seen;
    seen.posted = (gw_u32)look.counters;
    /* The extent is that of the last place posted, and may be older than the counters, or newer. */
    const gw_u32 right = seen.posted == taken + 1 && look.extent >> 48 == (seen.posted & 0xffffu);
    seen.first = (gw_u32)look.extent;
    seen.units = right ? (gw_u32)(look.extent >> 32) & 0xffffu : 0;
    return seen;
}

/*
 * Buffers in the group's memory, from which loads take a tenth of the time, one behind the other as
 * they lie in the host's arena. They come over the bus with the place, before anything is known of
 * them but the extent, so that a bin waits for one trip and not for two.
 */
#define GW_NEAR_WORDS (GW_EXTENT_UNITS_MAX * GW_UNIT_WORDS)

/* Words of them that a lane brings. */
#define GW_NEAR_LANE_WORDS ((GW_NEAR_WORDS + GW_GROUP_LANES - 1) / GW_GROUP_LANES)

/* Packets of a bin that a persistent group has room for in its shared memory. */
#define GW_NEAR_PACKETS 64u

/* What a group keeps of the configured functions that it served, which never change. */
typedef struct gw_instance {
    gw_u64 image_offset;
    gw_reach reach;
    gw_u32 number; /* which of them */
} gw_instance;

#define GW_INSTANCES     16u
#define GW_INSTANCE_NONE 0xffffffffu

/* The configured function of a bin, as remembered in its slot or else as the device has it. */
GW_LANE gw_instance gw_instance_of(const gw_device *device, const gw_instance *slot, gw_u32 number)
{
    gw_instance instance = *slot;
    if (instance.number != number) {
        instance.number = number;
        instance.image_offset = device->image_offsets[number];
        instance.reach = device->reaches[number];
    }
    return instance;
}

/*
 * A group that stays: takes bins out of its mailbox until it is told to stop. It may have a
 * multiprocessor's registers for itself, for it is there for short waits and not for many packets.
 *
 * Works on copies of what lies in the mailbox, which is read once and written once, for each
 * access to it crosses the bus. Copies of small bins lie in shared memory.
 *
 * scratch: for each group, in the device's memory, a place (abi.h) for bins of more than
 * GW_NEAR_PACKETS, and behind it the scratch of its chain.
 */
extern "C" __global__ void __launch_bounds__(GW_GROUP_LANES)
    gw_persistent(gw_device device, gw_u8 *mailboxes, gw_u64 mailbox_bytes, gw_u32 places,
                  gw_u32 bin_packets, gw_u8 *scratch)
{
    GW_SHARED_SCRATCH(shared);
    gw_scratch *scratch = (gw_scratch *)shared;
    __shared__ uint4 near_descriptors[GW_NEAR_PACKETS];
    __shared__ gw_u64 near_parameters[GW_NEAR_PACKETS];
    __shared__ uint2 near_outcomes[GW_NEAR_PACKETS];
    __shared__ gw_u32 near_trails[GW_NEAR_PACKETS];
    alignas(GW_BUFFER_UNIT) __shared__ uint4 near_words[GW_NEAR_WORDS];
    __shared__ gw_steps steps;
    __shared__ gw_instance instances[GW_INSTANCES];
    __shared__ gw_seen seen;
    __shared__ gw_reach reach;
    /* Each lane's own; no register is spent on what is looked at once a bin. */
    __shared__ gw_prepared prepared[GW_GROUP_LANES];
    gw_unprepare(&prepared[gw_lane_id()]);
    gw_mailbox *box = (gw_mailbox *)(mailboxes + blockIdx.x * mailbox_bytes);
    gw_u8 *scratch = scratch + (gw_u64)blockIdx.x * (GW_MAILBOX_SLOT_BYTES(bin_packets) +
                                                     GW_CHAIN_SCRATCH_BYTES(bin_packets));
    /* Moved in as few words as there can be: each is a request of its own on the bus. */
    uint4 *descriptors = near_descriptors;
    gw_u64 *parameters = near_parameters;
    uint2 *outcomes = near_outcomes;
    gw_u32 *trails = near_trails;
    if (bin_packets > GW_NEAR_PACKETS) {
        descriptors = (uint4 *)(scratch + GW_MAILBOX_SLOT_DESCRIPTORS);
        parameters = (gw_u64 *)(scratch + GW_MAILBOX_SLOT_PARAMETERS(bin_packets));
        outcomes = (uint2 *)(scratch + GW_MAILBOX_SLOT_OUTCOMES(bin_packets));
        trails = (gw_u32 *)(scratch + GW_MAILBOX_SLOT_TRAILS(bin_packets));
    }
    gw_chunk_arrays chunk;
    chunk.images = device.images;
    chunk.image_offsets = device.image_offsets;
    chunk.descriptors = (gw_descriptor *)descriptors;
    chunk.parameters = parameters;
    chunk.outcomes = (gw_outcome *)outcomes;
    chunk.trails = trails;
    chunk.scratch = scratch + GW_MAILBOX_SLOT_BYTES(bin_packets);
    chunk.scratch_packets = bin_packets;
    chunk.bins = 0;
    chunk.bin_count = 1;
    for (gw_u32 i = gw_lane_id(); i < GW_INSTANCES; i += gw_lane_count()) {
        instances[i].number = GW_INSTANCE_NONE;
    }
    /* The host may start its counters anywhere. */
    gw_u32 taken = box->finished;
    gw_seen last = {taken, 0, 0}; /* as lane 0 saw it */
    gw_barrier();
    if (gw_lane_id() == 0) {
        gw_store_release(&box->running, GW_MAILBOX_POLLING);
    }
    for (;;) {
        if (gw_lane_id() == 0) {
            last.units = 0;
            last = last.posted == taken ? gw_await(box, taken) : last;
            seen = last;
        }
        gw_barrier();
        if (gw_uniform(seen.posted) == taken) {
            break;
        }
        gw_u8 *place =
            (gw_u8 *)(box + 1) + (gw_u64)(taken % places) * GW_MAILBOX_SLOT_BYTES(bin_packets);
        uint4 *host_descriptors = (uint4 *)(place + GW_MAILBOX_SLOT_DESCRIPTORS);
        const gw_u32 units = gw_uniform(seen.units);
        const gw_u32 first = units != 0 ? gw_uniform(seen.first) : 0;
        /* All loads at once, whatever the bin holds: each costs the same trip over the bus. */
        const uint4 *host_words = (const uint4 *)device.host + (gw_u64)first * GW_UNIT_WORDS;
        uint4 words[GW_NEAR_LANE_WORDS];
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_NEAR_LANE_WORDS; i++) {
            const gw_u32 word = gw_lane_id() + i * GW_GROUP_LANES;
            words[i] = word < units * GW_UNIT_WORDS ? host_words[word] : make_uint4(0, 0, 0, 0);
        }
        for (gw_u32 i = gw_lane_id(); i < bin_packets; i += gw_lane_count()) {
            uint4 descriptor = host_descriptors[i];
            const gw_u64 parameter =
                ((const gw_u64 *)(place + GW_MAILBOX_SLOT_PARAMETERS(bin_packets)))[i];
            descriptor.x -= first;
            descriptors[i] = descriptor;
            parameters[i] = parameter;
        }
        if (gw_lane_id() == gw_lane_count() - 1) {
            const gw_u32 follows = gw_has_chain(device.images);
            const uint4 bin_words = *(const uint4 *)place;
            const gw_bin bin = *(const gw_bin *)&bin_words;
            gw_instance *slot = &instances[bin.instance % GW_INSTANCES];
            *slot = gw_instance_of(&device, slot, bin.instance);
            gw_begin_steps(&steps, bin, slot->image_offset, follows);
            reach = slot->reach;
        }
        GW_UNROLL
        for (gw_u32 i = 0; i < GW_NEAR_LANE_WORDS; i++) {
            const gw_u32 word = gw_lane_id() + i * GW_GROUP_LANES;
            if (word < units * GW_UNIT_WORDS) {
                near_words[word] = words[i];
            }
        }
        gw_barrier();
        const gw_u32 count = gw_uniform(steps.bin.count);
        if (units == 0) {
            gw_fetch(device.shadow, device.host, chunk.descriptors, count, reach);
            gw_barrier();
        }
        chunk.arena = units != 0 ? (gw_u8 *)near_words : device.shadow;
        gw_run_bin(&chunk, &steps, scratch, &prepared[gw_lane_id()]);
        gw_barrier();
        for (gw_u32 i = gw_lane_id(); i < count; i += gw_lane_count()) {
            uint4 descriptor = descriptors[i];
            descriptor.x += first;
            host_descriptors[i] = descriptor;
            ((uint2 *)(place + GW_MAILBOX_SLOT_OUTCOMES(bin_packets)))[i] = outcomes[i];
            if (steps.follows) {
                ((gw_u32 *)(place + GW_MAILBOX_SLOT_TRAILS(bin_packets)))[i] = trails[i];
            }
        }
        gw_return(chunk.arena, device.host + (gw_u64)first * GW_BUFFER_UNIT, chunk.descriptors,
                  chunk.outcomes, count, reach);
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
