/*
 * Loop that passes packets from function to function on a device, without returning them to the
 * host.
 *
 * After a function has processed a batch of packets, the work-group looks up the next function of
 * each packet in gw_chain (abi.h). The entry for a verdict contains the index and the rank of the
 * next function. A function's rank is lower than the rank of every function that follows it.
 *
 * In each step, the work-group runs the next function with the lowest rank. Paths that split and
 * meet again are thus joined where they meet, and each function runs once per batch. If all packets
 * have the same next function, they stay in the arrays of the batch. Otherwise, the work-group
 * packs the continuing packets into separate memory, so that no thread is idle. It copies them back
 * after the function.
 *
 * The work-group needs no kernel launch, list or device-wide atomic operation between two
 * functions. A launched kernel and a persistent work-group use the same code.
 *
 * The separate memory (chain_scratch) holds five arrays of chain_packets elements:
 *
 *   zeros | descriptors | outcomes | hops | origins
 *
 *   zeros     parameters of packets that no host code has prepared; never written
 *   hops      the next function of each packet of the batch
 *   origins   for each packed packet, its index in the batch
 *
 * A batch uses the elements from bin.first onward, as in the packet arrays of the launch.
 */
#ifndef GODWIT_LOOPS_CHAIN_H
#define GODWIT_LOOPS_CHAIN_H

/* Upper bound for the number of functions that a device runs for one batch. Each function runs at
 * most once per batch, so the loop never reaches this bound. */
#define GW_STEPS_MAX 0xffffu

/* Returns whether the device runs a function chain. All threads get the same result. */
GW_LANE gw_u32 gw_has_chain(const GW_GLOBAL gw_u8 *images)
{
    return (gw_u32)(((const GW_GLOBAL gw_chain *)images)->rows != 0);
}

GW_LANE const GW_GLOBAL gw_chain_stage *gw_chain_stages(const gw_chunk_arrays *chunk)
{
    return (const GW_GLOBAL gw_chain_stage *)((const GW_GLOBAL gw_chain *)chunk->images + 1);
}

GW_LANE const GW_GLOBAL gw_u64 *gw_chain_zeros(const gw_chunk_arrays *chunk)
{
    return (const GW_GLOBAL gw_u64 *)chunk->chain_scratch;
}

GW_LANE GW_GLOBAL gw_descriptor *gw_chain_descriptors(const gw_chunk_arrays *chunk)
{
    return (GW_GLOBAL gw_descriptor *)(chunk->chain_scratch + (gw_u64)chunk->chain_packets * 8);
}

GW_LANE GW_GLOBAL gw_outcome *gw_chain_outcomes(const gw_chunk_arrays *chunk)
{
    return (GW_GLOBAL gw_outcome *)(chunk->chain_scratch + (gw_u64)chunk->chain_packets * 24);
}

GW_LANE GW_GLOBAL gw_u32 *gw_chain_hops(const gw_chunk_arrays *chunk)
{
    return (GW_GLOBAL gw_u32 *)(chunk->chain_scratch + (gw_u64)chunk->chain_packets * 32);
}

GW_LANE GW_GLOBAL gw_u32 *gw_chain_origins(const gw_chunk_arrays *chunk)
{
    return (GW_GLOBAL gw_u32 *)(chunk->chain_scratch + (gw_u64)chunk->chain_packets * 36);
}

/* Returns the number of functions that a packet has passed on the device after the first. */
GW_LANE gw_u32 gw_trail_hops(gw_u32 trail)
{
    gw_u32 hops = 0;
    while (hops < GW_HOPS_MAX && (trail >> 8 * hops & 0xff) != GW_VERDICT_DROP) {
        hops++;
    }
    return hops;
}

/* Stores each packet's next function, and adds its verdict to the record of its path. */
GW_GROUP void gw_record_hops(const gw_chunk_arrays *chunk, const GW_LOCAL gw_steps *steps,
                             gw_u32 step)
{
    const GW_GLOBAL gw_chain *chain = (const GW_GLOBAL gw_chain *)chunk->images;
    const gw_u32 verdicts = chain->verdicts;
    const GW_GLOBAL gw_u32 *hops =
        (const GW_GLOBAL gw_u32 *)(gw_chain_stages(chunk) + chain->instances) +
        (gw_u64)(steps->bin.instance * chain->rows + steps->bin.row) * verdicts;
    for (gw_u32 i = gw_lane_id(); i < steps->count; i += gw_lane_count()) {
        const gw_u64 from = (gw_u64)steps->bin.first + i;
        gw_u64 to = from;
        gw_u32 verdict;
        if (steps->packed) {
            const gw_outcome outcome = gw_chain_outcomes(chunk)[from];
            to = (gw_u64)steps->bin.first + gw_chain_origins(chunk)[from];
            chunk->descriptors[to] = gw_chain_descriptors(chunk)[from];
            chunk->outcomes[to] = outcome;
            verdict = outcome.verdict;
        } else {
            verdict = chunk->outcomes[from].verdict;
        }
        gw_u32 trail = step == 0 ? GW_TRAIL_NONE : chunk->trails[to];
        const gw_u32 count = gw_trail_hops(trail);
        gw_u32 hop = GW_HOP_NONE;
        if (verdict < verdicts && count < GW_HOPS_MAX) {
            hop = hops[verdict];
        }
        if (hop != GW_HOP_NONE) {
            trail = (trail & ~(0xffu << 8 * count)) | verdict << 8 * count;
        }
        chunk->trails[to] = trail;
        gw_chain_hops(chunk)[to] = hop;
    }
}

/* Packs the packets whose next function is `hop` into consecutive elements of separate memory.
 * Packets with other next functions then leave no thread idle. */
GW_GROUP void gw_pack_packets(const gw_chunk_arrays *chunk, GW_LOCAL gw_steps *steps, gw_u32 hop)
{
    const gw_u64 first = steps->bin.first;
    for (gw_u32 i = gw_lane_id(); i < steps->bin.count; i += gw_lane_count()) {
        if (gw_chain_hops(chunk)[first + i] == hop) {
            const gw_u64 to = first + gw_local_add(&steps->count, 1);
            gw_chain_descriptors(chunk)[to] = chunk->descriptors[first + i];
            gw_chain_origins(chunk)[to] = i;
        }
    }
}

/*
 * Selects the next function for a batch and the packets that it processes. Returns 0 if no packet
 * continues on the device.
 *
 * All threads of the work-group call this function, which contains four barriers. After each
 * barrier, every thread sees what the others have written.
 */
GW_GROUP gw_u32 gw_next_step(const gw_chunk_arrays *chunk, GW_LOCAL gw_steps *steps, gw_u32 step)
{
    if (!gw_uniform(steps->has_chain)) {
        return 0;
    }
    gw_barrier();
    gw_record_hops(chunk, steps, step);
    if (gw_lane_id() == 0) {
        steps->hop_min = GW_HOP_NONE;
        steps->hop_max = 0;
    }
    gw_barrier();
    gw_u32 hop_min = GW_HOP_NONE;
    gw_u32 hop_max = 0;
    for (gw_u32 i = gw_lane_id(); i < steps->bin.count; i += gw_lane_count()) {
        const gw_u32 hop = gw_chain_hops(chunk)[(gw_u64)steps->bin.first + i];
        hop_min = hop < hop_min ? hop : hop_min;
        hop_max = hop > hop_max ? hop : hop_max;
    }
    gw_local_min(&steps->hop_min, hop_min);
    gw_local_max(&steps->hop_max, hop_max);
    gw_barrier();
    const gw_u32 hop = gw_uniform(steps->hop_min);
    if (hop == GW_HOP_NONE) {
        return 0;
    }
    const gw_u32 same_hop = (gw_u32)(gw_uniform(steps->hop_max) == hop);
    if (gw_lane_id() == 0) {
        const gw_u32 instance = hop & 0xffff;
        const gw_chain_stage stage = gw_chain_stages(chunk)[instance];
        steps->count = same_hop ? steps->bin.count : 0;
        steps->packed = !same_hop;
        steps->continued = 1;
        steps->image_offset = chunk->image_offsets[instance];
        steps->bin.instance = (gw_u16)instance;
        steps->bin.kernel = (gw_u8)stage.kernel;
        steps->bin.variant = (gw_u8)stage.variant;
    }
    gw_barrier();
    if (!same_hop) {
        gw_pack_packets(chunk, steps, hop);
        gw_barrier();
    }
    return 1;
}

#endif
