/*
 * The table image of ipv6: the longest matching prefix, in one of two forms.
 *
 *   0           next_hops_offset   root_offset             lines_offset      bytes
 *   | header    | next_hops * 16   | entries, 4 bytes each | lines of 64 bytes |
 *
 * All offsets are multiples of 64, from the image's first byte. The form says how an
 * address is looked up in 64 bits; first in its upper half, which begins at the entry
 * of root that its first bits name (upper half >> root_shift). An entry is a word with
 * a tag in its two top bits:
 *
 *   LEAF   30 bits: index of a next hop; all ones: no route
 *   TABLE  23 bits: the line of a bucket (trie), or of a hash table (hash)
 *   NODE   5 bits: half of a shift, 2 bits: half of (a stride - 6), 23 bits: line (trie)
 *   LOW    23 bits: the line whose first word is the entry to go on from, with the
 *          lower half of the address
 *
 * trie: a multibit trie. A node is an array of 2^stride entries, named by as many bits of
 * the address, those from shift on. What is left over, up to six intervals, lies in a
 * bucket: one line, searched by comparison. Bits in which nothing differs are skipped by
 * a bucket too: inside the interval that is divided further, outside the others.
 *
 * hash: binary search over the lengths of prefixes, with markers and ropes (Waldvogel,
 * Varghese, Turner, Plattner, Scalable High Speed IP Routing Lookups, SIGCOMM 1997). A
 * rope is the lengths to be tried, one byte each, the lowest first, while none is found;
 * what is found has a rope of its own, of longer prefixes that begin with it, and the
 * best next hop so far. Length 0 ends a rope. Keys lie in lines of three, in the line
 * that their hash names, or in the next ones while lines say more.
 *
 * Entries of root change while look-ups run, each by one store, and are read by one load each
 * (GW_ONCE); so do the two words of a next hop. Lines are never written while an entry leads
 * there, or a packet is in flight that may have read such an entry: a look-up meets all that
 * was there, or all that is.
 */
#ifndef GODWIT_IPV6_IMAGE_H
#define GODWIT_IPV6_IMAGE_H

#define GW_IPV6_MAGIC 0x36765049u /* "IPv6" */

#define GW_IPV6_TRIE 0u /* the variant too */
#define GW_IPV6_HASH 1u

typedef struct gw_ipv6_image {
    gw_u32 magic;      /* GW_IPV6_MAGIC */
    gw_u32 form;       /* GW_IPV6_TRIE or GW_IPV6_HASH; the variant says the same */
    gw_u32 next_hops;  /* for how many gw_ipv6_next_hop there is room */
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
#define GW_IPV6_NONE       0x3fffffffu /* an entry, and what a look-up says, without a route */

#define GW_IPV6_KEYS 5u

/* Of the upper or the lower half: value i from key i - 1 up to below key i; what is not needed
 * has keys of all ones, and the value before. */
typedef struct gw_ipv6_bucket {
    gw_u64 keys[GW_IPV6_KEYS]; /* ascending */
    gw_u32 values[GW_IPV6_KEYS + 1];
} gw_ipv6_bucket;
GW_STATIC_ASSERT(sizeof(gw_ipv6_bucket) == GW_IPV6_LINE_BYTES, ipv6_bucket_size);

/* The lines of keys follow, 2^(64 - shift) of them. */
typedef struct gw_ipv6_hash {
    gw_u64 rope;
    gw_u64 seed;
    gw_u32 value; /* LEAF or LOW, if nothing is found */
    gw_u32 shift; /* 32 to 63 */
    gw_u32 pad[10];
} gw_ipv6_hash;
GW_STATIC_ASSERT(sizeof(gw_ipv6_hash) == GW_IPV6_LINE_BYTES, ipv6_hash_size);

#define GW_IPV6_WAYS 3u

typedef struct gw_ipv6_hash_line {
    gw_u64 keys[GW_IPV6_WAYS]; /* prefixes, bits beyond their lengths 0 */
    gw_u64 ropes[GW_IPV6_WAYS];
    gw_u32 values[GW_IPV6_WAYS]; /* LEAF or LOW */
    gw_u8 lengths[GW_IPV6_WAYS]; /* 1 to 64; 0: no key */
    gw_u8 more;                  /* 1: a key of this line may lie in the next one */
} gw_ipv6_hash_line;
GW_STATIC_ASSERT(sizeof(gw_ipv6_hash_line) == GW_IPV6_LINE_BYTES, ipv6_hash_line_size);

#define GW_IPV6_LOCAL       1u /* an address of this machine */
#define GW_IPV6_BLACKHOLE   2u /* dropped on purpose */
#define GW_IPV6_UNREACHABLE 4u /* as if there were no route */
#define GW_IPV6_UNRESOLVED  8u /* the station's address is not known */

/*
 * As that of ipv4: a number in each word, from its top bits on; addresses as on the wire.
 *
 *   to     48 bits destination address   8 bits port   8 bits flags, 0: forward
 *   from   48 bits source address       16 bits MTU: longest IP packet, bytes
 */
typedef struct gw_ipv6_next_hop {
    gw_u64 to;
    gw_u64 from;
} gw_ipv6_next_hop;
GW_STATIC_ASSERT(sizeof(gw_ipv6_next_hop) == 16, ipv6_next_hop_size);
GW_ASSERT_OFFSET(gw_ipv6_next_hop, from, 8);

#endif
