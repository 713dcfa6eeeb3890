/*
 * Templates of the packet loops that the tool gopt transforms (docs/gopt.md). The transformed loop
 * interleaves a group of packets. At each memory access that is likely to miss all caches, it
 * switches to another packet of the group. With a group size of 0 or 1, it processes one packet
 * after another. The build instantiates gw_bin_NAME for each function with such memory accesses.
 * Other functions use the loop in loops_cpu.h.
 */

#define GOPT_GROUP     group
#define GOPT_GROUP_MAX 64

/* Prefetch distance for frames, in packets, measured with `bench ipv4`. */
#define GW_FRAMES_AHEAD 32u

#define GW_PROBE_READS 4u

/* Returns the next state of the SplitMix64 generator. */
GW_LANE gw_u64 gw_probe_next(gw_u64 state)
{
    state = (state + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    return state ^ state >> 31;
}

/* Returns the offset of a pseudo-random cache line. */
GW_LANE gw_u64 gw_probe_line(gw_u64 state, gw_u64 lines)
{
    return (state >> 32) * lines >> 32 << 6;
}

static gw_u64 gw_probe_chain(const gw_u8 *image, gw_u64 lines, gw_u64 seed, gw_u32 reads)
{
    gw_u64 state = seed;
    for (gw_u32 read = 0; read < reads; read++) {
        state = gw_probe_next(state);
        state ^= image[gw_probe_line(state, lines)];
    }
    return state;
}

/* begin NAME */
static __attribute__((noinline, flatten)) void gw_bin_NAME(const gw_bin_call *call)
{
    gw_u8 *arena = call->arena;
    const gw_u8 *image = call->image;
    gw_descriptor *descriptors = call->descriptors;
    const gw_u64 *parameters = call->parameters;
    gw_outcome *outcomes = call->outcomes;
    const gw_u32 count = call->count;
    const gw_u32 variant = call->variant;
    const gw_u32 group = call->group;
    gw_u64 *counters = call->counters;

    for (gw_u32 i = 0; group != 1 && i < count && i < GW_FRAMES_AHEAD; i++) {
        GW_FETCH(arena + (gw_u64)descriptors[i].buffer * GW_BUFFER_UNIT + descriptors[i].head);
    }
    /* The packets are in different buffers, so the loop iterations are independent. */
#pragma gopt independent
    for (gw_u32 i = 0; i < count; i++) {
        if (group != 1 && i + GW_FRAMES_AHEAD < count) {
            const gw_descriptor *far = &descriptors[i + GW_FRAMES_AHEAD];
            GW_FETCH(arena + (gw_u64)far->buffer * GW_BUFFER_UNIT + far->head);
        }
        /* Use the descriptor in its array, because the transformed loop would save a local copy at
         * every switch between packets. */
        gw_descriptor *descriptor = descriptors + i;
        gw_outcome *outcome = outcomes + i;
        outcome->verdict = 0;
        outcome->reason = 0;
        outcome->port = 0;
        outcome->value = 0;
        /* These values differ between packets, so the transformed loop saves them at every
         * switch. */
        gw_u8 *buffer = arena + (gw_u64)descriptor->buffer * GW_BUFFER_UNIT;
        const gw_u64 parameter = parameters[i];
        const gw_lane lane = {buffer, image, parameter, variant, counters};
        gw_NAME_packet(&lane, descriptor, outcome);
    }
}
/* end NAME */

/* build: the other loops, and gw_run */

/*
 * Reads random cache lines of a table. The measured time selects the number of packets that the
 * loop interleaves. Each of `rounds` lookups reads GW_PROBE_READS lines, and each address depends
 * on the previous read.
 */
static gw_u64 gw_probe_table(const gw_u8 *image, gw_u64 lines, gw_u64 seed, gw_u32 rounds,
                             gw_u32 group)
{
    gw_u64 sum = 0;
    for (gw_u32 i = 0; i < rounds; i++) {
        gw_u64 state = seed + i;
        for (gw_u32 read = 0; read < GW_PROBE_READS; read++) {
            state = gw_probe_next(state);
            const gw_u8 *line = image + gw_probe_line(state, lines);
            GW_EXPENSIVE(line);
            state ^= *line;
        }
        sum += state;
    }
    return sum;
}
