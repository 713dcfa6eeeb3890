/* The entry of a chunk under CUDA. One-dimensional; any number of groups (thread blocks). */
#ifndef GODWIT_LOOPS_CUDA_H
#define GODWIT_LOOPS_CUDA_H

#include "loops_device.h"

extern "C" __global__ void gw_chunk(gw_u8 *arena, const gw_u8 *images, const gw_u64 *image_offsets,
                                    gw_descriptor *descriptors, const gw_u64 *parameters,
                                    gw_outcome *outcomes, const gw_bin *bins, gw_u32 bin_count,
                                    gw_u32 *next_bin)
{
    __shared__ gw_scratch scratch;
    __shared__ gw_u32 taken;
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
            taken = atomicAdd(next_bin, 1u);
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
