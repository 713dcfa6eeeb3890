/*
 * Table image of ipv4: a DIR-24-8 table (Gupta, Lin, McKeown, Routing Lookups in Hardware at Memory
 * Access Speeds, INFOCOM 1998).
 *
 *   0           next_hops_offset   tbl24_offset           tbl8_offset         bytes
 *   | header    | next_hops * 16   | 2^24 * entry_bytes   | groups * 256 *    |
 *   |           |                  |                      |   entry_bytes     |
 *
 * All offsets are multiples of 64, from the first byte of the image. An entry has entry_bytes
 * bytes, 2 or 4. Its top bit is 0x8000 or 0x80000000:
 *
 *   tbl24[address >> 8]  top bit set    the other bits are the number of a group in tbl8
 *                        otherwise      the index of a next hop
 *   tbl8[group * 256 + (address & 255)] the index of a next hop; the top bit is never set
 *
 * The value with all bits except the top one set, 0x7fff or 0x7fffffff, means no route. Entries of
 * 2 bytes thus allow 32767 next hops and 32768 groups.
 *
 * Entries of tbl24 and the words of a next hop change while look-ups run. Each change is one store,
 * and each is read by one load (GW_ONCE), so a look-up sees either the old or the new value. A
 * group does not change while an entry of tbl24 refers to it, or while packets are in flight that
 * may have read such an entry. The index of a next hop is reused under the same rule.
 */
#ifndef GODWIT_IPV4_IMAGE_H
#define GODWIT_IPV4_IMAGE_H

#define GW_IPV4_MAGIC 0x34765049u /* "IPv4" */

typedef struct gw_ipv4_image {
    gw_u32 magic;       /* GW_IPV4_MAGIC */
    gw_u32 entry_bytes; /* 2 for variant 0, 4 for variant 1 */
    gw_u32 next_hops;   /* number of next hops */
    gw_u32 groups;      /* number of groups in tbl8, 256 entries each */
    gw_u64 next_hops_offset;
    gw_u64 tbl24_offset;
    gw_u64 tbl8_offset;
    gw_u64 bytes; /* size of the image */
} gw_ipv4_image;
GW_STATIC_ASSERT(sizeof(gw_ipv4_image) == 48, ipv4_image_size);

#define GW_IPV4_LOCAL       1u /* the address belongs to this machine */
#define GW_IPV4_BLACKHOLE   2u /* the route discards packets */
#define GW_IPV4_UNREACHABLE 4u /* treated like a missing route */
#define GW_IPV4_UNRESOLVED  8u /* the MAC address of the next hop is unknown */

/*
 * A next hop in two 64-bit words, with fields from the top bits down. MAC addresses are in wire
 * order, with the first byte uppermost. One word holds everything that changes together: the
 * destination address, the port and the flags.
 *
 *   to     48 bits destination address   8 bits port   8 bits flags, 0: forward
 *   from   48 bits source address       16 bits MTU: maximum length of an IP packet, in bytes
 */
typedef struct gw_ipv4_next_hop {
    gw_u64 to;
    gw_u64 from;
} gw_ipv4_next_hop;
GW_STATIC_ASSERT(sizeof(gw_ipv4_next_hop) == 16, ipv4_next_hop_size);
GW_ASSERT_OFFSET(gw_ipv4_next_hop, from, 8);

#endif
