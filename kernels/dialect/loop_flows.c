/*
 * Template of the host code that prepares packets for a function with flows. NAME is the name
 * of the function, UPPER is the prefix of its macros, and FLOW is the name of its flows.
 *
 * Packets pass three steps in groups, so that the loads of different packets overlap:
 *
 *   1. `find` reads the frame and returns the key. The bucket of the key is prefetched.
 *   2. The bucket is read, and the record that it names is prefetched.
 *   3. In the order of arrival: `miss` creates the flow if there is none, then `update` changes the
 *      row and returns the parameter of the kernel. Earlier packets may have created or removed the
 *      flow, so the record is compared with the key here.
 */
static gw_port_pool gw_NAME_pool(const gw_u8 *image, gw_u32 index);

/* Removes a flow, and gives back what it holds. */
static void gw_NAME_remove(gw_NAME *own, gw_u8 *record)
{
    gw_flow_meta *meta = (gw_flow_meta *)record;
    const gw_u32 index = (gw_u32)((gw_u64)(record - own->records) / UPPER_RECORD_BYTES);
    const gw_u64 *words = (const gw_u64 *)(record + UPPER_KEY_OFFSET);
    gw_flows_erase(own, gw_NAME_hash(own, words, GW_FORWARD), (index + 1) * 2);
    gw_NAME_unlimit(own, words);
    if (meta->used == 2) {
        words = (const gw_u64 *)(record + UPPER_REVERSE_OFFSET);
        gw_flows_erase(own, gw_NAME_hash(own, words, GW_REVERSE), (index + 1) * 2 + 1);
        gw_NAME_release(own, words);
    }
    meta->used = 0;
    own->free_records[own->free_count++] = index;
    own->active--;
}

/* Returns whether the timer of a flow has ended. */
static inline gw_u32 gw_NAME_is_over(const gw_NAME *own, const gw_u8 *record)
{
    const gw_flow_meta *meta = (const gw_flow_meta *)record;
    return own->tick - meta->seen > gw_NAME_timeouts[meta->timer % GW_FLOWS_TIMERS];
}

static inline void gw_NAME_expire(gw_NAME *own, gw_u8 *record)
{
    gw_NAME_remove(own, record);
    own->expired++;
}

/* Sets the clock and removes expired flows. A sweep over all records takes about
 * GW_FLOWS_SWEEP_MS. */
static void gw_NAME_clock(gw_NAME *own, gw_u64 now_ns)
{
    const gw_u32 tick = (gw_u32)(now_ns / 1000000u);
    if (!own->is_started) {
        own->is_started = 1;
        own->tick = tick;
        own->swept = tick;
    }
    /* The difference is negative if a packet is older than the last one. */
    if (tick - own->tick >= 0x80000000u) {
        return;
    }
    own->tick = tick;
    const gw_u32 elapsed = tick - own->swept;
    const gw_u32 is_due = elapsed >= GW_FLOWS_SWEEP_MS;
    gw_u64 count =
        (gw_u64)own->high_water * (is_due ? GW_FLOWS_SWEEP_MS : elapsed) / GW_FLOWS_SWEEP_MS;
    if (count < GW_FLOWS_SWEEP_MIN && !is_due) {
        return;
    }
    own->swept = tick;
    count = count < GW_FLOWS_SWEEP_MAX ? count : GW_FLOWS_SWEEP_MAX;
    for (gw_u64 i = 0; i < count; i++) {
        gw_u8 *record = own->records + (gw_u64)own->hand * UPPER_RECORD_BYTES;
        own->hand = own->hand + 1 < own->high_water ? own->hand + 1 : 0;
        if (((gw_flow_meta *)record)->used && gw_NAME_is_over(own, record)) {
            gw_NAME_expire(own, record);
        }
    }
}

/* Returns the record of a key, or null. `value` is the likely value of its entry. */
static inline gw_u8 *gw_NAME_at(gw_NAME *own, gw_u32 value, gw_u64 hash, const gw_u64 *words,
                                gw_side side)
{
    gw_u8 *record = value == 0 ? 0 : gw_flows_record(own, value, UPPER_RECORD_BYTES);
    if (record == 0 || ((gw_flow_meta *)record)->used <= side ||
        !gw_NAME_same(record, words, side)) {
        value = gw_flows_lookup(own, &gw_NAME_shape, hash, words, side);
        record = value == 0 ? 0 : gw_flows_record(own, value, UPPER_RECORD_BYTES);
    }
    if (record != 0 && gw_NAME_is_over(own, record)) {
        gw_NAME_expire(own, record);
        return 0;
    }
    return record;
}

static inline gw_packet gw_NAME_read(const gw_flows_call *call, gw_u32 index)
{
    const gw_flows_frame *frame = call->frames + index;
    const gw_packet packet = {frame->bytes, 0, (gw_u32)frame->length, GW_FLOW_BUCKETS};
    return packet;
}

/* Prepares a group of packets. */
static inline void gw_NAME_group(gw_NAME *own, const gw_flows_call *call, gw_u32 first,
                                 gw_u32 count)
{
    gw_u64 words[GW_FLOWS_GROUP][UPPER_WORDS];
    gw_u64 hashes[GW_FLOWS_GROUP];
    gw_u32 values[GW_FLOWS_GROUP];
    gw_side sides[GW_FLOWS_GROUP];
    gw_NAME_FLOW_key keys[GW_FLOWS_GROUP];
    const gw_lane lane = {0, own->image, 0, 0};
    for (gw_u32 i = 0; i < count; i++) {
        const gw_packet packet = gw_NAME_read(call, first + i);
        GW_NAME_REVERSE(gw_NAME_FLOW_reverse reverse;)
        sides[i] = gw_NAME_find(&lane, &packet, &keys[i] GW_NAME_REVERSE(, &reverse));
        if (sides[i] == GW_FORWARD) {
            gw_NAME_FLOW_key_words(&keys[i], words[i]);
        }
        GW_NAME_REVERSE(
            else if (sides[i] == GW_REVERSE) { gw_NAME_FLOW_reverse_words(&reverse, words[i]); })
        else
        {
            sides[i] = GW_NO_FLOW;
            continue;
        }
        hashes[i] = gw_NAME_hash(own, words[i], sides[i]);
        GW_FETCH(own->slots + gw_flows_bucket(own, hashes[i]) * GW_FLOWS_BUCKET_SLOTS);
    }
    for (gw_u32 i = 0; i < count; i++) {
        values[i] = sides[i] == GW_NO_FLOW ? 0 : gw_flows_probe(own, hashes[i], sides[i]);
        if (values[i] != 0) {
            const gw_u8 *record = gw_flows_record(own, values[i], UPPER_RECORD_BYTES);
            GW_FETCH(record);
            if (UPPER_RECORD_BYTES > 64) {
                GW_FETCH(record + 64);
            }
        }
    }
    for (gw_u32 i = 0; i < count; i++) {
        gw_packet packet = gw_NAME_read(call, first + i);
        gw_outcome *outcome = call->outcomes + first + i;
        packet.now_ns = call->times_ns == 0 ? call->now_ns : call->times_ns[first + i];
        if (call->times_ns != 0) {
            gw_NAME_clock(own, packet.now_ns);
        }
        call->settled[first + i] = 0;
        call->parameters[first + i] = 0;
        if (sides[i] == GW_NO_FLOW) {
            continue;
        }
        gw_u8 *record = gw_NAME_at(own, values[i], hashes[i], words[i], sides[i]);
        gw_NAME_FLOW_row *row = 0;
        if (record != 0) {
            row = (gw_NAME_FLOW_row *)(record + UPPER_ROW_OFFSET);
        } else {
#ifndef GW_CHECKED
            gw_drop(outcome, 0);
#endif
            packet.bucket = gw_NAME_bucket(own->image, words[i], sides[i]);
            row = gw_NAME_miss(own, &packet, sides[i], &keys[i], outcome);
            if (row == 0) {
                call->settled[first + i] = 1;
                continue;
            }
            record = (gw_u8 *)row - UPPER_ROW_OFFSET;
            packet.bucket = GW_FLOW_BUCKETS;
        }
        call->parameters[first + i] = gw_NAME_update(own, row, &packet, sides[i]);
        ((gw_flow_meta *)record)->seen = own->tick;
        if (UPPER_COUNTS) {
            ((gw_u64 *)record)[1] += 1;
            ((gw_u64 *)record)[2] += packet.length;
        }
    }
}

#ifdef GW_CHECKED
/* `godwit test` links several copies of these functions. */
#define GW_FLOWS_COPY_OF(copy, entry) copy##_flows_##entry
#define GW_FLOWS_COPY(copy, entry)    GW_FLOWS_COPY_OF(copy, entry)
#define GW_FLOWS_ENTRY(entry)         GW_FLOWS_COPY(GW_CHECKED, entry)
#else
#define GW_FLOWS_ENTRY(entry) gw_custom_flows_##entry
#endif
#define GW_FLOWS_EXPORTED __attribute__((visibility("default")))

GW_FLOWS_EXPORTED gw_u64 GW_FLOWS_ENTRY(open)(void *memory, const gw_flows_config *config);
GW_FLOWS_EXPORTED void GW_FLOWS_ENTRY(prepare)(void *memory, const gw_flows_call *call);
GW_FLOWS_EXPORTED void GW_FLOWS_ENTRY(counts)(const void *memory, gw_u64 *counts);
GW_FLOWS_EXPORTED gw_u32 GW_FLOWS_ENTRY(bucket)(const gw_u8 *image, const gw_u8 *frame,
                                                gw_u64 length);

/* Initialises the flow state in zeroed memory, unless `memory` is null. Returns the size of the
 * state in bytes. */
gw_u64 GW_FLOWS_ENTRY(open)(void *memory, const gw_flows_config *config)
{
    gw_flows own = {0};
    own.image = config->image;
    own.seed = config->seed;
    own.capacity = config->capacity;
    for (gw_u32 i = 0; i < GW_FLOWS_POOLS; i++) {
        own.pools[i] = gw_NAME_pool(config->image, i);
    }
    const gw_u64 bytes = gw_flows_arrange(&own, memory, &gw_NAME_shape, UPPER_HAS_LIMIT);
    if (memory != 0) {
        *(gw_flows *)memory = own;
        gw_flows_close_pools(memory);
    }
    return bytes;
}

/* Prepares packets for the kernel. A call without packets only removes expired flows. */
void GW_FLOWS_ENTRY(prepare)(void *memory, const gw_flows_call *call)
{
    gw_NAME *own = memory;
    const gw_u32 group = call->group == 1 ? 1 : GW_FLOWS_GROUP;
    if (call->times_ns == 0) {
        gw_NAME_clock(own, call->now_ns);
    }
    for (gw_u32 first = 0; first < call->count; first += group) {
        const gw_u32 rest = call->count - first;
        gw_NAME_group(own, call, first, rest < group ? rest : group);
    }
}

/* Returns the flow counts: active, created, expired, refused. */
void GW_FLOWS_ENTRY(counts)(const void *memory, gw_u64 *counts)
{
    const gw_flows *own = memory;
    counts[0] = own->active;
    counts[1] = own->created;
    counts[2] = own->expired;
    counts[3] = own->refused;
}

/* Returns the steering bucket of a frame, or GW_FLOW_BUCKETS if its flow hash selects the
 * worker. */
gw_u32 GW_FLOWS_ENTRY(bucket)(const gw_u8 *image, const gw_u8 *frame, gw_u64 length)
{
    const gw_packet packet = {frame, 0, (gw_u32)length, GW_FLOW_BUCKETS};
    const gw_lane lane = {0, image, 0, 0};
    gw_u64 words[UPPER_WORDS];
    gw_NAME_FLOW_key key;
    GW_NAME_REVERSE(gw_NAME_FLOW_reverse reverse;)
    const gw_side side = gw_NAME_find(&lane, &packet, &key GW_NAME_REVERSE(, &reverse));
    if (side == GW_FORWARD) {
        gw_NAME_FLOW_key_words(&key, words);
        return gw_NAME_bucket(image, words, side);
    }
    GW_NAME_REVERSE(if (side == GW_REVERSE) {
        gw_NAME_FLOW_reverse_words(&reverse, words);
        return gw_NAME_bucket(image, words, side);
    })
    return GW_FLOW_BUCKETS;
}
