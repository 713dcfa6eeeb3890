/*
 * Packet loop of a CPU core, which calls a function for one packet at a time. Memory accesses stall
 * the core, so the loop prefetches data for later packets. A frame is prefetched 2 * GW_AHEAD
 * packets before its use, and table data GW_AHEAD packets before its use.
 */
#ifndef GODWIT_LOOPS_CPU_H
#define GODWIT_LOOPS_CPU_H

/* Arguments of the packet loop on a CPU core. src/level.rs declares the same struct for Rust. */
typedef struct gw_bin_call {
    gw_u8 *arena;               /* base of the arena, 64-byte aligned */
    const gw_u8 *image;         /* the function's table image, 64-byte aligned */
    gw_descriptor *descriptors; /* one per packet; head and length change */
    const gw_u64 *parameters;   /* one per packet */
    gw_outcome *outcomes;       /* one per packet, written */
    gw_u32 count;               /* packets in the batch */
    gw_u32 variant;
    gw_u32 group; /* number of interleaved packets; 1: none; 0: none, but frames are prefetched */
    gw_u64 *counters; /* counters of the function on this worker */
} gw_bin_call;

/* Prefetch distance for table data, in packets. With 900,000 prefixes and random addresses, the
 * kernel `ipv4` takes 21, 15.3, 13.2 and 13.2 ns per packet at distances of 8, 16, 32 and 64. */
#define GW_AHEAD 32u

typedef void gw_packet_function(const gw_lane *, gw_descriptor *, gw_outcome *);
typedef void gw_touch_function(const gw_lane *, const gw_descriptor *);

/* Runs a function for each packet of a batch. The loop is inlined for each function, so the
 * compiler can call `packet` and `touch` directly. */
static inline __attribute__((always_inline)) void gw_bin_loop(const gw_bin_call *call,
                                                              gw_u32 variant,
                                                              gw_packet_function *packet,
                                                              gw_touch_function *touch)
{
    gw_u8 *arena = call->arena;
    gw_descriptor *descriptors = call->descriptors;
    const gw_u64 *parameters = call->parameters;
    gw_outcome *outcomes = call->outcomes;
    const gw_u32 count = call->count;
    gw_lane lane = {.image = call->image, .variant = variant, .counters = call->counters};
    gw_lane ahead = lane;

    for (gw_u32 i = 0; i < GW_AHEAD && i < count; i++) {
        ahead.buffer = arena + (gw_u64)descriptors[i].buffer * GW_BUFFER_UNIT;
        ahead.parameter = parameters[i];
        touch(&ahead, &descriptors[i]);
    }
    for (gw_u32 i = 0; i < count; i++) {
        if (i + 2 * GW_AHEAD < count) {
            const gw_descriptor *far = &descriptors[i + 2 * GW_AHEAD];
            __builtin_prefetch(arena + (gw_u64)far->buffer * GW_BUFFER_UNIT + far->head);
        }
        if (i + GW_AHEAD < count) {
            const gw_descriptor *near = &descriptors[i + GW_AHEAD];
            ahead.buffer = arena + (gw_u64)near->buffer * GW_BUFFER_UNIT;
            ahead.parameter = parameters[i + GW_AHEAD];
            touch(&ahead, near);
        }
        gw_descriptor descriptor = descriptors[i];
        gw_outcome outcome = {0, 0, 0, 0};
        lane.buffer = arena + (gw_u64)descriptor.buffer * GW_BUFFER_UNIT;
        lane.parameter = parameters[i];
        packet(&lane, &descriptor, &outcome);
        descriptors[i].head = descriptor.head;
        descriptors[i].length = descriptor.length;
        outcomes[i] = outcome;
    }
}

/* Defines an empty prefetch function, for packet functions without table data. */
#define GW_NO_TOUCH(name)                                                                          \
    GW_LANE void gw_##name##_touch(const gw_lane *lane, const gw_descriptor *descriptor)           \
    {                                                                                              \
        (void)lane;                                                                                \
        (void)descriptor;                                                                          \
    }

/* Defines gw_bin_<name>, the packet loop of a function that gopt does not transform. Variants 0 and
 * 1 have separate code, in which the variant is a constant. */
#define GW_BIN_LOOP(name)                                                                          \
    static __attribute__((noinline)) void gw_bin_##name(const gw_bin_call *call)                   \
    {                                                                                              \
        switch (call->variant) {                                                                   \
        case 0:                                                                                    \
            gw_bin_loop(call, 0, gw_##name##_packet, gw_##name##_touch);                           \
            break;                                                                                 \
        case 1:                                                                                    \
            gw_bin_loop(call, 1, gw_##name##_packet, gw_##name##_touch);                           \
            break;                                                                                 \
        default:                                                                                   \
            gw_bin_loop(call, call->variant, gw_##name##_packet, gw_##name##_touch);               \
            break;                                                                                 \
        }                                                                                          \
    }

#endif
