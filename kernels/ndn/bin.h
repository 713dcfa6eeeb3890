/*
 * ndn over a bin on a CPU core, by hand: a block of packets goes through three steps together, and
 * each step fetches what the next one reads:
 *
 *   open    headers, TLVs, the hash of the first prefix that is tried    fetches its bucket
 *   choose  the slot with the fingerprint                                fetches its record
 *   end     the name, longer prefixes if there may be some, the headers that leave
 *
 * Longer prefixes are looked up as they come: few names have some.
 */
#ifndef GODWIT_NDN_BIN_H
#define GODWIT_NDN_BIN_H

/* A guess: other distances were not measured. */
#define GW_NDN_BLOCK 32u

typedef struct gw_ndn_job {
    gw_ndn_walk walk;
    gw_ndn_span span;
    gw_ndn_interest interest;
    gw_u32 open;  /* not settled */
    gw_u32 tries; /* the walk has come to a prefix */
} gw_ndn_job;

static inline const gw_ndn_bucket *gw_ndn_bucket_of(const gw_u8 *image, gw_u64 hash)
{
    const gw_ndn_image *header = (const gw_ndn_image *)image;
    return (const gw_ndn_bucket *)(image + header->buckets_offset) +
           gw_ndn_first_bucket(header, hash);
}

/* Starts to bring the record near that the first bucket says. */
static inline void gw_ndn_fetch_record(const gw_u8 *image, const gw_ndn_walk *walk)
{
    const gw_u8 *records = image + ((const gw_ndn_image *)image)->records_offset;
    const gw_ndn_bucket *bucket = gw_ndn_bucket_of(image, walk->whole);
    const gw_u32 fingerprint = (gw_u32)(walk->whole >> 32);
    gw_u32 record = 0;
    for (gw_u32 i = 0; i < GW_NDN_SLOTS; i++) {
        record = bucket->slots[i].fingerprint == fingerprint ? bucket->slots[i].record : record;
    }
    if (record != 0) {
        GW_FETCH(records + (gw_u64)record * 64);
        if (walk->at > 64 - sizeof(gw_ndn_record)) {
            GW_FETCH(records + (gw_u64)record * 64 + 64);
        }
    } else if (bucket->next != 0) {
        GW_FETCH((const gw_ndn_bucket *)(image + ((const gw_ndn_image *)image)->buckets_offset) +
                 bucket->next);
    }
}

static inline void gw_ndn_bin(const gw_bin_call *call)
{
    const gw_u8 *image = call->image;
    gw_ndn_job jobs[GW_NDN_BLOCK];
    gw_lane lane = {.image = image, .variant = 0};
    for (gw_u32 first = 0; first < call->count; first += GW_NDN_BLOCK) {
        const gw_u32 left = call->count - first;
        const gw_u32 count = left < GW_NDN_BLOCK ? left : GW_NDN_BLOCK;
        const gw_u32 next = left - count < GW_NDN_BLOCK ? left - count : GW_NDN_BLOCK;
        gw_descriptor *descriptors = call->descriptors + first;
        gw_outcome *outcomes = call->outcomes + first;
        for (gw_u32 i = 0; i < count; i++) {
            gw_ndn_job *job = &jobs[i];
            lane.window = call->arena + (gw_u64)descriptors[i].window * GW_WINDOW_UNIT;
            job->open =
                gw_ndn_begin(&lane, &descriptors[i], &job->span, &job->interest, &outcomes[i]);
            if (job->open) {
                gw_ndn_walk_begin(image, &job->walk);
                job->tries = gw_ndn_walk_next(gw_frame(&lane, &descriptors[i]) + job->interest.name,
                                              job->interest.name_bytes, &job->walk);
                if (job->tries) {
                    GW_FETCH(gw_ndn_bucket_of(image, job->walk.whole));
                }
            }
        }
        for (gw_u32 i = 0; i < next; i++) {
            const gw_descriptor *far = &descriptors[count + i];
            const gw_u8 *frame = call->arena + (gw_u64)far->window * GW_WINDOW_UNIT + far->head;
            GW_FETCH(frame);
            GW_FETCH(frame + 64);
        }
        for (gw_u32 i = 0; i < count; i++) {
            if (jobs[i].open && jobs[i].tries) {
                gw_ndn_fetch_record(image, &jobs[i].walk);
            }
        }
        for (gw_u32 i = 0; i < count; i++) {
            gw_ndn_job *job = &jobs[i];
            if (!job->open) {
                continue;
            }
            lane.window = call->arena + (gw_u64)descriptors[i].window * GW_WINDOW_UNIT;
            const gw_u8 *name = gw_frame(&lane, &descriptors[i]) + job->interest.name;
            if (job->tries) {
                gw_ndn_walk_found(image, gw_ndn_probe(image, name, job->walk.at, job->walk.whole),
                                  &job->walk);
            }
            const gw_u32 index = gw_ndn_walk_end(image, name, job->interest.name_bytes, &job->walk);
            gw_ndn_end(&lane, &descriptors[i], &job->span, &job->interest, index, &outcomes[i]);
        }
    }
}

#define GW_NDN_BIN(call, variant, name) gw_ndn_bin(call)

#endif
