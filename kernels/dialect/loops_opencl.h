/*
 * Entry points of the kernels under OpenCL. Work sizes are one-dimensional.
 *
 * gw_chunk is launched for several batches of packets, with any number of work-groups.
 *
 * gw_persistent is launched once. Work-group i processes the batches in queue i, which it shares
 * with the host, until the host stops it. This kernel needs OpenCL C 2.0 for atomic operations
 * between host and device.
 */
#ifndef GODWIT_LOOPS_OPENCL_H
#define GODWIT_LOOPS_OPENCL_H

#include "loops_device.h"

__kernel void gw_chunk(__global gw_u8 *arena, const __global gw_u8 *images,
                       const __global gw_u64 *image_offsets, __global gw_descriptor *descriptors,
                       const __global gw_u64 *parameters, __global gw_outcome *outcomes,
                       const __global gw_bin *bins, gw_u32 bin_count,
                       volatile __global gw_u32 *next_bin, __global gw_u32 *trails,
                       __global gw_u8 *chain_scratch, gw_u32 chain_packets)
{
    __local gw_scratch scratch;
    __local gw_steps steps;
    __local gw_u32 taken;
    gw_prepared prepared;
    gw_unprepare(&prepared);
    gw_chunk_arrays chunk;
    chunk.arena = arena;
    chunk.images = images;
    chunk.image_offsets = image_offsets;
    chunk.descriptors = descriptors;
    chunk.parameters = parameters;
    chunk.outcomes = outcomes;
    chunk.trails = trails;
    chunk.chain_scratch = chain_scratch;
    chunk.chain_packets = chain_packets;
    chunk.bins = bins;
    chunk.bin_count = bin_count;
    for (gw_u32 iteration = 0; iteration < bin_count; iteration++) {
        gw_barrier();
        if (gw_lane_id() == 0) {
            /* Continue with the next part of the current batch, if any. Otherwise, take the next
             * batch, and skip the later parts of other batches. */
            const gw_u32 more = iteration > 0 ? steps.bin.part & GW_PART_MORE : 0;
            gw_u32 index = more ? taken + 1 : atomic_inc(next_bin);
            while (!more && index < bin_count && (bins[index].part & GW_PART_REST)) {
                index = atomic_inc(next_bin);
            }
            taken = index;
            if (index < bin_count) {
                const gw_bin bin = bins[index];
                gw_begin_steps(&steps, bin, image_offsets[bin.instance], gw_has_chain(images));
            }
        }
        gw_barrier();
        if (taken >= bin_count) {
            break;
        }
        gw_run_bin(&chunk, &steps, &scratch, &prepared);
    }
}

#if __OPENCL_C_VERSION__ >= 200

/*
 * Memory scope of atomic operations between host and device. Compilers of OpenCL C 3.0 may lack
 * this scope. The host then starts persistent work-groups only on CPU devices, where the device
 * scope includes the host.
 */
#if __OPENCL_C_VERSION__ == 200 || defined(__opencl_c_atomic_scope_all_devices)
#define GW_SCOPE_HOST memory_scope_all_svm_devices
#else
#define GW_SCOPE_HOST memory_scope_device
#endif

/* Reads a word that the host writes, with acquire order. A caller that sees a new value also sees
 * all earlier writes of the host. */
GW_LANE gw_u32 gw_load_acquire(volatile __global gw_u32 *word)
{
    return atomic_load_explicit((volatile __global atomic_uint *)word, memory_order_acquire,
                                GW_SCOPE_HOST);
}

/* Writes a word that the host reads, with release order. A host that sees the new value also sees
 * all earlier writes of the work-group. */
GW_LANE void gw_store_release(volatile __global gw_u32 *word, gw_u32 value)
{
    atomic_store_explicit((volatile __global atomic_uint *)word, value, memory_order_release,
                          GW_SCOPE_HOST);
}

/* Waits until the host fills the next slot of the queue. Returns 0 if the work-group must end. Only
 * one thread of the work-group calls this function. */
GW_LANE gw_u32 gw_await(volatile __global gw_mailbox *box, gw_u32 taken)
{
    while (gw_load_acquire(&box->posted) == taken) {
        /* The host writes `posted` before `stop`, so a thread that sees `stop` also sees the final
         * value of `posted`. */
        if (gw_load_acquire(&box->stop) != 0 && gw_load_acquire(&box->posted) == taken) {
            return 0;
        }
    }
    return 1;
}

/*
 * Serves one host queue per work-group. The design follows Hummingbird, algorithms 1 and 2. One
 * thread polls the queue while the other threads wait at a barrier. All threads then process the
 * batch in the slot. One thread reports completion, with one atomic store per batch.
 *
 * `slots` is a power of two, so the slot index stays correct when the counters wrap.
 */
__kernel void gw_persistent(__global gw_u8 *arena, const __global gw_u8 *images,
                            const __global gw_u64 *image_offsets, __global gw_u8 *mailboxes,
                            gw_u64 mailbox_bytes, gw_u32 slots, gw_u32 bin_packets,
                            __global gw_u8 *chain_scratch)
{
    __local gw_scratch scratch;
    __local gw_steps steps;
    __local gw_u32 go;
    gw_prepared prepared;
    gw_unprepare(&prepared);
    __global gw_u8 *base = mailboxes + get_group_id(0) * mailbox_bytes;
    volatile __global gw_mailbox *box = (volatile __global gw_mailbox *)base;
    gw_u32 taken = box->finished;
    gw_chunk_arrays chunk;
    chunk.arena = arena;
    chunk.images = images;
    chunk.image_offsets = image_offsets;
    chunk.chain_scratch =
        chain_scratch + get_group_id(0) * (gw_u64)GW_CHAIN_SCRATCH_BYTES(bin_packets);
    chunk.chain_packets = bin_packets;
    chunk.bins = 0;
    chunk.bin_count = 1;
    /* All threads must read `finished` before any thread writes it. */
    gw_barrier();
    if (gw_lane_id() == 0) {
        gw_store_release(&box->running, GW_MAILBOX_POLLING);
    }
    for (;;) {
        __global gw_u8 *slot = base + sizeof(gw_mailbox) +
                               (gw_u64)(taken & (slots - 1)) * GW_MAILBOX_SLOT_BYTES(bin_packets);
        if (gw_lane_id() == 0) {
            go = gw_await(box, taken);
            if (go != 0) {
                const gw_bin bin = *(const __global gw_bin *)slot;
                gw_begin_steps(&steps, bin, image_offsets[bin.instance], gw_has_chain(images));
            }
        }
        gw_barrier();
        if (go == 0) {
            break;
        }
        chunk.descriptors = (__global gw_descriptor *)(slot + GW_MAILBOX_SLOT_DESCRIPTORS);
        chunk.parameters =
            (const __global gw_u64 *)(slot + GW_MAILBOX_SLOT_PARAMETERS(bin_packets));
        chunk.outcomes = (__global gw_outcome *)(slot + GW_MAILBOX_SLOT_OUTCOMES(bin_packets));
        chunk.trails = (__global gw_u32 *)(slot + GW_MAILBOX_SLOT_TRAILS(bin_packets));
        gw_run_bin(&chunk, &steps, &scratch, &prepared);
        taken++;
        /* This barrier orders the writes of all threads before the store to `finished`. */
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

#endif
