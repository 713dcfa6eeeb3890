/*
 * The chain on a device: packets go from function to function without coming back to the host.
 *
 * When a function has settled the packets of a bin, the group looks up where their verdicts lead
 * (gw_chain, abi.h). Of all packets of the bin that are led on, those whose next function has the
 * lowest rank go first, so that ways that part and meet again are joined where they meet: a
 * function sees each packet of a bin in one turn. Where all packets go the same way they stay where
 * they are; otherwise those that go are packed side by side on a scratch, so that no lane is idle,
 * and brought back when the function has settled them.
 *
 * Nothing leaves the group: there is no launch, no list and no atomic of the whole device between
 * two functions, and it is the same for a launched chunk and for a persistent group's mailbox.
 *
 *   scratch     zeros | descriptors | outcomes | hops | origins        scratch_packets of each
 *
 * zeros: the parameter of packets that no host half has prepared, never written. hops: where each
 * packet of the bin goes next. origins: of packets on the scratch, their places in the bin. A bin's
 * parts begin at its place in the chunk's arrays.
 */
#ifndef GODWIT_LOOPS_CHAIN_H
#define GODWIT_LOOPS_CHAIN_H

/* A bound that is never reached: the rank of each turn's function is greater than the last. */
#define GW_TURNS_MAX 0xffffu

/* Of these images; the same in all lanes of all groups. */
GW_LANE gw_u32 gw_has_chain(const GW_GLOBAL gw_u8 *images)
{
    return (gw_u32)(((const GW_GLOBAL gw_chain *)images)->rows != 0);
}

GW_LANE const GW_GLOBAL gw_chain_stage *gw_chain_stages(const gw_chunk_arrays *chunk)
{
    return (const GW_GLOBAL gw_chain_stage *)((const GW_GLOBAL gw_chain *)chunk->images + 1);
}

GW_LANE const GW_GLOBAL gw_u64 *gw_desk_zeros(const gw_chunk_arrays *chunk)
{
    return (const GW_GLOBAL gw_u64 *)chunk->scratch;
}

GW_LANE GW_GLOBAL gw_descriptor *gw_desk_descriptors(const gw_chunk_arrays *chunk)
{
    return (GW_GLOBAL gw_descriptor *)(chunk->scratch + (gw_u64)chunk->scratch_packets * 8);
}

GW_LANE GW_GLOBAL gw_outcome *gw_desk_outcomes(const gw_chunk_arrays *chunk)
{
    return (GW_GLOBAL gw_outcome *)(chunk->scratch + (gw_u64)chunk->scratch_packets * 24);
}

GW_LANE GW_GLOBAL gw_u32 *gw_desk_hops(const gw_chunk_arrays *chunk)
{
    return (GW_GLOBAL gw_u32 *)(chunk->scratch + (gw_u64)chunk->scratch_packets * 32);
}

GW_LANE GW_GLOBAL gw_u32 *gw_desk_origins(const gw_chunk_arrays *chunk)
{
    return (GW_GLOBAL gw_u32 *)(chunk->scratch + (gw_u64)chunk->scratch_packets * 36);
}

/* Functions that led a packet on, by its trail. */
GW_LANE gw_u32 gw_trail_hops(gw_u32 trail)
{
    gw_u32 hops = 0;
    while (hops < GW_HOPS_MAX && (trail >> 8 * hops & 0xff) != GW_VERDICT_DROP) {
        hops++;
    }
    return hops;
}

/* Writes down where packets go that a function has settled: of the bin, or of those on the scratch.
 */
GW_GROUP void gw_settle_step(const gw_chunk_arrays *chunk, const GW_LOCAL gw_steps *steps,
                             gw_u32 turn)
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
        if (steps->in_scratch) {
            const gw_outcome outcome = gw_desk_outcomes(chunk)[from];
            to = (gw_u64)steps->bin.first + gw_desk_origins(chunk)[from];
            chunk->descriptors[to] = gw_desk_descriptors(chunk)[from];
            chunk->outcomes[to] = outcome;
            verdict = outcome.verdict;
        } else {
            verdict = chunk->outcomes[from].verdict;
        }
        gw_u32 trail = turn == 0 ? GW_TRAIL_NONE : chunk->trails[to];
        const gw_u32 behind = gw_trail_hops(trail);
        gw_u32 hop = GW_HOP_NONE;
        if (verdict < verdicts && behind < GW_HOPS_MAX) {
            hop = hops[verdict];
        }
        if (hop != GW_HOP_NONE) {
            trail = (trail & ~(0xffu << 8 * behind)) | verdict << 8 * behind;
        }
        chunk->trails[to] = trail;
        gw_desk_hops(chunk)[to] = hop;
    }
}

/* Packs those side by side that go on now. */
GW_GROUP void gw_pack_desk(const gw_chunk_arrays *chunk, GW_LOCAL gw_steps *steps, gw_u32 hop)
{
    const gw_u64 first = steps->bin.first;
    for (gw_u32 i = gw_lane_id(); i < steps->bin.count; i += gw_lane_count()) {
        if (gw_desk_hops(chunk)[first + i] == hop) {
            const gw_u64 to = first + gw_local_add(&steps->count, 1);
            gw_desk_descriptors(chunk)[to] = chunk->descriptors[first + i];
            gw_desk_origins(chunk)[to] = i;
        }
    }
}

/*
 * Finds where the bin goes next, by all lanes; 0 when all its packets are done. Four barriers: what
 * functions said is there; every packet's hop is; their least and most are; all are packed.
 */
GW_GROUP gw_u32 gw_follow(const gw_chunk_arrays *chunk, GW_LOCAL gw_steps *steps, gw_u32 turn)
{
    if (!gw_uniform(steps->follows)) {
        return 0;
    }
    gw_barrier();
    gw_settle_step(chunk, steps, turn);
    if (gw_lane_id() == 0) {
        steps->least = GW_HOP_NONE;
        steps->most = 0;
    }
    gw_barrier();
    gw_u32 least = GW_HOP_NONE;
    gw_u32 most = 0;
    for (gw_u32 i = gw_lane_id(); i < steps->bin.count; i += gw_lane_count()) {
        const gw_u32 hop = gw_desk_hops(chunk)[(gw_u64)steps->bin.first + i];
        least = hop < least ? hop : least;
        most = hop > most ? hop : most;
    }
    gw_local_min(&steps->least, least);
    gw_local_max(&steps->most, most);
    gw_barrier();
    const gw_u32 hop = gw_uniform(steps->least);
    if (hop == GW_HOP_NONE) {
        return 0;
    }
    const gw_u32 together = (gw_u32)(gw_uniform(steps->most) == hop);
    if (gw_lane_id() == 0) {
        const gw_u32 instance = hop & 0xffff;
        const gw_chain_stage stop = gw_chain_stages(chunk)[instance];
        steps->count = together ? steps->bin.count : 0;
        steps->in_scratch = !together;
        steps->led_on = 1;
        steps->image_offset = chunk->image_offsets[instance];
        steps->bin.instance = (gw_u16)instance;
        steps->bin.kernel = (gw_u8)stop.kernel;
        steps->bin.variant = (gw_u8)stop.variant;
    }
    gw_barrier();
    if (!together) {
        gw_pack_desk(chunk, steps, hop);
        gw_barrier();
    }
    return 1;
}

#endif
