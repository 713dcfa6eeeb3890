/*
 * acl: patterns over the fields of a key, by tuple space search (Srinivasan, Suri, Varghese, Packet
 * Classification Using Tuple Space Search, SIGCOMM 1999). A tuple is the set of patterns with the
 * same mask. It is a hash table of masked keys.
 *
 *   block   | tuples, 64-byte header | tuple 0 | tuple 1 | ... | slots of tuple 0 | ... |
 *
 * Tuples are sorted by their best priority, so the search ends early. The lowest number is the best
 * priority. A change writes a new block, and then its offset.
 */
#ifndef GODWIT_TABLES_ACL_H
#define GODWIT_TABLES_ACL_H

#define GW_ACL_WORDS  5 /* maximum number of words of a key */
#define GW_ACL_TUPLES 64u
#define GW_ACL_PROBES 32u

typedef struct gw_acl {
    gw_u64 block_offset; /* changes while lookups run */
    gw_u64 rows_offset;
    gw_u64 reserved[14];
} gw_acl;
GW_STATIC_ASSERT(sizeof(gw_acl) == GW_TABLE_HEADER_BYTES, acl_size);

typedef struct gw_acl_tuple {
    gw_u64 masks[GW_ACL_WORDS];
    gw_u64 seed;         /* odd */
    gw_u64 slots_offset; /* from the first byte of the block */
    gw_u32 slot_bits;    /* binary logarithm of the number of slots */
    gw_u32 priority;     /* best priority of the tuple */
} gw_acl_tuple;
GW_STATIC_ASSERT(sizeof(gw_acl_tuple) == 64, acl_tuple_size);

typedef struct gw_acl_slot {
    gw_u64 words[GW_ACL_WORDS];
    gw_u32 priority;
    gw_u32 row; /* GW_TABLE_NONE: the slot is free */
    gw_u64 reserved[2];
} gw_acl_slot;
GW_STATIC_ASSERT(sizeof(gw_acl_slot) == 64, acl_slot_size);

/* Returns the hash of a masked key. The top bits of the hash select the slot of the hash table. */
GW_LANE gw_u64 gw_acl_hash(const gw_u64 *words, gw_u64 seed)
{
    gw_u64 mixed = seed;
    for (int i = 0; i < GW_ACL_WORDS; i++) {
        mixed = (mixed ^ words[i]) * seed;
        mixed ^= mixed >> 32;
    }
    return mixed * 0x9e3779b97f4a7c15u;
}

/* Finds the best-priority pattern that matches a key. Returns its row index, or GW_TABLE_NONE if no
 * pattern matches. */
GW_LANE gw_u32 gw_acl_find(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_acl *table,
                           const gw_u64 *words)
{
    const GW_GLOBAL gw_u8 *block = image + GW_ONCE(gw_u64, &table->block_offset);
    const gw_u32 tuples = *(const GW_GLOBAL gw_u32 *)block;
    gw_u32 best = 0xffffffffu;
    gw_u32 row = GW_TABLE_NONE;
    for (gw_u32 t = 0; t < tuples && t < GW_ACL_TUPLES; t++) {
        const GW_GLOBAL gw_acl_tuple *tuple = (const GW_GLOBAL gw_acl_tuple *)(block + 64) + t;
        if (row != GW_TABLE_NONE && tuple->priority > best) {
            break;
        }
        gw_u64 masked[GW_ACL_WORDS];
        for (int i = 0; i < GW_ACL_WORDS; i++) {
            masked[i] = words[i] & tuple->masks[i];
        }
        const GW_GLOBAL gw_acl_slot *slots =
            (const GW_GLOBAL gw_acl_slot *)(block + tuple->slots_offset);
        const gw_u32 last = (1u << tuple->slot_bits) - 1;
        gw_u32 at = (gw_u32)(gw_acl_hash(masked, tuple->seed) >> 32) >> (32 - tuple->slot_bits);
        for (gw_u32 probe = 0; probe < GW_ACL_PROBES; probe++) {
            const GW_GLOBAL gw_acl_slot *slot = slots + at;
            GW_EXPENSIVE(slot);
            if (slot->row == GW_TABLE_NONE) {
                break;
            }
            gw_u64 differs = 0;
            for (int i = 0; i < GW_ACL_WORDS; i++) {
                differs |= slot->words[i] ^ masked[i];
            }
            if (differs == 0) {
                if (row == GW_TABLE_NONE || slot->priority < best) {
                    best = slot->priority;
                    row = slot->row;
                }
                break;
            }
            at = (at + 1) & last;
        }
    }
    return row;
}

#endif
