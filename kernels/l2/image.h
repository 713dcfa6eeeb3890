/*
 * The table image of l2: ports, VLANs, and a cuckoo hash table of addresses with two
 * choices of four entries each (Pagh, Rodler, Cuckoo Hashing, ESA 2001; Zhou et al.,
 * Scalable, High Performance Ethernet Forwarding with CuckooSwitch, CoNEXT 2013).
 *
 *   0         ports_offset   vlans_offset   buckets_offset                 bytes
 *   | header  | 256 * 4      | 4096 * 64    | 2^bucket_bits * 4 entries * 8 |
 *
 * All offsets are multiples of 64, from the image's first byte.
 *
 * A key is VID << 48 | MAC, 60 bits. A keyed permutation of 60 bits (gw_l2_mix) makes
 * another number of it; its lower bucket_bits are the first bucket, the rest, rest,
 * identify the key there. The second bucket is the first one with some bits of a keyed
 * hash of rest flipped, and the first one is the second with the same bits flipped, so an
 * entry knows its key from where it lies:
 *
 *   63                          12 11          4  3        2       1        0
 *   | rest: 60 - bucket_bits bits | port         | static | fresh | second | valid |
 *
 * second: it lies in the key's second bucket. fresh: heard of not long ago, so that nobody
 * needs to be told that it was heard of again. 0: no entry.
 *
 * Entries are words of eight bytes, changed one by one while look-ups run: each is one fact,
 * and a look-up sees it as it was or as it is. An entry is moved by writing it to its new
 * place, waiting until no look-up is under way that began before, and only then overwriting
 * the old place. So at any time during any look-up it lies in one of its two buckets:
 * a look-up that began before the copy was made reads the old place before it is
 * overwritten, and any other finds the copy. (Found in both, it says the same in both, or
 * once what it said before and once what it says now; the first one counts.)
 */
#ifndef GODWIT_L2_IMAGE_H
#define GODWIT_L2_IMAGE_H

#define GW_L2_MAGIC 0x2032326cu /* "l22 " */

#define GW_L2_ROUNDS 4

typedef struct gw_l2_image {
    gw_u32 magic;                     /* GW_L2_MAGIC */
    gw_u32 bucket_bits;               /* 8 to 28 */
    gw_u64 multipliers[GW_L2_ROUNDS]; /* odd, secret; of the permutation's rounds */
    gw_u64 addends[GW_L2_ROUNDS];     /* secret */
    gw_u64 second;                    /* odd, secret: the hash that leads to the second bucket */
    gw_u64 ports_offset;
    gw_u64 vlans_offset;
    gw_u64 buckets_offset;
    gw_u64 bytes; /* size of the image */
} gw_l2_image;
GW_STATIC_ASSERT(sizeof(gw_l2_image) == 112, l2_image_size);

/* What arrives by a port. */
typedef struct gw_l2_port {
    gw_u16 vid;  /* VLAN of untagged frames */
    gw_u8 flags; /* GW_L2_UNTAGGED.. */
    gw_u8 pad;   /* 0 */
} gw_l2_port;
GW_STATIC_ASSERT(sizeof(gw_l2_port) == 4, l2_port_size);

#define GW_L2_UNTAGGED 1u /* takes frames without a tag, or with one of VID 0 */
#define GW_L2_TAGGED   2u /* takes frames with a tag, of the VLANs that it belongs to */
#define GW_L2_LEARNS   4u /* sources are learned here */

/* Ports of a VLAN: bit port % 32 of word port / 32. One cache line. */
typedef struct gw_l2_vlan {
    gw_u32 members[8]; /* frames leave by these */
    gw_u32 tagged[8];  /* with a tag by those of them */
} gw_l2_vlan;
GW_STATIC_ASSERT(sizeof(gw_l2_vlan) == 64, l2_vlan_size);

#define GW_L2_VALID      1u
#define GW_L2_SECOND     2u
#define GW_L2_FRESH      4u
#define GW_L2_STATIC     8u
#define GW_L2_PORT_SHIFT 4
#define GW_L2_REST_SHIFT 12

#endif
