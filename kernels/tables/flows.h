/*
 * Flow state that a worker keeps on the CPU for a function with flows. The C functions `find`,
 * `miss` and `update` use it, and no device sees it. One block of memory holds everything:
 *
 *   | gw_flows | slots | records | free records | limits | taken ports | next ports |
 *
 * A record holds the keys and the row of a flow. The slots are a hash table of 8-byte entries, |
 * tag 32 | record 31 | side 1 |, in buckets of one cache line. The entry of a key is in one of two
 * buckets, and each bucket follows from the other one and the tag. A full bucket passes an entry on
 * to the other bucket of this entry. At most half of the slots are used.
 */
#ifndef GODWIT_FLOWS_H
#define GODWIT_FLOWS_H

/* Defined in texts that contain the CPU-only functions. */
#define GW_HOST

#define GW_FIND   static inline
#define GW_MISS   static __attribute__((noinline))
#define GW_UPDATE static inline

/* Number of steering buckets. A bucket with this number means that the flow hash selects the
 * worker. */
#define GW_FLOW_BUCKETS 128u
/* Number of packets whose lookups overlap. */
#define GW_FLOWS_GROUP 32u

#define GW_FLOWS_BUCKET_SLOTS 8u
#define GW_FLOWS_TIMERS       8u
#define GW_FLOWS_POOLS        4u
/* Words in the port bit map of a block. A block has at most 65536 / 128 ports. */
#define GW_PORT_WORDS 8u
#define GW_PORT_NONE  (GW_PORT_WORDS * 64u)
/* Approximate time in which a sweep checks the timers of all records, in milliseconds. */
#define GW_FLOWS_SWEEP_MS 4000u
/* Minimum and maximum number of records that a sweep checks at once. */
#define GW_FLOWS_SWEEP_MIN 64u
#define GW_FLOWS_SWEEP_MAX 1024u

/* Which key of a flow a packet has. */
typedef gw_u32 gw_side;
#define GW_FORWARD 0u /* the key */
#define GW_REVERSE 1u /* the second key */
#define GW_NO_FLOW 2u /* none: the kernel runs with parameter 0 */

/* A packet as `find`, `miss` and `update` see it. */
typedef struct gw_packet {
    const gw_u8 *frame; /* only for reading */
    gw_u64 now_ns;      /* time, on a clock that never decreases; 0 in `find` */
    gw_u32 length;      /* bytes of the frame */
    gw_u32 bucket;      /* steering bucket of the packet; only `miss` sees it */
} gw_packet;

/* Start of a record. */
typedef struct gw_flow_meta {
    gw_u32 seen; /* time of the last packet, in milliseconds */
    gw_u8 timer; /* index of the timer */
    gw_u8 used;  /* 0: free, 1: in use, 2: in use with a second key */
    gw_u16 reserved;
} gw_flow_meta;

/* Layout of the records. */
typedef struct gw_flows_shape {
    gw_u32 record_bytes;
    gw_u32 key_offset;
    gw_u32 key_words;
    gw_u32 reverse_offset;
    gw_u32 reverse_words;
    gw_u32 row_offset;
    gw_u32 row_bytes;
    gw_u32 counts;
} gw_flows_shape;

/* Number of flows with one value of the limited field. A count of 0 marks a free entry. */
typedef struct gw_flow_limit {
    gw_u64 value;
    gw_u32 count;
    gw_u32 reserved;
} gw_flow_limit;

/* Pool of addresses and ports. Each of the 128 steering buckets owns a block of each address's
 * ports. A packet to one of these ports therefore reaches the flow's worker. */
typedef struct gw_port_pool {
    const gw_u32 *addresses;
    gw_u64 *taken; /* one bit per port, GW_PORT_WORDS words per address and block */
    gw_u16 *next;  /* port at which the search begins, per address and block */
    gw_u32 count;  /* number of addresses */
    gw_u32 first;  /* first port of the pool */
    gw_u32 block;  /* ports of a block */
    gw_u32 reserved;
} gw_port_pool;

/* State of all flows of a worker. */
typedef struct gw_flows {
    const gw_u8 *image; /* the function's table image */
    gw_u64 seed;        /* of the hash, so that others cannot choose keys that collide */
    gw_u64 *slots;
    gw_u64 bucket_mask;
    gw_u8 *records;
    gw_u32 *free_records; /* stack of free records below `high_water` */
    gw_u32 free_count;
    gw_u32 high_water; /* records that were ever in use */
    gw_u32 capacity;
    gw_u32 tick;  /* time in milliseconds */
    gw_u32 swept; /* time until which the sweep has been counted */
    gw_u32 hand;  /* next record of the sweep */
    gw_flow_limit *limits;
    gw_u64 limit_mask;
    gw_port_pool pools[GW_FLOWS_POOLS];
    gw_u32 is_limited; /* whether the last row was refused because of the limit */
    gw_u32 is_started; /* whether the clock has a time */
    gw_u64 active;
    gw_u64 created;
    gw_u64 expired;
    gw_u64 refused;
} gw_flows;

/* Properties of the state (`FlowsConfig` in Rust). */
typedef struct gw_flows_config {
    const gw_u8 *image;
    gw_u64 seed;
    gw_u32 capacity;
    gw_u32 reserved;
} gw_flows_config;

typedef struct gw_flows_frame {
    const gw_u8 *bytes;
    gw_u64 length;
} gw_flows_frame;

/* Packets to prepare, and their results (`FlowsCall` in Rust). */
typedef struct gw_flows_call {
    const gw_flows_frame *frames;
    const gw_u64 *times_ns; /* time of each packet, or null if `now_ns` is the time of all */
    gw_u64 now_ns;
    gw_u8 *settled; /* per packet: 0 if the kernel runs with `parameters`, 1 if it has an outcome */
    gw_u64 *parameters;
    gw_outcome *outcomes;
    gw_u32 count;
    gw_u32 group; /* 1: one packet after the other */
} gw_flows_call;

/* Mixes the bits of a word (the finalizer of SplitMix64). */
static inline gw_u64 gw_flows_mix(gw_u64 word)
{
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    word = (word ^ word >> 27) * 0x94d049bb133111ebu;
    return word ^ word >> 31;
}

static inline gw_u64 gw_flows_hash(const gw_flows *own, const gw_u64 *words, gw_u32 count,
                                   gw_side side)
{
    gw_u64 hash = own->seed + side;
    for (gw_u32 i = 0; i < count; i++) {
        hash = gw_flows_mix(hash ^ words[i]);
    }
    return hash;
}

static inline gw_u32 gw_flows_equal(const gw_u64 *a, const gw_u64 *b, gw_u32 count)
{
    gw_u64 differs = 0;
    for (gw_u32 i = 0; i < count; i++) {
        differs |= a[i] ^ b[i];
    }
    return differs == 0;
}

static inline gw_u64 gw_flows_bucket(const gw_flows *own, gw_u64 hash)
{
    return hash & own->bucket_mask;
}

/* Returns the other bucket of an entry. The factor is odd, so the buckets differ. */
static inline gw_u64 gw_flows_other(const gw_flows *own, gw_u64 bucket, gw_u64 tag)
{
    return (bucket ^ (tag | 1) * 0x5bd1e995u) & own->bucket_mask;
}

static inline gw_u8 *gw_flows_record(const gw_flows *own, gw_u32 value, gw_u32 record_bytes)
{
    return own->records + (gw_u64)(value / 2 - 1) * record_bytes;
}

/* Returns the most likely entry of the key without reading its record, or 0. */
static inline gw_u32 gw_flows_probe(const gw_flows *own, gw_u64 hash, gw_side side)
{
    const gw_u64 tag = hash >> 32;
    gw_u64 bucket = gw_flows_bucket(own, hash);
    for (gw_u32 turn = 0; turn < 2; turn++) {
        const gw_u64 *slots = own->slots + bucket * GW_FLOWS_BUCKET_SLOTS;
        for (gw_u32 i = 0; i < GW_FLOWS_BUCKET_SLOTS; i++) {
            if (slots[i] >> 32 == tag && (slots[i] & 1) == side && (gw_u32)slots[i] != 0) {
                return (gw_u32)slots[i];
            }
        }
        bucket = gw_flows_other(own, bucket, tag);
    }
    return 0;
}

/* Returns the entry of a key, or 0. */
static inline gw_u32 gw_flows_lookup(const gw_flows *own, const gw_flows_shape *shape, gw_u64 hash,
                                     const gw_u64 *words, gw_side side)
{
    const gw_u64 tag = hash >> 32;
    const gw_u32 offset = side == GW_REVERSE ? shape->reverse_offset : shape->key_offset;
    const gw_u32 count = side == GW_REVERSE ? shape->reverse_words : shape->key_words;
    gw_u64 bucket = gw_flows_bucket(own, hash);
    for (gw_u32 turn = 0; turn < 2; turn++) {
        const gw_u64 *slots = own->slots + bucket * GW_FLOWS_BUCKET_SLOTS;
        for (gw_u32 i = 0; i < GW_FLOWS_BUCKET_SLOTS; i++) {
            const gw_u32 value = (gw_u32)slots[i];
            if (slots[i] >> 32 != tag || (value & 1) != side || value == 0) {
                continue;
            }
            const gw_u8 *record = gw_flows_record(own, value, shape->record_bytes);
            if (gw_flows_equal((const gw_u64 *)(record + offset), words, count)) {
                return value;
            }
        }
        bucket = gw_flows_other(own, bucket, tag);
    }
    return 0;
}

/* Returns a free slot of a bucket, or null. */
static inline gw_u64 *gw_flows_free_slot(const gw_flows *own, gw_u64 bucket)
{
    gw_u64 *slots = own->slots + bucket * GW_FLOWS_BUCKET_SLOTS;
    for (gw_u32 i = 0; i < GW_FLOWS_BUCKET_SLOTS; i++) {
        if ((gw_u32)slots[i] == 0) {
            return slots + i;
        }
    }
    return 0;
}

/* Moves one entry of a full bucket to its other bucket. Returns the freed slot, or null. */
static inline gw_u64 *gw_flows_make_room(const gw_flows *own, gw_u64 bucket)
{
    gw_u64 *slots = own->slots + bucket * GW_FLOWS_BUCKET_SLOTS;
    for (gw_u32 i = 0; i < GW_FLOWS_BUCKET_SLOTS; i++) {
        gw_u64 *target = gw_flows_free_slot(own, gw_flows_other(own, bucket, slots[i] >> 32));
        if (target != 0) {
            *target = slots[i];
            return slots + i;
        }
    }
    return 0;
}

/* Adds an entry. Returns 0 if there is no room. */
static inline gw_u32 gw_flows_insert(gw_flows *own, gw_u64 hash, gw_u32 value)
{
    const gw_u64 tag = hash >> 32;
    const gw_u64 first = gw_flows_bucket(own, hash);
    const gw_u64 second = gw_flows_other(own, first, tag);
    gw_u64 *slot = gw_flows_free_slot(own, first);
    slot = slot != 0 ? slot : gw_flows_free_slot(own, second);
    slot = slot != 0 ? slot : gw_flows_make_room(own, first);
    slot = slot != 0 ? slot : gw_flows_make_room(own, second);
    if (slot == 0) {
        return 0;
    }
    *slot = tag << 32 | value;
    return 1;
}

/* Removes an entry. */
static inline void gw_flows_erase(gw_flows *own, gw_u64 hash, gw_u32 value)
{
    gw_u64 bucket = gw_flows_bucket(own, hash);
    for (gw_u32 turn = 0; turn < 2; turn++) {
        gw_u64 *slots = own->slots + bucket * GW_FLOWS_BUCKET_SLOTS;
        for (gw_u32 i = 0; i < GW_FLOWS_BUCKET_SLOTS; i++) {
            if ((gw_u32)slots[i] == value) {
                slots[i] = 0;
                return;
            }
        }
        bucket = gw_flows_other(own, bucket, hash >> 32);
    }
}

/* Returns the limit entry of a value, or the free entry where it belongs. */
static inline gw_flow_limit *gw_flows_limit(const gw_flows *own, gw_u64 value)
{
    gw_u64 at = gw_flows_mix(own->seed ^ value) & own->limit_mask;
    while (own->limits[at].count != 0 && own->limits[at].value != value) {
        at = (at + 1) & own->limit_mask;
    }
    return own->limits + at;
}

/* Frees a limit entry, and moves later entries to where a search finds them. */
static inline void gw_flows_limit_free(gw_flows *own, gw_flow_limit *limit)
{
    gw_u64 hole = (gw_u64)(limit - own->limits);
    gw_u64 at = hole;
    for (;;) {
        own->limits[hole].count = 0;
        for (;;) {
            at = (at + 1) & own->limit_mask;
            if (own->limits[at].count == 0) {
                return;
            }
            const gw_u64 home = gw_flows_mix(own->seed ^ own->limits[at].value) & own->limit_mask;
            if (((at - home) & own->limit_mask) >= ((at - hole) & own->limit_mask)) {
                break;
            }
        }
        own->limits[hole] = own->limits[at];
        hole = at;
    }
}

/* Returns the first free port of a block from `from` on, or GW_PORT_NONE. */
static inline gw_u32 gw_port_find(const gw_u64 *taken, gw_u32 from)
{
    for (gw_u32 i = 0; i <= GW_PORT_WORDS; i++) {
        const gw_u32 word = (from / 64 + i) % GW_PORT_WORDS;
        const gw_u64 free = ~taken[word] & (i == 0 ? ~(gw_u64)0 << from % 64 : ~(gw_u64)0);
        if (free != 0) {
            return word * 64 + (gw_u32)__builtin_ctzll(free);
        }
    }
    return GW_PORT_NONE;
}

/* Takes a free address and port of a steering bucket. Calls with the same `wish` prefer the same
 * address. */
static inline gw_u32 gw_resource_take(gw_flows *own, gw_u32 index, gw_u32 bucket, gw_u32 wish,
                                      gw_u32 *address, gw_u32 *port)
{
    const gw_port_pool *pool = own->pools + index;
    const gw_u64 begin = (gw_u64)(wish * 0x9e3779b1u) * pool->count >> 32;
    for (gw_u32 i = 0; i < pool->count; i++) {
        const gw_u64 number = (begin + i) % pool->count;
        const gw_u64 block = number * GW_FLOW_BUCKETS + bucket % GW_FLOW_BUCKETS;
        gw_u64 *taken = pool->taken + block * GW_PORT_WORDS;
        const gw_u32 found = gw_port_find(taken, pool->next[block]);
        if (found != GW_PORT_NONE) {
            taken[found / 64] |= (gw_u64)1 << found % 64;
            pool->next[block] = (gw_u16)((found + 1) % pool->block);
            *address = pool->addresses[number];
            *port = pool->first + bucket % GW_FLOW_BUCKETS * pool->block + found;
            return 1;
        }
    }
    own->refused++;
    return 0;
}

/* Returns an address and port to the pool. Ignores those of other pools. */
static inline void gw_resource_give(gw_flows *own, gw_u32 index, gw_u32 address, gw_u32 port)
{
    const gw_port_pool *pool = own->pools + index;
    const gw_u32 place = port - pool->first;
    if (port < pool->first || place >= GW_FLOW_BUCKETS * pool->block) {
        return;
    }
    for (gw_u64 number = 0; number < pool->count; number++) {
        if (pool->addresses[number] == address) {
            const gw_u64 block = number * GW_FLOW_BUCKETS + place / pool->block;
            const gw_u32 found = place % pool->block;
            pool->taken[block * GW_PORT_WORDS + found / 64] &= ~((gw_u64)1 << found % 64);
            return;
        }
    }
}

/* Returns the steering bucket that owns a port. */
static inline gw_u32 gw_resource_bucket(gw_u32 first, gw_u32 block, gw_u32 port)
{
    const gw_u32 place = port - first;
    return port < first || place >= GW_FLOW_BUCKETS * block ? GW_FLOW_BUCKETS : place / block;
}

/* Returns the smallest power of two that is at least `number`, and at least 2. */
static inline gw_u64 gw_flows_power(gw_u64 number)
{
    gw_u64 power = 2;
    while (power < number) {
        power *= 2;
    }
    return power;
}

/* Reserves `bytes` bytes of a memory block, in whole cache lines. `end` is the size of the used
 * part. */
static inline gw_u8 *gw_flows_part(gw_u8 *memory, gw_u64 *end, gw_u64 bytes)
{
    /* The address is computed as a number, because `memory` may be null. */
    gw_u8 *part = (gw_u8 *)((size_t)memory + *end);
    *end += (bytes + 63) / 64 * 64;
    return part;
}

/* Sets the pointers of a state whose capacity and pools are set, without accessing other memory.
 * Returns the size of the memory, which begins with the state. */
static inline gw_u64 gw_flows_arrange(gw_flows *own, gw_u8 *memory, const gw_flows_shape *shape,
                                      gw_u32 has_limit)
{
    gw_u64 end = (sizeof(gw_flows) + 63) / 64 * 64;
    const gw_u64 entries = (gw_u64)own->capacity * (shape->reverse_words > 0 ? 2 : 1);
    const gw_u64 buckets = gw_flows_power((entries * 2 + 7) / GW_FLOWS_BUCKET_SLOTS);
    const gw_u64 limits = has_limit ? gw_flows_power((gw_u64)own->capacity * 2) : 0;
    own->bucket_mask = buckets - 1;
    own->limit_mask = limits - has_limit;
    own->slots = (gw_u64 *)gw_flows_part(memory, &end, buckets * 64);
    own->records = gw_flows_part(memory, &end, (gw_u64)own->capacity * shape->record_bytes);
    own->free_records = (gw_u32 *)gw_flows_part(memory, &end, (gw_u64)own->capacity * 4);
    own->limits = (gw_flow_limit *)gw_flows_part(memory, &end, limits * sizeof(gw_flow_limit));
    for (gw_u32 i = 0; i < GW_FLOWS_POOLS; i++) {
        const gw_u64 blocks = (gw_u64)own->pools[i].count * GW_FLOW_BUCKETS;
        own->pools[i].taken = (gw_u64 *)gw_flows_part(memory, &end, blocks * GW_PORT_WORDS * 8);
        own->pools[i].next = (gw_u16 *)gw_flows_part(memory, &end, blocks * 2);
    }
    return end;
}

/* Returns whether a pool lists the same address earlier. */
static inline gw_u32 gw_pool_has_earlier(const gw_port_pool *pool, gw_u64 number)
{
    gw_u32 found = 0;
    for (gw_u64 i = 0; i < number; i++) {
        found |= (gw_u32)(pool->addresses[i] == pool->addresses[number]);
    }
    return found;
}

/* Marks bits that do not correspond to a port as taken. If an address is listed twice, its ports
 * count only once. */
static inline void gw_flows_close_pools(gw_flows *own)
{
    for (gw_u32 i = 0; i < GW_FLOWS_POOLS; i++) {
        const gw_port_pool *pool = own->pools + i;
        for (gw_u64 number = 0; number < pool->count; number++) {
            gw_u64 *taken = pool->taken + number * GW_FLOW_BUCKETS * GW_PORT_WORDS;
            const gw_u32 first = gw_pool_has_earlier(pool, number) ? 0 : pool->block;
            for (gw_u32 bit = 0; bit < GW_FLOW_BUCKETS * GW_PORT_WORDS * 64; bit++) {
                if (bit % (GW_PORT_WORDS * 64) >= first) {
                    taken[bit / 64] |= (gw_u64)1 << bit % 64;
                }
            }
        }
    }
}

#endif
