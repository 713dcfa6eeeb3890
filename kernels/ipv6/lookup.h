/* Longest-prefix match of an IPv6 address, in a trie or a hash table. image.h describes the layout.
 */
#ifndef GODWIT_IPV6_LOOKUP_H
#define GODWIT_IPV6_LOOKUP_H

#include "image.h"

/* Upper bound of the loop over the levels of a trie, above the depth of any trie. A node consumes
 * at least six bits, and each node may have a bucket above it. */
#define GW_IPV6_LEVELS 40u
/* Upper bound of the loop over prefix lengths, above the number of lengths in any search. Each try
 * leaves fewer lengths. */
#define GW_IPV6_TRIES 128u
/* Maximum number of lines for the keys of one hash value. */
#define GW_IPV6_PROBES 16u

GW_LANE const GW_GLOBAL gw_u8 *gw_ipv6_lines(const GW_GLOBAL gw_u8 *image)
{
    return image + ((const GW_GLOBAL gw_ipv6_image *)image)->lines_offset;
}

GW_LANE const GW_GLOBAL gw_u8 *gw_ipv6_line(const GW_GLOBAL gw_u8 *lines, gw_u32 entry)
{
    return lines + (gw_u64)(entry & GW_IPV6_LINE_MASK) * GW_IPV6_LINE_BYTES;
}

/* Returns the address of the root entry for an IPv6 address. */
GW_LANE const GW_GLOBAL gw_u32 *gw_ipv6_root(const GW_GLOBAL gw_u8 *image, gw_u64 high)
{
    const GW_GLOBAL gw_ipv6_image *header = (const GW_GLOBAL gw_ipv6_image *)image;
    return (const GW_GLOBAL gw_u32 *)(image + header->root_offset) + (high >> header->root_shift);
}

/* Returns the address of a trie node's entry for a key. */
GW_LANE const GW_GLOBAL gw_u32 *gw_ipv6_slot(const GW_GLOBAL gw_u8 *line, gw_u32 entry, gw_u64 key)
{
    const gw_u32 shift = entry >> 24 & 62;
    const gw_u32 stride = 6 + (entry >> 22 & 6);
    return (const GW_GLOBAL gw_u32 *)line + (gw_u32)(key >> shift & ((1u << stride) - 1));
}

/* Takes one step down from a node or a bucket of the trie. Returns the next entry. */
GW_LANE gw_u32 gw_ipv6_below(const GW_GLOBAL gw_u8 *lines, gw_u32 entry, gw_u64 key)
{
    const GW_GLOBAL gw_u8 *line = gw_ipv6_line(lines, entry);
    if (entry >> 30 == GW_IPV6_NODE) {
        const GW_GLOBAL gw_u32 *slot = gw_ipv6_slot(line, entry, key);
        GW_EXPENSIVE(slot);
        return *slot;
    }
    const GW_GLOBAL gw_ipv6_bucket *bucket = (const GW_GLOBAL gw_ipv6_bucket *)line;
    GW_EXPENSIVE(bucket);
    return bucket->values[gw_rank_line(bucket->keys, GW_IPV6_KEYS, key)];
}

/* Descends from an entry of the trie to a LEAF or LOW entry. */
GW_LANE gw_u32 gw_ipv6_trie(const GW_GLOBAL gw_u8 *lines, gw_u32 entry, gw_u64 key)
{
    for (gw_u32 level = 0; level < GW_IPV6_LEVELS; level++) {
        if ((entry + (1u << 30)) >> 31 == 0) {
            break; /* LEAF or LOW */
        }
        entry = gw_ipv6_below(lines, entry, key);
    }
    return entry;
}

/* Returns the hash of a prefix. Its top bits are the line of a hash table (Dietzfelbinger et al., A
 * Reliable Randomized Algorithm for the Closest-Pair Problem, 1997: the top bits of a product). */
GW_LANE gw_u64 gw_ipv6_hash_of(gw_u64 prefix, gw_u32 length, gw_u64 seed)
{
    gw_u64 mixed = (prefix ^ (prefix >> 32)) * (seed | 1) + length * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 29;
    return mixed * 0xbf58476d1ce4e5b9u;
}

/* Returns the entry of the longest prefix of a key in a hash table of prefixes. */
GW_LANE gw_u32 gw_ipv6_hashed(const GW_GLOBAL gw_u8 *lines, gw_u32 entry, gw_u64 key)
{
    if (entry >> 30 != GW_IPV6_TABLE) {
        return entry;
    }
    const GW_GLOBAL gw_ipv6_hash *table =
        (const GW_GLOBAL gw_ipv6_hash *)gw_ipv6_line(lines, entry);
    GW_EXPENSIVE(table);
    const GW_GLOBAL gw_ipv6_hash_line *first =
        (const GW_GLOBAL gw_ipv6_hash_line *)(const GW_GLOBAL void *)(table + 1);
    const gw_u64 seed = table->seed;
    const gw_u32 shift = table->shift;
    gw_u64 rope = table->rope;
    gw_u32 best = table->value;
    for (gw_u32 tries = 0; tries < GW_IPV6_TRIES; tries++) {
        if (rope == 0) {
            break;
        }
        const gw_u32 length = (gw_u32)rope & 0xff;
        const gw_u64 prefix = key & (0xffffffffffffffffu << (64 - length));
        gw_u64 at = gw_ipv6_hash_of(prefix, length, seed) >> shift;
        rope >>= 8;
        for (gw_u32 probes = 0; probes < GW_IPV6_PROBES; probes++) {
            const GW_GLOBAL gw_ipv6_hash_line *line = first + at;
            GW_EXPENSIVE(line);
            gw_u32 way = GW_IPV6_WAYS;
            for (gw_u32 i = 0; i < GW_IPV6_WAYS; i++) {
                if (line->keys[i] == prefix && line->lengths[i] == length) {
                    way = i;
                }
            }
            if (way < GW_IPV6_WAYS) {
                best = line->values[way];
                rope = line->ropes[way];
                break;
            }
            if (!line->more) {
                break;
            }
            at = (at + 1) & (0xffffffffffffffffu >> shift);
        }
    }
    return best;
}

/* Looks up one half of an IPv6 address, in a trie or in a hash table depending on the variant. */
GW_LANE gw_u32 gw_ipv6_half_of(const GW_GLOBAL gw_u8 *lines, gw_u32 variant, gw_u32 entry,
                               gw_u64 key)
{
    return variant == GW_IPV6_TRIE ? gw_ipv6_trie(lines, entry, key)
                                   : gw_ipv6_hashed(lines, entry, key);
}

/* Returns the index of the next hop of an IPv6 destination, or GW_IPV6_NONE. */
GW_LANE gw_u32 gw_ipv6_lookup(const GW_GLOBAL gw_u8 *image, gw_u32 variant, gw_u64 high, gw_u64 low)
{
    const GW_GLOBAL gw_u8 *lines = gw_ipv6_lines(image);
    const GW_GLOBAL gw_u32 *root = gw_ipv6_root(image, high);
    GW_EXPENSIVE(root);
    gw_u32 entry = gw_ipv6_half_of(lines, variant, GW_ONCE(gw_u32, root), high);
    if (entry >> 30 == GW_IPV6_LOW) {
        const GW_GLOBAL gw_u8 *line = gw_ipv6_line(lines, entry);
        GW_EXPENSIVE(line);
        entry = *(const GW_GLOBAL gw_u32 *)line;
        entry = gw_ipv6_half_of(lines, variant, entry, low);
    }
    return entry;
}

#endif
