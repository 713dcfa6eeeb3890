/* Finds the longest prefix of an IPv6 address, in a trie or in a hash table. */
#ifndef GODWIT_IPV6_LOOKUP_H
#define GODWIT_IPV6_LOOKUP_H

#include "../tables/trie.h"

/*
 * Tables of ipv6, which find the longest matching prefix by a trie or by hash tables.
 *
 *   0           next_hops_offset   root_offset             lines_offset      bytes
 *   | header    | next_hops * 16   | entries, 4 bytes each | lines of 64 bytes |
 *
 * All offsets count from the first byte of the tables and are multiples of 64. A lookup starts with
 * the upper half of the address, at root[upper half >> root_shift]. The kind of table, trie or
 * hash, defines how 64 bits are looked up. An entry is a word with a tag in its two top bits:
 *
 *   LEAF   30 bits: index of a next hop; all ones: no route
 *   TABLE  23 bits: line of a bucket (trie) or of a hash table (hash)
 *   NODE   5 bits: shift / 2; 2 bits: (stride - 6) / 2; 23 bits: line (trie)
 *   LOW    23 bits: line whose first word is the entry for the lower half of the address
 *
 * trie: a multibit trie. A node is an array of 2^stride entries. Its index is `stride` bits of the
 * address, from bit `shift` on. Up to six remaining intervals are stored in a bucket: one line that
 * is searched by comparison. A bucket also skips bits in which no prefix differs: one of its
 * intervals is divided further, and the others cover everything outside.
 *
 * hash: binary search over prefix lengths, with markers and ropes (Waldvogel, Varghese, Turner,
 * Plattner, Scalable High Speed IP Routing Lookups, SIGCOMM 1997). A rope is the sequence of
 * lengths to try while no prefix is found, one byte each, the first in the lowest byte. A prefix
 * that is found has its own rope, with lengths of longer prefixes that begin with it, and the best
 * next hop so far. Length 0 ends a rope. A line holds three keys. A key is in the line that its
 * hash selects, or in a following line while `more` is set.
 *
 * Entries of root and the two words of a next hop change while lookups run. Each change is one
 * store, and each is read by one load (GW_ONCE). A line is not written while an entry refers to it,
 * or while a packet is in flight that may have read such an entry. A lookup therefore sees either
 * the complete old or the complete new state.
 */

/* Maximum number of prefix lengths that a lookup tries. Each try excludes at least one length. */
#define GW_IPV6_TRIES 128u

GW_LANE const GW_GLOBAL gw_u8 *gw_ipv6_lines(const GW_GLOBAL gw_u8 *image)
{
    return image + ((const GW_GLOBAL gw_ipv6_image *)image)->lines_offset;
}

GW_LANE const GW_GLOBAL gw_u32 *gw_ipv6_root(const GW_GLOBAL gw_u8 *image, gw_u64 high)
{
    const GW_GLOBAL gw_ipv6_image *header = (const GW_GLOBAL gw_ipv6_image *)image;
    return (const GW_GLOBAL gw_u32 *)(image + header->root_offset) + (high >> header->root_shift);
}

/* Returns the hash of an IPv6 prefix. The top bits of the hash, a product, select the line of the
 * hash table (Dietzfelbinger et al., A Reliable Randomized Algorithm for the Closest-Pair Problem,
 * 1997). */
GW_LANE gw_u64 gw_ipv6_hash_of(gw_u64 prefix, gw_u32 length, gw_u64 seed)
{
    gw_u64 mixed = (prefix ^ (prefix >> 32)) * (seed | 1) + length * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 29;
    return mixed * 0xbf58476d1ce4e5b9u;
}

/* Finds the longest prefix of one half of an IPv6 address in a hash table. Returns the entry of
 * this prefix. */
GW_LANE gw_u32 gw_ipv6_hashed(const GW_GLOBAL gw_u8 *lines, gw_u32 entry, gw_u64 key)
{
    if (entry >> 30 != GW_IPV6_TABLE >> 30) {
        return entry;
    }
    const GW_GLOBAL gw_ipv6_hash *table =
        (const GW_GLOBAL gw_ipv6_hash *)gw_lpm6_line(lines, entry);
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

/* Looks up one half of an IPv6 address, in a trie or in a hash table. */
GW_LANE gw_u32 gw_ipv6_half_of(const GW_GLOBAL gw_u8 *lines, gw_u32 variant, gw_u32 entry,
                               gw_u64 key)
{
    return variant == GW_IPV6_TRIE ? gw_lpm6_trie(lines, entry, key)
                                   : gw_ipv6_hashed(lines, entry, key);
}

/* Returns the next hop index of an IPv6 destination, or GW_IPV6_NONE if no route matches. */
GW_LANE gw_u32 gw_ipv6_lookup(const GW_GLOBAL gw_u8 *image, gw_u32 variant, gw_u64 high, gw_u64 low)
{
    const GW_GLOBAL gw_u8 *lines = gw_ipv6_lines(image);
    const GW_GLOBAL gw_u32 *root = gw_ipv6_root(image, high);
    GW_EXPENSIVE(root);
    gw_u32 entry = gw_ipv6_half_of(lines, variant, GW_ONCE(gw_u32, root), high);
    if (entry >> 30 == GW_IPV6_LOW >> 30) {
        const GW_GLOBAL gw_u8 *line = gw_lpm6_line(lines, entry);
        GW_EXPENSIVE(line);
        entry = *(const GW_GLOBAL gw_u32 *)line;
        entry = gw_ipv6_half_of(lines, variant, entry, low);
    }
    return entry;
}

#endif
