/* What a lane, or a group of lanes, is given, and the ways in which it settles a packet. */
#ifndef GODWIT_LANE_H
#define GODWIT_LANE_H

/* What one lane knows of its packet. */
typedef struct gw_lane {
    GW_GLOBAL gw_u8 *buffer;      /* start of the packet's buffer in the arena, 64-byte aligned */
    const GW_GLOBAL gw_u8 *image; /* the function's table image, 64-byte aligned */
    gw_u64 parameter;             /* from the function's host half */
    gw_u32 variant;               /* the same for all packets of a bin */
} gw_lane;

/* What a group of lanes is given: one bin. The arrays begin with the bin's first packet. */
typedef struct gw_work {
    GW_GLOBAL gw_u8 *arena;       /* buffers count from here; 64-byte aligned */
    const GW_GLOBAL gw_u8 *image; /* the function's table image, 64-byte aligned */
    GW_GLOBAL gw_descriptor *descriptors;
    const GW_GLOBAL gw_u64 *parameters;
    GW_GLOBAL gw_outcome *outcomes;
    gw_u32 count;        /* packets in the bin */
    gw_u32 variant;      /* the same for all of them */
    gw_u32 length_bytes; /* the longest frame among them */
} gw_work;

/* The first byte of the frame. */
GW_LANE GW_GLOBAL gw_u8 *gw_frame(const gw_lane *lane, const gw_descriptor *descriptor)
{
    return lane->buffer + descriptor->head;
}

/* Settles a packet with a verdict of the contract. */
GW_LANE void gw_verdict(gw_outcome *outcome, gw_u32 verdict, gw_u32 port, gw_u32 value)
{
    outcome->verdict = (gw_u8)verdict;
    outcome->reason = 0;
    outcome->port = (gw_u16)port;
    outcome->value = value;
}

/* Drops a packet, for a drop reason of the contract. */
GW_LANE void gw_drop(gw_outcome *outcome, gw_u32 reason)
{
    outcome->verdict = GW_VERDICT_DROP;
    outcome->reason = (gw_u8)reason;
    outcome->port = 0;
    outcome->value = 0;
}

#endif
