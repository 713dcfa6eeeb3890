/* Inputs of packet functions, and helpers that write a packet's outcome. A function processes
 * either one packet per thread or one packet batch per work-group. */
#ifndef GODWIT_LANE_H
#define GODWIT_LANE_H

/* Inputs of a function that runs with one thread per packet. */
typedef struct gw_lane {
    GW_GLOBAL gw_u8 *buffer;      /* start of the packet's buffer in the arena, 64-byte aligned */
    const GW_GLOBAL gw_u8 *image; /* the function's table image, 64-byte aligned */
    gw_u64 parameter;             /* value from the part of the function that runs on the CPU */
    gw_u32 variant;               /* kind of processing, the same for all packets of a batch */
#ifndef gw_global_add
    gw_u64 *counters; /* counters of the function on this worker */
#endif
} gw_lane;

/* Inputs of a function that processes a batch of packets with all threads of a work-group. Each
 * array begins with the first packet of the batch. */
typedef struct gw_work {
    GW_GLOBAL gw_u8 *arena;       /* base of all buffer offsets; 64-byte aligned */
    const GW_GLOBAL gw_u8 *image; /* the function's table image, 64-byte aligned */
    GW_GLOBAL gw_descriptor *descriptors;
    const GW_GLOBAL gw_u64 *parameters;
    GW_GLOBAL gw_outcome *outcomes;
    gw_u32 count;        /* packets in the batch */
    gw_u32 variant;      /* the same for all packets of the batch */
    gw_u32 length_bytes; /* length of the longest frame */
} gw_work;

/*
 * Adds a number to a counter of the function. For each declared counter, a generated header
 * contains a wrapper of this function.
 *
 * Each CPU worker has its own counters. On other devices, the work-groups share the counters in the
 * table image, which begin at `offset`. A counter has 64 bits, and not all devices can add 64 bits
 * at once. The addition that overflows the lower half therefore also adds the carry.
 */
GW_LANE void gw_count(const gw_lane *lane, gw_u32 offset, gw_u32 index, gw_u32 value)
{
#ifdef gw_global_add
    volatile GW_GLOBAL gw_u32 *halves =
        (volatile GW_GLOBAL gw_u32 *)(lane->image + offset) + 2 * index;
    const gw_u32 before = gw_global_add(halves, value);
    if (before + value < before) {
        gw_global_add(halves + 1, 1u);
    }
#else
    (void)offset;
    lane->counters[index] += value;
#endif
}

/* Returns the first byte of a packet's frame. */
GW_LANE GW_GLOBAL gw_u8 *gw_frame(const gw_lane *lane, const gw_descriptor *descriptor)
{
    return lane->buffer + descriptor->head;
}

/* Writes a packet's outcome. `verdict` is an index into the function's verdicts. */
GW_LANE void gw_verdict(gw_outcome *outcome, gw_u32 verdict, gw_u32 port, gw_u32 value)
{
    outcome->verdict = (gw_u8)verdict;
    outcome->reason = 0;
    outcome->port = (gw_u16)port;
    outcome->value = value;
}

/* Writes the outcome of a dropped packet. `reason` is an index into the function's drop reasons. */
GW_LANE void gw_drop(gw_outcome *outcome, gw_u32 reason)
{
    outcome->verdict = GW_VERDICT_DROP;
    outcome->reason = (gw_u8)reason;
    outcome->port = 0;
    outcome->value = 0;
}

#endif
