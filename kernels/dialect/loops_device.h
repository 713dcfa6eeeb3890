/*
 * The loops around functions on a device, the same for OpenCL and CUDA.
 *
 * Launched: a group of lanes takes the next bin of the chunk until none is left.
 * Bins are sorted longest first and taken by a counter, so that a group which got
 * a long bin takes fewer of them (longest processing time first, PIPSEA, Park et
 * al., ANCS 2016). The host zeroes the counter before each launch; the number of
 * groups is free. The parts of a bin of several variants (GW_PART_MORE) stay with
 * the group that took the first.
 *
 * The barriers: nobody leaves a bin before all of the group's lanes are done with
 * it, so scratch memory and the shared bin index may be written anew.
 */
#ifndef GODWIT_LOOPS_DEVICE_H
#define GODWIT_LOOPS_DEVICE_H

#include "../groups.h"

/* The arrays of one chunk, in memory that the device can reach. */
typedef struct gw_chunk_arrays {
    GW_GLOBAL gw_u8 *arena;        /* 64-byte aligned */
    const GW_GLOBAL gw_u8 *images; /* base of all table images, 64-byte aligned; gw_chain first */
    const GW_GLOBAL gw_u64 *image_offsets; /* per instance, bytes from the base, multiples of 64 */
    GW_GLOBAL gw_descriptor *descriptors;
    const GW_GLOBAL gw_u64 *parameters;
    GW_GLOBAL gw_outcome *outcomes;
    GW_GLOBAL gw_u32 *trails; /* per packet, where there is a chain */
    GW_GLOBAL gw_u8
        *scratch; /* where packets are packed anew, where there is a chain (loops_chain.h) */
    gw_u32 scratch_packets; /* places of the scratch */
    const GW_GLOBAL gw_bin *bins;
    gw_u32 bin_count;
} gw_chunk_arrays;

/* The memory of a group: a part for each function, so that a chain leaves what is prepared. */
#define GW_SCRATCH_FIELD(name) gw_##name##_scratch name##_;
typedef struct gw_scratch {
    gw_u64 words[2];
    GW_GROUP_FORMS(GW_SCRATCH_FIELD)
} gw_scratch;

/* What each part of the scratch memory holds: for which configured function it is prepared. */
#define GW_PREPARED_FIELD(name) gw_u32 name##_;
typedef struct gw_prepared {
    gw_u32 none;
    GW_GROUP_FORMS(GW_PREPARED_FIELD)
} gw_prepared;

/* Nothing yet. */
#define GW_PREPARED_NONE   0xffffffffu
#define GW_UNPREPARE(name) prepared->name##_ = GW_PREPARED_NONE;

GW_LANE void gw_unprepare(gw_prepared *prepared)
{
    prepared->none = GW_PREPARED_NONE;
    GW_GROUP_FORMS(GW_UNPREPARE)
}

/* OpenCL has no function pointers, so the loop over a bin's packets is a macro. */
#define GW_BY_LANE(name)                                                                           \
    for (gw_u32 i = gw_lane_id(); i < work.count; i += gw_lane_count()) {                          \
        gw_descriptor descriptor = work.descriptors[i];                                            \
        gw_outcome outcome = {0, 0, 0, 0};                                                         \
        gw_lane lane;                                                                              \
        lane.buffer = work.arena + (gw_u64)descriptor.buffer * GW_BUFFER_UNIT;                     \
        lane.image = work.image;                                                                   \
        lane.parameter = work.parameters[i];                                                       \
        lane.variant = work.variant;                                                               \
        gw_##name##_packet(&lane, &descriptor, &outcome);                                          \
        work.descriptors[i] = descriptor;                                                          \
        work.outcomes[i] = outcome;                                                                \
    }

/* What is prepared stays until the group comes to another configured function. */
#define GW_BY_GROUP(name)                                                                          \
    if (prepared->name##_ != steps->bin.instance) {                                                \
        gw_##name##_prepare(work.image, &scratch->name##_);                                        \
        prepared->name##_ = steps->bin.instance;                                                   \
    }                                                                                              \
    gw_##name##_bin(&work, &scratch->name##_);

/* GW_LANE_FORMS: for compilers that do not cope with barriers inside of functions. No chain then.
 */
#ifdef GW_LANE_FORMS
#define GW_GROUP_FORM GW_BY_LANE
#else
#define GW_GROUP_FORM GW_BY_GROUP
#endif

#define GW_DEVICE_CASE(number, name)                                                               \
    case number:                                                                                   \
        GW_FORM_##name(name) break;

/*
 * What all lanes of a group know of the bin that it works on, in local memory. Lane 0 fills it and
 * a barrier follows.
 */
typedef struct gw_steps {
    gw_bin bin;          /* its place in the arrays; function and variant as they are now */
    gw_u64 image_offset; /* of that function's image, from all images' base */
    gw_u32 count;        /* packets that are at that function */
    gw_u32 led_on;       /* whether another function led them there: no host half prepared them */
    gw_u32 in_scratch;   /* whether they lie on the scratch, and not where the bin does */
    gw_u32 follows;      /* whether there is a chain: gw_has_chain */
    gw_u32 least;        /* of all packets' hops */
    gw_u32 most;
} gw_steps;

/* By lane 0. */
GW_LANE void gw_begin_steps(GW_LOCAL gw_steps *steps, gw_bin bin, gw_u64 image_offset,
                            gw_u32 follows)
{
    steps->bin = bin;
    steps->image_offset = image_offset;
    steps->count = bin.count;
    steps->led_on = 0;
    steps->in_scratch = 0;
    steps->follows = follows;
}

#include "loops_chain.h"

/* One function, by all lanes of a group. The switch goes the same way in all lanes. */
GW_GROUP void gw_run_step(const gw_chunk_arrays *chunk, const GW_LOCAL gw_steps *steps,
                          GW_LOCAL gw_scratch *scratch, gw_prepared *prepared)
{
    const gw_u32 first = steps->bin.first;
    gw_work work;
    work.arena = chunk->arena;
    work.image = chunk->images + steps->image_offset;
    work.descriptors = chunk->descriptors + first;
    work.parameters = chunk->parameters + first;
    work.outcomes = chunk->outcomes + first;
    if (gw_uniform(steps->led_on)) {
        work.parameters = gw_desk_zeros(chunk) + first;
        if (steps->in_scratch) {
            work.descriptors = gw_desk_descriptors(chunk) + first;
            work.outcomes = gw_desk_outcomes(chunk) + first;
        }
    }
    work.count = gw_uniform(steps->count);
    work.variant = gw_uniform(steps->bin.variant);
    work.length_bytes = steps->bin.length_bytes;
    (void)scratch;
    (void)prepared;
    switch (gw_uniform(steps->bin.kernel)) {
        GW_FUNCTIONS(GW_DEVICE_CASE)
    default:
        break;
    }
}

/*
 * One bin, through its function and those that follow on the device, by all lanes of a group, which
 * come from the barrier behind gw_begin_steps. prepared is the lane's own.
 */
GW_GROUP void gw_run_bin(const gw_chunk_arrays *chunk, GW_LOCAL gw_steps *steps,
                         GW_LOCAL gw_scratch *scratch, gw_prepared *prepared)
{
#ifdef GW_LANE_FORMS
    gw_run_step(chunk, steps, scratch, prepared);
#else
    for (gw_u32 turn = 0; turn <= GW_TURNS_MAX; turn++) {
        gw_run_step(chunk, steps, scratch, prepared);
        if (!gw_follow(chunk, steps, turn)) {
            break;
        }
    }
#endif
}

#endif
