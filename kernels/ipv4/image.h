/*
 * The table image of ipv4: a DIR-24-8 table (Gupta, Lin, McKeown, Routing Lookups
 * in Hardware at Memory Access Speeds, INFOCOM 1998).
 *
 *   0           next_hops_offset   tbl24_offset           tbl8_offset         bytes
 *   | header    | next_hops * 16   | 2^24 * entry_bytes   | groups * 256 *    |
 *   |           |                  |                      |   entry_bytes     |
 *
 * All offsets are multiples of 64, from the image's first byte. An entry has
 * entry_bytes bytes, 2 or 4, of which the top bit is 0x8000 or 0x80000000:
 *
 *   tbl24[address >> 8]  top bit set    the other bits are a group of tbl8
 *                        otherwise      a next hop's index
 *   tbl8[group * 256 + (address & 255)] a next hop's index; the top bit is never set
 *
 * All bits but the top one set, 0x7fff or 0x7fffffff, is no next hop: no route.
 * So 2-byte entries reach 32767 next hops and 32768 groups.
 *
 * Entries of tbl24 and the words of a next hop change while look-ups run, each by
 * one store, and are read by one load each (GW_ONCE): a look-up meets what was
 * there or what is. A group never changes while an entry of tbl24 names it, or
 * packets are in flight that may have read such an entry; no more does the index
 * of a next hop get another meaning.
 */
#ifndef GODWIT_IPV4_IMAGE_H
#define GODWIT_IPV4_IMAGE_H

#define GW_IPV4_MAGIC 0x34765049u /* "IPv4" */

typedef struct gw_ipv4_image {
    gw_u32 magic;       /* GW_IPV4_MAGIC */
    gw_u32 entry_bytes; /* 2 or 4; the variant says the same: 0 or 1 */
    gw_u32 next_hops;   /* how many gw_ipv4_next_hop */
    gw_u32 groups;      /* of 256 entries, in tbl8 */
    gw_u64 next_hops_offset;
    gw_u64 tbl24_offset;
    gw_u64 tbl8_offset;
    gw_u64 bytes; /* size of the image */
} gw_ipv4_image;
GW_STATIC_ASSERT(sizeof(gw_ipv4_image) == 48, ipv4_image_size);

#define GW_IPV4_LOCAL       1u /* an address of this machine */
#define GW_IPV4_BLACKHOLE   2u /* dropped on purpose */
#define GW_IPV4_UNREACHABLE 4u /* as if there were no route */
#define GW_IPV4_UNRESOLVED  8u /* the station's address is not known */

/*
 * A number in each word, from its top bits on; addresses as on the wire, the first
 * byte uppermost. What changes often, the station, lies in one word with the flags
 * and the port that it is reached by.
 *
 *   to     48 bits destination address   8 bits port   8 bits flags, 0: forward
 *   from   48 bits source address       16 bits MTU: longest IP packet, bytes
 */
typedef struct gw_ipv4_next_hop {
    gw_u64 to;
    gw_u64 from;
} gw_ipv4_next_hop;
GW_STATIC_ASSERT(sizeof(gw_ipv4_next_hop) == 16, ipv4_next_hop_size);
GW_ASSERT_OFFSET(gw_ipv4_next_hop, from, 8);

#endif
