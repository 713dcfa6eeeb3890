/*
 * Device loops over packets, which OpenCL and CUDA share.
 *
 * In a kernel launch, each work-group takes the next batch of packets from a counter until no batch
 * is left. Batches are sorted longest first, so a work-group with a long batch takes fewer batches
 * (longest processing time first; PIPSEA, Park et al., ANCS 2016). The host zeroes the counter
 * before each launch. Any number of work-groups is valid. A batch with several kinds of processing
 * consists of parts (GW_PART_MORE). The work-group that takes the first part also runs the others.
 *
 * Barriers ensure that all threads of the work-group have finished a batch before any thread
 * continues. The local memory and the index of the batch can then be overwritten.
 */
#ifndef GODWIT_LOOPS_DEVICE_H
#define GODWIT_LOOPS_DEVICE_H

#include "../groups.h"

/* Packet arrays of one kernel launch, in memory that the device can access. */
typedef struct gw_chunk_arrays {
    GW_GLOBAL gw_u8 *arena;        /* 64-byte aligned */
    const GW_GLOBAL gw_u8 *images; /* base of all table images, 64-byte aligned; gw_chain first */
    const GW_GLOBAL gw_u64 *image_offsets; /* per instance, bytes from the base, multiples of 64 */
    GW_GLOBAL gw_descriptor *descriptors;
    const GW_GLOBAL gw_u64 *parameters;
    GW_GLOBAL gw_outcome *outcomes;
    GW_GLOBAL gw_u32 *trails;       /* one per packet; only with a chain */
    GW_GLOBAL gw_u8 *chain_scratch; /* packed packets; only with a chain (loops_chain.h) */
    gw_u32 chain_packets;           /* capacity of chain_scratch, in packets */
    const GW_GLOBAL gw_bin *bins;
    gw_u32 bin_count;
} gw_chunk_arrays;

/* Local memory of a work-group. Each function has a separate part, which other functions leave
 * unchanged. */
#define GW_SCRATCH_FIELD(name) gw_##name##_scratch name##_;
typedef struct gw_scratch {
    gw_u64 words[2];
    GW_GROUP_FORMS(GW_SCRATCH_FIELD)
} gw_scratch;

/* Records which configured function has prepared each part of the local memory. */
#define GW_PREPARED_FIELD(name) gw_u32 name##_;
typedef struct gw_prepared {
    gw_u32 none;
    GW_GROUP_FORMS(GW_PREPARED_FIELD)
} gw_prepared;

/* No function has prepared this part of the local memory. */
#define GW_PREPARED_NONE   0xffffffffu
#define GW_UNPREPARE(name) prepared->name##_ = GW_PREPARED_NONE;

GW_LANE void gw_unprepare(gw_prepared *prepared)
{
    prepared->none = GW_PREPARED_NONE;
    GW_GROUP_FORMS(GW_UNPREPARE)
}

/* Processes a packet batch with one thread per packet. This is a macro, because OpenCL has no
 * function pointers. */
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

/* Processes a packet batch with several threads per packet. First prepares the work-group's local
 * memory if it holds another function's data. */
#define GW_BY_GROUP(name)                                                                          \
    if (prepared->name##_ != steps->bin.instance) {                                                \
        gw_##name##_prepare(work.image, &scratch->name##_);                                        \
        prepared->name##_ = steps->bin.instance;                                                   \
    }                                                                                              \
    gw_##name##_bin(&work, &scratch->name##_);

/* With GW_LANE_FORMS, all functions run with one thread per packet, and all packets return to the
 * host after each function. Compilers that cannot handle barriers in functions need this mode. */
#ifdef GW_LANE_FORMS
#define GW_GROUP_FORM GW_BY_LANE
#else
#define GW_GROUP_FORM GW_BY_GROUP
#endif

#define GW_DEVICE_CASE(number, name)                                                               \
    case number:                                                                                   \
        GW_FORM_##name(name) break;

/* State of the current batch in local memory. Thread 0 initialises it, and a barrier follows. */
typedef struct gw_steps {
    gw_bin bin;          /* the batch; instance, kernel and variant change with each function */
    gw_u64 image_offset; /* offset of the function's table image from the base of all images */
    gw_u32 count;        /* packets that the current function processes */
    gw_u32 continued;    /* whether these packets come from another function on the device */
    gw_u32 packed;       /* whether these packets are packed in the chain scratch */
    gw_u32 has_chain;    /* value of gw_has_chain */
    gw_u32 hop_min;      /* minimum of the packets' next functions */
    gw_u32 hop_max;      /* maximum of the packets' next functions */
} gw_steps;

/* Initialises the state for a new batch of packets. Only thread 0 calls this function. */
GW_LANE void gw_begin_steps(GW_LOCAL gw_steps *steps, gw_bin bin, gw_u64 image_offset,
                            gw_u32 has_chain)
{
    steps->bin = bin;
    steps->image_offset = image_offset;
    steps->count = bin.count;
    steps->continued = 0;
    steps->packed = 0;
    steps->has_chain = has_chain;
}

#include "loops_chain.h"

/* Runs the current function for a batch of packets. All threads of the work-group call this
 * function and take the same branch. */
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
    if (gw_uniform(steps->continued)) {
        work.parameters = gw_chain_zeros(chunk) + first;
        if (steps->packed) {
            work.descriptors = gw_chain_descriptors(chunk) + first;
            work.outcomes = gw_chain_outcomes(chunk) + first;
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
 * Runs a packet batch through its function and all functions that follow on the device. All threads
 * of the work-group call this function after the barrier that follows gw_begin_steps. Each thread
 * passes its own object `prepared`.
 */
GW_GROUP void gw_run_bin(const gw_chunk_arrays *chunk, GW_LOCAL gw_steps *steps,
                         GW_LOCAL gw_scratch *scratch, gw_prepared *prepared)
{
#ifdef GW_LANE_FORMS
    gw_run_step(chunk, steps, scratch, prepared);
#else
    for (gw_u32 step = 0; step <= GW_STEPS_MAX; step++) {
        gw_run_step(chunk, steps, scratch, prepared);
        if (!gw_next_step(chunk, steps, step)) {
            break;
        }
    }
#endif
}

#endif
