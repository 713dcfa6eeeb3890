/*
 * The loops that gopt transforms (docs/gopt.md): packets of a bin take turns while
 * what they fetch is under way. build.rs writes gw_bin_NAME once for each function
 * that has expensive accesses; the others have loops_cpu.h. With a group of 0 or 1
 * it is the plain loop.
 */

#define GOPT_GROUP     group
#define GOPT_GROUP_MAX 64

/* Frames under way besides; bench ipv4. */
#define GW_FRAMES_AHEAD 32u

#define GW_PROBE_READS 4u

/* SplitMix64's step and mixing. */
GW_LANE gw_u64 gw_probe_next(gw_u64 state)
{
    state = (state + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    return state ^ state >> 31;
}

/* The offset of a line that a state names. */
GW_LANE gw_u64 gw_probe_line(gw_u64 state, gw_u64 lines)
{
    return (state >> 32) * lines >> 32 << 6;
}

/* How long a read takes when nothing else is under way: each waits for the one before. */
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

    /* Frames come in the order of the bin, so those of the packets that begin next are fetched. */
    for (gw_u32 i = 0; group != 1 && i < count && i < GW_FRAMES_AHEAD; i++) {
        GW_FETCH(arena + (gw_u64)descriptors[i].buffer * GW_BUFFER_UNIT + descriptors[i].head);
    }
    for (gw_u32 i = 0; i < count; i++) {
        if (group != 1 && i + GW_FRAMES_AHEAD < count) {
            const gw_descriptor *far = &descriptors[i + GW_FRAMES_AHEAD];
            GW_FETCH(arena + (gw_u64)far->buffer * GW_BUFFER_UNIT + far->head);
        }
        /* In its place: a copy would be saved at every switch. Of it head and length may change. */
        gw_descriptor *descriptor = descriptors + i;
        gw_outcome *outcome = outcomes + i;
        outcome->verdict = 0;
        outcome->reason = 0;
        outcome->port = 0;
        outcome->value = 0;
        /* Only what differs from packet to packet is saved at a switch. */
        gw_u8 *buffer = arena + (gw_u64)descriptor->buffer * GW_BUFFER_UNIT;
        const gw_u64 parameter = parameters[i];
        const gw_lane lane = {buffer, image, parameter, variant};
        gw_NAME_packet(&lane, descriptor, outcome);
    }
}
/* end NAME */

/* build.rs: the other loops, and gw_run */

/*
 * Reads at random places of a table, for choosing the group: each of `rounds` look-ups
 * reads GW_PROBE_READS lines, every place known from the line before.
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
