/* Steps of a lookup in a multibit trie, which kernels/ipv6/lookup.h describes. */
#ifndef GODWIT_TABLES_TRIE_H
#define GODWIT_TABLES_TRIE_H

#define GW_LPM6_LEAF  0u /* tags of an entry, in its two top bits */
#define GW_LPM6_TABLE 1u
#define GW_LPM6_NODE  2u
#define GW_LPM6_LOW   3u

#define GW_LPM6_LINE_BYTES 64u
#define GW_LPM6_LINE_MASK  0x7fffffu
#define GW_LPM6_NONE       0x3fffffffu /* entry without a row */
#define GW_LPM6_KEYS       5u

/* Upper bound for the steps of a lookup. Each node consumes at least six of the key's 64 bits, and
 * a bucket may precede each node. */
#define GW_LPM6_LEVELS 40u

/* Bucket that divides the possible keys into intervals. values[i] belongs to the interval that
 * begins at keys[i - 1] and ends before keys[i]. */
typedef struct gw_lpm6_bucket {
    gw_u64 keys[GW_LPM6_KEYS];
    gw_u32 values[GW_LPM6_KEYS + 1];
} gw_lpm6_bucket;

GW_LANE const GW_GLOBAL gw_u8 *gw_lpm6_line(const GW_GLOBAL gw_u8 *lines, gw_u32 entry)
{
    return lines + (gw_u64)(entry & GW_LPM6_LINE_MASK) * GW_LPM6_LINE_BYTES;
}

/* Returns the address of a trie node's entry for a key. */
GW_LANE const GW_GLOBAL gw_u32 *gw_lpm6_slot(const GW_GLOBAL gw_u8 *line, gw_u32 entry, gw_u64 key)
{
    const gw_u32 shift = entry >> 24 & 62;
    const gw_u32 stride = 6 + (entry >> 22 & 6);
    return (const GW_GLOBAL gw_u32 *)line + (gw_u32)(key >> shift & ((1u << stride) - 1));
}

/* Advances a lookup by one step, from the node or bucket of `entry`. Returns the next entry. */
GW_LANE gw_u32 gw_lpm6_below(const GW_GLOBAL gw_u8 *lines, gw_u32 entry, gw_u64 key)
{
    const GW_GLOBAL gw_u8 *line = gw_lpm6_line(lines, entry);
    if (entry >> 30 == GW_LPM6_NODE) {
        const GW_GLOBAL gw_u32 *slot = gw_lpm6_slot(line, entry, key);
        GW_EXPENSIVE(slot);
        return *slot;
    }
    const GW_GLOBAL gw_lpm6_bucket *bucket = (const GW_GLOBAL gw_lpm6_bucket *)line;
    GW_EXPENSIVE(bucket);
    return bucket->values[gw_rank_line(bucket->keys, GW_LPM6_KEYS, key)];
}

/* Descends from an entry of the trie to a LEAF or LOW entry. */
GW_LANE gw_u32 gw_lpm6_trie(const GW_GLOBAL gw_u8 *lines, gw_u32 entry, gw_u64 key)
{
    for (gw_u32 level = 0; level < GW_LPM6_LEVELS; level++) {
        if ((entry + (1u << 30)) >> 31 == 0) {
            break; /* LEAF or LOW */
        }
        entry = gw_lpm6_below(lines, entry, key);
    }
    return entry;
}

#endif
