/*
 * The loops around functions on a device, the same for OpenCL and CUDA.
 *
 * Launched: a group of lanes takes the next bin of the chunk until none is left.
 * Bins are sorted longest first and taken by a counter, so that a group which got
 * a long bin takes fewer of them (longest processing time first, PIPSEA, Park et
 * al., ANCS 2016). The host zeroes the counter before each launch; the number of
 * groups is free.
 *
 * The barriers: nobody leaves a bin before all of the group's lanes are done with
 * it, so scratch memory and the shared bin index may be written anew.
 */
#ifndef GODWIT_LOOPS_DEVICE_H
#define GODWIT_LOOPS_DEVICE_H

#include "../groups.h"

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

/* The memory of a group: of one function at a time. */
#define GW_SCRATCH_FIELD(name) gw_##name##_scratch name##_;
typedef union gw_scratch {
    gw_u64 words[2];
    GW_GROUP_FORMS(GW_SCRATCH_FIELD)
} gw_scratch;

/* Says that scratch memory holds nothing yet. */
#define GW_PREPARED_NONE 0xffffffffu

/* OpenCL has no function pointers, so the loop over a bin's packets is a macro. */
#define GW_BY_LANE(name)                                                                           \
    for (gw_u32 i = gw_lane_id(); i < work.count; i += gw_lane_count()) {                          \
        gw_descriptor descriptor = work.descriptors[i];                                            \
        gw_outcome outcome = {0, 0, 0, 0};                                                         \
        gw_lane lane;                                                                              \
        lane.window = work.arena + (gw_u64)descriptor.window * GW_WINDOW_UNIT;                     \
        lane.image = work.image;                                                                   \
        lane.parameter = work.parameters[i];                                                       \
        lane.variant = work.variant;                                                               \
        gw_##name##_packet(&lane, &descriptor, &outcome);                                          \
        work.descriptors[i] = descriptor;                                                          \
        work.outcomes[i] = outcome;                                                                \
    }

/* What is prepared stays until the group comes to another configured function. */
#define GW_BY_GROUP(name)                                                                          \
    if (*prepared != bin->instance) {                                                              \
        gw_##name##_prepare(work.image, &scratch->name##_);                                        \
        *prepared = bin->instance;                                                                 \
    }                                                                                              \
    gw_##name##_bin(&work, &scratch->name##_);

/* GW_LANE_FORMS: for compilers that do not cope with barriers inside of functions. */
#ifdef GW_LANE_FORMS
#define GW_GROUP_FORM GW_BY_LANE
#else
#define GW_GROUP_FORM GW_BY_GROUP
#endif

#define GW_DEVICE_CASE(number, name)                                                               \
    case number:                                                                                   \
        GW_FORM_##name(name) break;

/*
 * One bin, by all lanes of a group: bin->first is its place in the arrays. The switch goes the
 * same way in all lanes. prepared is the lane's own and says what scratch memory holds; image is
 * that of the bin's instance.
 */
GW_GROUP void gw_run_bin_with(const gw_chunk_arrays *chunk, const gw_bin *bin,
                              const GW_GLOBAL gw_u8 *image, GW_LOCAL gw_scratch *scratch,
                              gw_u32 *prepared)
{
    gw_work work;
    work.arena = chunk->arena;
    work.image = image;
    work.descriptors = chunk->descriptors + bin->first;
    work.parameters = chunk->parameters + bin->first;
    work.outcomes = chunk->outcomes + bin->first;
    work.count = gw_uniform(bin->count);
    work.variant = gw_uniform(bin->variant);
    work.length_bytes = bin->length_bytes;
    (void)scratch;
    (void)prepared;
    switch (gw_uniform(bin->kernel)) {
        GW_FUNCTIONS(GW_DEVICE_CASE)
    default:
        break;
    }
}

GW_GROUP void gw_run_bin(const gw_chunk_arrays *chunk, const gw_bin *bin,
                         GW_LOCAL gw_scratch *scratch, gw_u32 *prepared)
{
    gw_run_bin_with(chunk, bin, chunk->images + chunk->image_offsets[bin->instance], scratch,
                    prepared);
}

#endif
