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

#define GW_IPV4_LOCAL     1u /* an address of this machine */
#define GW_IPV4_BLACKHOLE 2u /* dropped on purpose */

/* Addresses as the frame that leaves has them: its first 12 bytes. */
typedef struct gw_ipv4_next_hop {
    gw_u8 destination_mac[6];
    gw_u8 source_mac[6];
    gw_u16 port;
    gw_u8 flags; /* GW_IPV4_LOCAL, GW_IPV4_BLACKHOLE */
    gw_u8 pad;   /* 0 */
} gw_ipv4_next_hop;
GW_STATIC_ASSERT(sizeof(gw_ipv4_next_hop) == 16, ipv4_next_hop_size);
GW_ASSERT_OFFSET(gw_ipv4_next_hop, port, 12);

#endif
