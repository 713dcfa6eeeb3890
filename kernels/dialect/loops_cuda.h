/*
 * Entry points of the kernels under CUDA. Grids are one-dimensional. A work-group is a CUDA block
 * of GW_GROUP_LANES threads.
 *
 *   gw_chunk        launched for each set of batches, with any number of work-groups
 *   gw_persistent   launched once; work-group i serves queue i until the host stops it
 *
 * The kernels work on a copy of all packet buffers in device memory, with the same offsets as in
 * host memory. Copy engines transfer the packet arrays of a launch, and contiguous packet buffers.
 * If the buffers are not contiguous, the work-group copies both over the bus (bus_cuda.h). A
 * persistent work-group always copies the data itself. It keeps contiguous buffers in shared memory
 * (GW_NEAR_WORDS).
 */
#ifndef GODWIT_LOOPS_CUDA_H
#define GODWIT_LOOPS_CUDA_H

#include "bus_cuda.h"

/* Arguments of both gw_chunk and gw_persistent. The device can access the memory behind all
 * pointers. */
typedef struct gw_device {
    gw_u8 *shadow;               /* copy of all packet buffers in device memory; 64-byte aligned */
    gw_u8 *host;                 /* all packet buffers in host memory, accessed over the bus */
    const gw_u8 *images;         /* base of all table images, 64-byte aligned */
    const gw_u64 *image_offsets; /* per configured function, bytes from the base of all images */
    const gw_reach *reaches;     /* per instance */
} gw_device;

/* Shared memory of the work-group. Its size exceeds the default limit of CUDA, so each launch must
 * request gw_scratch_bytes. */
#ifndef GW_SHARED_SCRATCH
#define GW_SHARED_SCRATCH(name) extern __shared__ uint4 name[]
#endif
GW_STATIC_ASSERT(sizeof(gw_scratch) <= 96 << 10, scratch_bytes);
extern "C" __device__ const gw_u32 gw_scratch_bytes = sizeof(gw_scratch);

/*
 * Takes the next packet batch of a launch, and loads its function's read and write limits. Returns
 * the index of the batch. The index is bin_count or more if no batch is left. Only thread 0 of the
 * work-group calls this function.
 *
 * If `more` is not 0, the next part of the current batch is at `index`. Otherwise, the function
 * skips later parts of other batches, and takes further indices from the counter `next_bin`.
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

/* Writes a word that the host reads, with release order. A host that sees the new value also sees
 * all earlier writes of the work-group. */
GW_LANE void gw_store_release(gw_u32 *address, gw_u32 value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/*
 * Signals the end of a launch to the host, earlier than the driver does. One thread of each
 * work-group calls this function after the barrier that follows its last batch. The last work-group
 * writes the flag.
 *
 * Memory order: each thread writes to host memory before the barrier, the barrier precedes the
 * fence, and the fence precedes the increment. The last work-group increments the counter after all
 * others and then releases the flag at system scope. Fences and releases are cumulative, so a host
 * that acquires the flag sees the writes of every work-group. A fence at system scope in each
 * work-group would also work, but it waits for the bus and costs 10 % under load.
 */
GW_LANE void gw_signal_done(gw_u32 *host_done, gw_u32 *ended)
{
    __threadfence();
    if (atomicInc(ended, gridDim.x - 1) == gridDim.x - 1) {
        gw_store_release(host_done, 1);
    }
}

/* Counters of one kernel launch, in device memory. Both counters are 0 before and after the launch.
 */
typedef struct gw_counters {
    gw_u32 next_bin;
    gw_u32 ended; /* number of work-groups that have finished */
} gw_counters;

/*
 * Processes the packet batches of one launch.
 *
 * If host_arrays is not 0, the work-groups copy packet data from and to the host. They set
 * host_done to 1 when all results are in host memory. If copy engines transfer the data instead,
 * host_arrays and host_done are 0. `bins` and `cycles` may be in host memory, because each element
 * is accessed only once.
 */
extern "C" __global__ void __launch_bounds__(GW_GROUP_LANES, GW_GROUPS_MIN)
    gw_chunk(gw_device device, gw_host_arrays host_arrays, gw_u64 *parameters,
             gw_descriptor *descriptors, gw_outcome *outcomes, gw_u32 *trails, const gw_bin *bins,
             gw_u32 bin_count, gw_counters *counters, gw_u32 *cycles, gw_u8 *chain_scratch,
             gw_u32 chain_packets, gw_u32 *host_done)
{
    gw_u32 *next_bin = &counters->next_bin;
    GW_SHARED_SCRATCH(shared);
    gw_scratch *scratch = (gw_scratch *)shared;
    __shared__ gw_steps steps;
    __shared__ gw_reach reach;
    __shared__ gw_u32 taken;
    __shared__ long long started;
    /* Cached preparation state per thread, in shared memory to save registers. Each thread reads
     * its element only once per batch. */
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
    chunk.chain_scratch = chain_scratch;
    chunk.chain_packets = chain_packets;
    chunk.bins = bins;
    chunk.bin_count = bin_count;
    if (gw_lane_id() == 0) {
        /* Work-group i starts with batch i. A counter assigns the remaining batches. */
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
        const gw_u32 has_chain = gw_uniform(steps.has_chain);
        if (host_arrays != 0) {
            gw_barrier();
            gw_return(device.shadow, device.host, descriptors + first, outcomes + first, count,
                      reach);
        }
        gw_barrier();
        if (host_arrays != 0) {
            gw_return_arrays(&chunk, host_arrays, has_chain, first, count);
        }
        if (gw_lane_id() == 0) {
            const long long now = clock64();
            cycles[taken] = (gw_u32)(now - started);
            started = now;
            /* Each batch increments this counter once. The last increment wraps to 0 for the next
             * launch. */
            const gw_u32 more = steps.bin.part & GW_PART_MORE;
            const gw_u32 index = more ? taken + 1 : gridDim.x + atomicInc(next_bin, bin_count - 1);
            taken = gw_take(&steps, &reach, &device, bins, bin_count, next_bin, index, more);
        }
        gw_barrier();
    }
    if (host_arrays != 0 && gw_lane_id() == 0) {
        gw_signal_done(host_done, &counters->ended);
    }
}

/* Words that the host writes in the queue of a work-group. */
typedef struct gw_mailbox_words {
    gw_u64 counters; /* posted | stop << 32 */
    gw_u64 extent;
} gw_mailbox_words;

/* Reads two words of the queue in one bus request, with acquire order. The host may write during
 * the request, so one word may be newer than the other. */
GW_LANE gw_mailbox_words gw_read_mailbox(const gw_mailbox *box)
{
    gw_mailbox_words words;
    asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words.counters), "=l"(words.extent)
                 : "l"(box)
                 : "memory");
    return words;
}

/* Number of polls after which the work-group of an empty queue starts to pause, and length of a
 * pause in nanoseconds. */
#define GW_POLLS_BEFORE_PAUSE 4096u
#define GW_PAUSE_NS           256u

/* Copy of the queue state. Thread 0 reads it and shares it with the rest of the work-group. */
typedef struct gw_mailbox_view {
    gw_u32 posted; /* value of gw_mailbox.posted; if no slot is new, the work-group must end */
    gw_u32 first;  /* first unit of the next batch's buffers, if they are contiguous */
    gw_u32 units;  /* length of these buffers, in units; 0: not contiguous, or not known */
} gw_mailbox_view;

/* Waits until the host fills the next slot or stops the work-group. Only one thread of the
 * work-group calls this function. */
GW_LANE gw_mailbox_view gw_await(const gw_mailbox *box, gw_u32 taken)
{
    gw_mailbox_words words = gw_read_mailbox(box);
    for (gw_u32 polls = 0; words.counters == taken; polls++) {
        if (polls >= GW_POLLS_BEFORE_PAUSE) {
            __nanosleep(GW_PAUSE_NS);
        }
        words = gw_read_mailbox(box);
    }
    gw_mailbox_view view;
    view.posted = (gw_u32)words.counters;
    /* `extent` may be older or newer than the counters. It is valid only if its upper 16 bits match
     * `posted`. */
    const gw_u32 matches =
        view.posted == taken + 1 && words.extent >> 48 == (view.posted & 0xffffu);
    view.first = (gw_u32)words.extent;
    view.units = matches ? (gw_u32)(words.extent >> 32) & 0xffffu : 0;
    return view;
}

/*
 * Capacity for packet buffers in a work-group's shared memory, in words of 16 bytes. A load from
 * shared memory takes a tenth of the time of a load from device memory.
 *
 * The queue contains the address range of the packet buffers, so the work-group loads the buffers
 * together with the slot. A batch of packets then waits for one bus round trip instead of two.
 */
#define GW_NEAR_WORDS (GW_EXTENT_UNITS_MAX * GW_UNIT_WORDS)

/* Number of words that each thread copies when packet buffers move to shared memory. */
#define GW_NEAR_LANE_WORDS ((GW_NEAR_WORDS + GW_GROUP_LANES - 1) / GW_GROUP_LANES)

/* Maximum number of packets for which a persistent work-group keeps all packet arrays in shared
 * memory. */
#define GW_NEAR_PACKETS 64u

/* Cached data of a configured function, which never changes. */
typedef struct gw_instance {
    gw_u64 image_offset;
    gw_reach reach;
    gw_u32 number; /* index of the configured function */
} gw_instance;

#define GW_INSTANCES     16u
#define GW_INSTANCE_NONE 0xffffffffu

/* Returns the data of a configured function. Reads device memory only if `cached` holds another
 * function. */
GW_LANE gw_instance gw_instance_of(const gw_device *device, const gw_instance *cached,
                                   gw_u32 number)
{
    gw_instance instance = *cached;
    if (instance.number != number) {
        instance.number = number;
        instance.image_offset = device->image_offsets[number];
        instance.reach = device->reaches[number];
    }
    return instance;
}

/*
 * Serves one queue of batches per work-group until the host stops it. Persistent work-groups exist
 * for low latency rather than for throughput, so a work-group may use all registers of a
 * multiprocessor.
 *
 * The work-group works on a copy of the queue slot. Each access to the slot crosses the bus, so the
 * slot is read once and written once. Copies of small batches are in shared memory.
 *
 * The device memory `group_areas` holds two parts per work-group: a queue slot (abi.h) for batches
 * of more than GW_NEAR_PACKETS packets, and the scratch memory of the function chain.
 */
extern "C" __global__ void __launch_bounds__(GW_GROUP_LANES)
    gw_persistent(gw_device device, gw_u8 *mailboxes, gw_u64 mailbox_bytes, gw_u32 slots,
                  gw_u32 bin_packets, gw_u8 *group_areas)
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
    __shared__ gw_mailbox_view view;
    __shared__ gw_reach reach;
    /* Cached preparation state per thread, in shared memory to save registers. Each thread reads
     * its element only once per batch. */
    __shared__ gw_prepared prepared[GW_GROUP_LANES];
    gw_unprepare(&prepared[gw_lane_id()]);
    gw_mailbox *box = (gw_mailbox *)(mailboxes + blockIdx.x * mailbox_bytes);
    gw_u8 *area = group_areas + (gw_u64)blockIdx.x * (GW_MAILBOX_SLOT_BYTES(bin_packets) +
                                                      GW_CHAIN_SCRATCH_BYTES(bin_packets));
    /* Each access is a bus request, so threads copy these arrays in the largest possible words. */
    uint4 *descriptors = near_descriptors;
    gw_u64 *parameters = near_parameters;
    uint2 *outcomes = near_outcomes;
    gw_u32 *trails = near_trails;
    if (bin_packets > GW_NEAR_PACKETS) {
        descriptors = (uint4 *)(area + GW_MAILBOX_SLOT_DESCRIPTORS);
        parameters = (gw_u64 *)(area + GW_MAILBOX_SLOT_PARAMETERS(bin_packets));
        outcomes = (uint2 *)(area + GW_MAILBOX_SLOT_OUTCOMES(bin_packets));
        trails = (gw_u32 *)(area + GW_MAILBOX_SLOT_TRAILS(bin_packets));
    }
    gw_chunk_arrays chunk;
    chunk.images = device.images;
    chunk.image_offsets = device.image_offsets;
    chunk.descriptors = (gw_descriptor *)descriptors;
    chunk.parameters = parameters;
    chunk.outcomes = (gw_outcome *)outcomes;
    chunk.trails = trails;
    chunk.chain_scratch = area + GW_MAILBOX_SLOT_BYTES(bin_packets);
    chunk.chain_packets = bin_packets;
    chunk.bins = 0;
    chunk.bin_count = 1;
    for (gw_u32 i = gw_lane_id(); i < GW_INSTANCES; i += gw_lane_count()) {
        instances[i].number = GW_INSTANCE_NONE;
    }
    /* The counters of the queue may start at any value. */
    gw_u32 taken = box->finished;
    gw_mailbox_view last = {taken, 0, 0}; /* valid in thread 0 */
    gw_barrier();
    if (gw_lane_id() == 0) {
        gw_store_release(&box->running, GW_MAILBOX_POLLING);
    }
    for (;;) {
        if (gw_lane_id() == 0) {
            last.units = 0;
            last = last.posted == taken ? gw_await(box, taken) : last;
            view = last;
        }
        gw_barrier();
        if (gw_uniform(view.posted) == taken) {
            break;
        }
        gw_u8 *slot =
            (gw_u8 *)(box + 1) + (gw_u64)(taken % slots) * GW_MAILBOX_SLOT_BYTES(bin_packets);
        uint4 *host_descriptors = (uint4 *)(slot + GW_MAILBOX_SLOT_DESCRIPTORS);
        const gw_u32 units = gw_uniform(view.units);
        const gw_u32 first = units != 0 ? gw_uniform(view.first) : 0;
        /* Each thread issues all its buffer loads at once, so they share one bus round trip. The
         * number of loads does not depend on the number of packets. */
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
                ((const gw_u64 *)(slot + GW_MAILBOX_SLOT_PARAMETERS(bin_packets)))[i];
            descriptor.x -= first;
            descriptors[i] = descriptor;
            parameters[i] = parameter;
        }
        if (gw_lane_id() == gw_lane_count() - 1) {
            const gw_u32 has_chain = gw_has_chain(device.images);
            const uint4 bin_words = *(const uint4 *)slot;
            const gw_bin bin = *(const gw_bin *)&bin_words;
            gw_instance *cached = &instances[bin.instance % GW_INSTANCES];
            *cached = gw_instance_of(&device, cached, bin.instance);
            gw_begin_steps(&steps, bin, cached->image_offset, has_chain);
            reach = cached->reach;
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
            ((uint2 *)(slot + GW_MAILBOX_SLOT_OUTCOMES(bin_packets)))[i] = outcomes[i];
            if (steps.has_chain) {
                ((gw_u32 *)(slot + GW_MAILBOX_SLOT_TRAILS(bin_packets)))[i] = trails[i];
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
