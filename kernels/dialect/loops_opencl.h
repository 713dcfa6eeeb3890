/* The entry of a chunk under OpenCL. One-dimensional; any number of groups. */
#ifndef GODWIT_LOOPS_OPENCL_H
#define GODWIT_LOOPS_OPENCL_H

#include "loops_device.h"

__kernel void gw_chunk(__global gw_u8 *arena, const __global gw_u8 *images,
                       const __global gw_u64 *image_offsets, __global gw_descriptor *descriptors,
                       const __global gw_u64 *parameters, __global gw_outcome *outcomes,
                       const __global gw_bin *bins, gw_u32 bin_count,
                       volatile __global gw_u32 *next_bin)
{
    __local gw_scratch scratch;
    __local gw_u32 taken;
    gw_u32 prepared = GW_PREPARED_NONE;
    gw_chunk_arrays chunk;
    chunk.arena = arena;
    chunk.images = images;
    chunk.image_offsets = image_offsets;
    chunk.descriptors = descriptors;
    chunk.parameters = parameters;
    chunk.outcomes = outcomes;
    chunk.bins = bins;
    chunk.bin_count = bin_count;
    for (gw_u32 turn = 0; turn < bin_count; turn++) {
        gw_barrier();
        if (gw_lane_id() == 0) {
            taken = atomic_inc(next_bin);
        }
        gw_barrier();
        const gw_u32 index = taken;
        if (index >= bin_count) {
            break;
        }
        const gw_bin bin = chunk.bins[index];
        gw_run_bin(&chunk, &bin, &scratch, &prepared);
    }
}

#endif
