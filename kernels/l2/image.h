/*
 * The table image of l2: ports, VLANs, and a cuckoo hash table of addresses. A key has two buckets
 * of four entries each (Pagh, Rodler, Cuckoo Hashing, ESA 2001; Zhou et al., Scalable, High
 * Performance Ethernet Forwarding with CuckooSwitch, CoNEXT 2013).
 *
 *   0         ports_offset   vlans_offset   buckets_offset                 bytes
 *   | header  | 256 * 4      | 4096 * 64    | 2^bucket_bits * 4 entries * 8 |
 *
 * All offsets are multiples of 64, from the first byte of the image.
 *
 * A key is VID << 48 | MAC, 60 bits. A keyed permutation of 60 bits (gw_l2_mix) is applied to it.
 * The lower bucket_bits of the result are the key's first bucket. The other bits, `rest`, identify
 * the key within the bucket. The second bucket is the first bucket XOR a keyed hash of `rest`. The
 * same XOR leads back, so an entry and its bucket determine the key:
 *
 *   63                          12 11          4  3        2       1        0
 *   | rest: 60 - bucket_bits bits | port         | static | fresh | second | valid |
 *
 * second: the entry is in the key's second bucket. fresh: the address was seen recently, so no
 * notice is needed when it is seen again. An empty entry is 0.
 *
 * An entry is one 64-bit word that is changed by one store while look-ups run, so a look-up sees
 * either the old or the new entry. To move an entry, the host writes the copy, waits until every
 * look-up that began before has ended, and only then overwrites the original. At any time during a
 * look-up, the entry is in one of its two buckets: a look-up that began before the copy existed
 * reads the original before it is overwritten, and any later one finds the copy. If a look-up finds
 * both, they may differ only if the entry was changed in between; the first one is used.
 */
#ifndef GODWIT_L2_IMAGE_H
#define GODWIT_L2_IMAGE_H

#define GW_L2_MAGIC 0x2032326cu /* "l22 " */

#define GW_L2_ROUNDS 4

typedef struct gw_l2_image {
    gw_u32 magic;                     /* GW_L2_MAGIC */
    gw_u32 bucket_bits;               /* 8 to 28 */
    gw_u64 multipliers[GW_L2_ROUNDS]; /* multipliers of the permutation; odd, secret */
    gw_u64 addends[GW_L2_ROUNDS];     /* addends of the permutation; secret */
    gw_u64 second;                    /* multiplier of the second bucket's hash; odd, secret */
    gw_u64 ports_offset;
    gw_u64 vlans_offset;
    gw_u64 buckets_offset;
    gw_u64 bytes; /* size of the image */
} gw_l2_image;
GW_STATIC_ASSERT(sizeof(gw_l2_image) == 112, l2_image_size);

/* Rules of an ingress port of the switch. */
typedef struct gw_l2_port {
    gw_u16 vid;  /* VLAN of untagged frames */
    gw_u8 flags; /* GW_L2_UNTAGGED, GW_L2_TAGGED, GW_L2_LEARNS */
    gw_u8 pad;   /* 0 */
} gw_l2_port;
GW_STATIC_ASSERT(sizeof(gw_l2_port) == 4, l2_port_size);

#define GW_L2_UNTAGGED 1u /* accepts frames without a tag or with VID 0 */
#define GW_L2_TAGGED   2u /* accepts frames with a tag, in the VLANs of which it is a member */
#define GW_L2_LEARNS   4u /* learns source addresses */

/* Ports of a VLAN, in one cache line. Port p is bit p % 32 of word p / 32. */
typedef struct gw_l2_vlan {
    gw_u32 members[8]; /* member ports */
    gw_u32 tagged[8];  /* member ports that send frames with a tag */
} gw_l2_vlan;
GW_STATIC_ASSERT(sizeof(gw_l2_vlan) == 64, l2_vlan_size);

#define GW_L2_VALID      1u
#define GW_L2_SECOND     2u
#define GW_L2_FRESH      4u
#define GW_L2_STATIC     8u
#define GW_L2_PORT_SHIFT 4
#define GW_L2_REST_SHIFT 12

#endif
