/*
 * The loop around lane functions on a device, the same for OpenCL and CUDA: a
 * group of lanes takes the next bin of the chunk until none is left, and its
 * lanes share the packets of the bin.
 *
 * Bins are sorted longest first and taken by a counter, so that a group which
 * got a long bin takes fewer of them (longest processing time first, PIPSEA,
 * Park et al., ANCS 2016). The host zeroes the counter before each launch; the
 * number of groups is free.
 *
 * The barriers: nobody leaves a bin before all of the group's lanes are done
 * with it, so scratch memory and the shared bin index may be written anew.
 */
#ifndef GODWIT_LOOPS_DEVICE_H
#define GODWIT_LOOPS_DEVICE_H

/* The arrays of one chunk, in memory that the device can reach. */
typedef struct gw_chunk_arrays {
    GW_GLOBAL gw_u8 *arena;                /* 64-byte aligned */
    const GW_GLOBAL gw_u8 *images;         /* base of all table images, 64-byte aligned */
    const GW_GLOBAL gw_u64 *image_offsets; /* per instance, bytes from the base, multiples of 64 */
    GW_GLOBAL gw_descriptor *descriptors;
    const GW_GLOBAL gw_u64 *parameters;
    GW_GLOBAL gw_outcome *outcomes;
    const GW_GLOBAL gw_bin *bins;
    gw_u32 bin_count;
} gw_chunk_arrays;

/* As large and as aligned as the scratch memory of any function. */
#define GW_SCRATCH_FIELD(number, name, scratch_bytes)                                              \
    gw_u8 name##_bytes[(scratch_bytes) > 0 ? (scratch_bytes) : 1];
typedef union gw_scratch {
    gw_u64 words;
    GW_FUNCTIONS(GW_SCRATCH_FIELD)
} gw_scratch;

/* OpenCL has no function pointers, so the loop over a bin's packets is a macro. */
#define GW_DEVICE_CASE(number, name, scratch_bytes)                                                \
    case number:                                                                                   \
        gw_##name##_group(lane.image, scratch);                                                    \
        for (gw_u32 i = gw_lane_id(); i < bin.count; i += gw_lane_count()) {                       \
            const gw_u32 index = bin.first + i;                                                    \
            gw_descriptor descriptor = chunk->descriptors[index];                                  \
            gw_outcome outcome = {0, 0, 0, 0};                                                     \
            lane.window = chunk->arena + (gw_u64)descriptor.window * GW_WINDOW_UNIT;               \
            lane.parameter = chunk->parameters[index];                                             \
            gw_##name##_packet(&lane, &descriptor, &outcome);                                      \
            chunk->descriptors[index] = descriptor;                                                \
            chunk->outcomes[index] = outcome;                                                      \
        }                                                                                          \
        break;

/* One bin, by all lanes of a group. The switch goes the same way in all of them. */
GW_GROUP void gw_run_bin(const gw_chunk_arrays *chunk, gw_u32 bin_index, GW_LOCAL gw_u8 *scratch)
{
    const gw_bin bin = chunk->bins[bin_index];
    gw_lane lane;
    lane.window = chunk->arena;
    lane.image = chunk->images + chunk->image_offsets[bin.instance];
    lane.parameter = 0;
    lane.variant = bin.variant;
    lane.scratch = scratch;
    switch (bin.kernel) {
        GW_FUNCTIONS(GW_DEVICE_CASE)
    default:
        break;
    }
}

#endif
