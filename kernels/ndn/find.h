/* Longest-prefix match of an NDN name. */
#ifndef GODWIT_NDN_FIND_H
#define GODWIT_NDN_FIND_H

/*
 * Table of ndn, which is a keyed hash table of name prefixes.
 *
 *   0           next_hops_offset   buckets_offset                  records_offset     bytes
 *   | header    | next_hops * 128  | (buckets + overflow) * 64     | records * 64     |
 *
 * All offsets count from the first byte of the table and are multiples of 64.
 *
 * A name is the TLV-VALUE of its Name element: the sequence of its components as in a packet. Its
 * hash is SipHash-1-3 of these bytes under the image's key. The low half selects the bucket,
 * (low * buckets) >> 32. The high half is the fingerprint. A full bucket continues in an overflow
 * bucket; overflow buckets follow all others. A chain has at most GW_NDN_CHAIN buckets:
 *
 *   bucket      | fingerprint, record | 7 times                          | next | 0 |
 *   record      | next hop | deeper | below | name_bytes | the name, then zeros, up to 64 * n |
 *
 * Each next hop has two copies, so that it can change while packets use it. `valid_copy` of the
 * first copy selects the valid one. A record or next of 0 means none. Fingerprints may collide, so
 * a lookup always compares the name in the record.
 *
 * A lookup tries prefixes from short to long, but only lengths that the table contains. Bit i of
 * the header's `depths` is set if the table has prefixes of i + 1 components. The highest set bit
 * is that of `guide` components. For each name longer than this, the table has a record of its
 * first `guide` components, with or without a next hop. In this record, bit i of `deeper` is set if
 * a name below it has guide + 1 + i components. Most lookups therefore end at the first record
 * that they find.
 */

/* State of the hash function SipHash-1-3 (Aumasson, Bernstein, SipHash: a fast short-input PRF,
 * INDOCRYPT 2012). */
typedef struct gw_ndn_hash {
    gw_u64 v0;
    gw_u64 v1;
    gw_u64 v2;
    gw_u64 v3;
} gw_ndn_hash;

GW_LANE void gw_ndn_round(gw_ndn_hash *hash)
{
    hash->v0 += hash->v1;
    hash->v2 += hash->v3;
    hash->v1 = gw_rotate_left64(hash->v1, 13) ^ hash->v0;
    hash->v3 = gw_rotate_left64(hash->v3, 16) ^ hash->v2;
    hash->v0 = gw_rotate_left64(hash->v0, 32);
    hash->v2 += hash->v1;
    hash->v0 += hash->v3;
    hash->v1 = gw_rotate_left64(hash->v1, 17) ^ hash->v2;
    hash->v3 = gw_rotate_left64(hash->v3, 21) ^ hash->v0;
    hash->v2 = gw_rotate_left64(hash->v2, 32);
}

GW_LANE gw_u64 gw_ndn_word(const GW_GLOBAL gw_u8 *bytes)
{
    return (gw_u64)gw_load_le32(bytes + 4) << 32 | gw_load_le32(bytes);
}

/* Returns the last 1 to 7 bytes of the name that ends at `end`, in the low bits of the result. The
 * 8 bytes before `end` must be readable. */
GW_LANE gw_u64 gw_ndn_rest(const GW_GLOBAL gw_u8 *end, gw_u32 bytes)
{
    return gw_ndn_word(end - 8) >> (64 - 8 * bytes);
}

GW_LANE gw_ndn_hash gw_ndn_hash_begin(gw_u64 key0, gw_u64 key1)
{
    gw_ndn_hash hash;
    hash.v0 = key0 ^ 0x736f6d6570736575;
    hash.v1 = key1 ^ 0x646f72616e646f6d;
    hash.v2 = key0 ^ 0x6c7967656e657261;
    hash.v3 = key1 ^ 0x7465646279746573;
    return hash;
}

GW_LANE void gw_ndn_hash_word(gw_ndn_hash *hash, gw_u64 word)
{
    hash->v3 ^= word;
    gw_ndn_round(hash);
    hash->v0 ^= word;
}

/* Completes the SipHash of a name that ends at `end` and has `bytes` bytes. The caller has already
 * hashed all whole 8-byte words of the name. */
GW_LANE gw_u64 gw_ndn_hash_end(gw_ndn_hash hash, const GW_GLOBAL gw_u8 *end, gw_u32 bytes)
{
    const gw_u64 rest = bytes & 7 ? gw_ndn_rest(end, bytes & 7) : 0;
    gw_ndn_hash_word(&hash, (gw_u64)(bytes & 0xff) << 56 | rest);
    hash.v2 ^= 0xff;
    gw_ndn_round(&hash);
    gw_ndn_round(&hash);
    gw_ndn_round(&hash);
    return hash.v0 ^ hash.v1 ^ hash.v2 ^ hash.v3;
}

/* Returns whether two names of `bytes` bytes are equal. The 8 bytes before each name must be
 * readable. */
GW_LANE gw_u32 gw_ndn_same(const GW_GLOBAL gw_u8 *a, const GW_GLOBAL gw_u8 *b, gw_u32 bytes)
{
    const gw_u32 whole = bytes & ~7u;
    gw_u64 differs =
        bytes & 7 ? gw_ndn_rest(a + bytes, bytes & 7) ^ gw_ndn_rest(b + bytes, bytes & 7) : 0;
    for (gw_u32 i = 0; i < whole; i += 8) {
        differs |= gw_ndn_word(a + i) ^ gw_ndn_word(b + i);
    }
    return (gw_u32)(differs == 0);
}

/* Returns the end of the name component that begins at offset `at` of a valid name. */
GW_LANE gw_u32 gw_ndn_component_end(const GW_GLOBAL gw_u8 *name, gw_u32 at)
{
    at += name[at] < 253 ? 1 : 3;
    const gw_u32 first = name[at];
    if (first < 253) {
        return at + 1 + first;
    }
    return at + 3 + gw_load_be16(name + at + 1);
}

GW_LANE gw_u32 gw_ndn_first_bucket(const GW_GLOBAL gw_ndn_image *header, gw_u64 hash)
{
    return (gw_u32)((hash & 0xffffffffu) * header->buckets >> 32);
}

/* Looks up a name by its hash. Returns the position of the name's record in units of 64 bytes, or 0
 * if the table does not contain the name. */
GW_LANE gw_u32 gw_ndn_probe(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_u8 *name, gw_u32 bytes,
                            gw_u64 hash)
{
    const GW_GLOBAL gw_ndn_image *header = (const GW_GLOBAL gw_ndn_image *)image;
    const GW_GLOBAL gw_ndn_bucket *buckets =
        (const GW_GLOBAL gw_ndn_bucket *)(image + header->buckets_offset);
    const gw_u32 fingerprint = (gw_u32)(hash >> 32);
    gw_u32 index = gw_ndn_first_bucket(header, hash);
    for (gw_u32 chain = 0; chain < GW_NDN_CHAIN; chain++) {
        const GW_GLOBAL gw_ndn_bucket *bucket = &buckets[index];
        GW_EXPENSIVE(bucket);
        for (gw_u32 i = 0; i < GW_NDN_SLOTS; i++) {
            const gw_ndn_slot slot = bucket->slots[i];
            if (slot.fingerprint == fingerprint && slot.record != 0) {
                const GW_GLOBAL gw_u8 *record =
                    image + header->records_offset + (gw_u64)slot.record * 64;
                GW_EXPENSIVE(record);
                const GW_GLOBAL gw_ndn_record *found = (const GW_GLOBAL gw_ndn_record *)record;
                if (found->name_bytes == bytes &&
                    gw_ndn_same(record + sizeof(gw_ndn_record), name, bytes)) {
                    return slot.record;
                }
            }
        }
        index = bucket->next;
        if (index == 0) {
            break;
        }
    }
    return 0;
}

/* State of a lookup, which tries one prefix of a name after another. */
typedef struct gw_ndn_walk {
    gw_ndn_hash hash;   /* hash of the whole words before `hashed` */
    gw_u64 whole;       /* complete hash of the current prefix */
    gw_u32 hashed;      /* bytes that `hash` covers */
    gw_u32 at;          /* end of the current prefix */
    gw_u32 best;        /* next hop of the longest prefix found so far */
    gw_u32 lengths;     /* lengths to try; bit 0 is the prefix with one more component */
    gw_u32 until_guide; /* components left until the guide */
} gw_ndn_walk;

GW_LANE void gw_ndn_walk_begin(const GW_GLOBAL gw_u8 *image, gw_ndn_walk *walk)
{
    const GW_GLOBAL gw_ndn_image *header = (const GW_GLOBAL gw_ndn_image *)image;
    walk->hash = gw_ndn_hash_begin(header->key0, header->key1);
    walk->hashed = 0;
    walk->at = 0;
    walk->best = header->default_next_hop;
    walk->lengths = header->depths;
    walk->until_guide = header->guide;
}

/* Advances the lookup of a name to the next prefix to try. Returns 0 if no prefix is left. */
GW_LANE gw_u32 gw_ndn_walk_next(const GW_GLOBAL gw_u8 *name, gw_u32 name_bytes, gw_ndn_walk *walk)
{
    while (walk->lengths != 0 && walk->at < name_bytes) {
        const gw_u32 tries = walk->lengths & 1;
        walk->at = gw_ndn_component_end(name, walk->at);
        walk->lengths >>= 1;
        walk->until_guide--;
        if (tries) {
            for (; walk->hashed + 8 <= walk->at; walk->hashed += 8) {
                gw_ndn_hash_word(&walk->hash, gw_ndn_word(name + walk->hashed));
            }
            walk->whole = gw_ndn_hash_end(walk->hash, name + walk->at, walk->at);
            return 1;
        }
    }
    return 0;
}

/* Updates a lookup with the record of the current prefix. `unit` is the position of the record in
 * units of 64 bytes, or 0 if there is no record. */
GW_LANE void gw_ndn_walk_found(const GW_GLOBAL gw_u8 *image, gw_u32 unit, gw_ndn_walk *walk)
{
    if (unit != 0) {
        const GW_GLOBAL gw_ndn_record *record =
            (const GW_GLOBAL gw_ndn_record
                 *)(image + ((const GW_GLOBAL gw_ndn_image *)image)->records_offset +
                    (gw_u64)unit * 64);
        const gw_u32 next_hop = record->next_hop;
        walk->best = next_hop == GW_NDN_NONE ? walk->best : next_hop;
        walk->lengths = walk->until_guide == 0 ? record->deeper : walk->lengths;
    }
}

/* Tries the remaining prefixes of a name. Returns the next hop index of the longest prefix in the
 * table, or GW_NDN_NONE if the table contains none. */
GW_LANE gw_u32 gw_ndn_walk_end(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_u8 *name,
                               gw_u32 name_bytes, gw_ndn_walk *walk)
{
    while (gw_ndn_walk_next(name, name_bytes, walk)) {
        gw_ndn_walk_found(image, gw_ndn_probe(image, name, walk->at, walk->whole), walk);
    }
    return walk->best;
}

/*
 * Returns the next hop index of the name's longest prefix in the table, or GW_NDN_NONE if the table
 * contains none. The name must be valid, and the 8 bytes before it must be readable.
 */
GW_LANE gw_u32 gw_ndn_lookup(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_u8 *name,
                             gw_u32 name_bytes)
{
    gw_ndn_walk walk;
    gw_ndn_walk_begin(image, &walk);
    return gw_ndn_walk_end(image, name, name_bytes, &walk);
}

#endif
