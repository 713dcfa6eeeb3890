/*
 * The table image of ipv6: a longest-prefix-match table in one of two forms, trie or hash.
 *
 *   0           next_hops_offset   root_offset             lines_offset      bytes
 *   | header    | next_hops * 16   | entries, 4 bytes each | lines of 64 bytes |
 *
 * All offsets are multiples of 64, from the first byte of the image. A look-up starts with the
 * upper half of the address, at root[upper half >> root_shift]. The form defines how 64 bits are
 * looked up. An entry is a word with a tag in its two top bits:
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
 * Entries of root and the two words of a next hop change while look-ups run. Each change is one
 * store, and each is read by one load (GW_ONCE). A line is not written while an entry refers to it,
 * or while a packet is in flight that may have read such an entry. A look-up therefore sees either
 * the complete old or the complete new state.
 */
#ifndef GODWIT_IPV6_IMAGE_H
#define GODWIT_IPV6_IMAGE_H

#define GW_IPV6_MAGIC 0x36765049u /* "IPv6" */

#define GW_IPV6_TRIE 0u /* values of gw_ipv6_image.form, and variants */
#define GW_IPV6_HASH 1u

typedef struct gw_ipv6_image {
    gw_u32 magic;      /* GW_IPV6_MAGIC */
    gw_u32 form;       /* GW_IPV6_TRIE or GW_IPV6_HASH; equal to the variant */
    gw_u32 next_hops;  /* capacity for next hops */
    gw_u32 root_shift; /* root has 2^(64 - root_shift) entries */
    gw_u64 next_hops_offset;
    gw_u64 root_offset;
    gw_u64 lines_offset;
    gw_u64 bytes; /* size of the image */
} gw_ipv6_image;
GW_STATIC_ASSERT(sizeof(gw_ipv6_image) == 48, ipv6_image_size);

#define GW_IPV6_LEAF  0u
#define GW_IPV6_TABLE 1u
#define GW_IPV6_NODE  2u
#define GW_IPV6_LOW   3u

#define GW_IPV6_LINE_BYTES 64u
#define GW_IPV6_LINE_MASK  0x7fffffu
#define GW_IPV6_NONE       0x3fffffffu /* entry and look-up result without a route */

#define GW_IPV6_KEYS 5u

/* Bucket: intervals of the upper or the lower half of an address. Value i applies from key i - 1 up
 * to but not including key i. Unused elements have a key of all ones and the value of the preceding
 * element. */
typedef struct gw_ipv6_bucket {
    gw_u64 keys[GW_IPV6_KEYS]; /* ascending */
    gw_u32 values[GW_IPV6_KEYS + 1];
} gw_ipv6_bucket;
GW_STATIC_ASSERT(sizeof(gw_ipv6_bucket) == GW_IPV6_LINE_BYTES, ipv6_bucket_size);

/* Header of a hash table of prefixes. 2^(64 - shift) lines of keys follow. */
typedef struct gw_ipv6_hash {
    gw_u64 rope;
    gw_u64 seed;
    gw_u32 value; /* LEAF or LOW, used if no prefix is found */
    gw_u32 shift; /* 32 to 63 */
    gw_u32 pad[10];
} gw_ipv6_hash;
GW_STATIC_ASSERT(sizeof(gw_ipv6_hash) == GW_IPV6_LINE_BYTES, ipv6_hash_size);

#define GW_IPV6_WAYS 3u

typedef struct gw_ipv6_hash_line {
    gw_u64 keys[GW_IPV6_WAYS]; /* prefixes; bits beyond their lengths are 0 */
    gw_u64 ropes[GW_IPV6_WAYS];
    gw_u32 values[GW_IPV6_WAYS]; /* LEAF or LOW */
    gw_u8 lengths[GW_IPV6_WAYS]; /* prefix lengths, 1 to 64; 0: no key */
    gw_u8 more;                  /* 1: a key of this line may be in the next line */
} gw_ipv6_hash_line;
GW_STATIC_ASSERT(sizeof(gw_ipv6_hash_line) == GW_IPV6_LINE_BYTES, ipv6_hash_line_size);

#define GW_IPV6_LOCAL       1u /* the address belongs to this machine */
#define GW_IPV6_BLACKHOLE   2u /* the route discards packets */
#define GW_IPV6_UNREACHABLE 4u /* treated like a missing route */
#define GW_IPV6_UNRESOLVED  8u /* the MAC address of the next hop is unknown */

/*
 * A next hop in two words, as in ipv4: fields from the top bits down, addresses in wire order.
 *
 *   to     48 bits destination address   8 bits port   8 bits flags, 0: forward
 *   from   48 bits source address       16 bits MTU: maximum length of an IP packet, in bytes
 */
typedef struct gw_ipv6_next_hop {
    gw_u64 to;
    gw_u64 from;
} gw_ipv6_next_hop;
GW_STATIC_ASSERT(sizeof(gw_ipv6_next_hop) == 16, ipv6_next_hop_size);
GW_ASSERT_OFFSET(gw_ipv6_next_hop, from, 8);

#endif
