/*
 * The table image of ndn: a keyed hash table of name prefixes.
 *
 *   0           next_hops_offset   buckets_offset                  records_offset     bytes
 *   | header    | next_hops * 128  | (buckets + overflow) * 64     | records * 64     |
 *
 * All offsets are multiples of 64, from the first byte of the image.
 *
 * A name is the TLV-VALUE of its Name element: the sequence of its components as in a packet. Its
 * hash is SipHash-1-3 of these bytes under the image's key. The low half selects the bucket,
 * (low * buckets) >> 32. The high half is the fingerprint. A full bucket continues in an overflow
 * bucket; overflow buckets follow all others. A chain has at most GW_NDN_CHAIN buckets:
 *
 *   bucket      | fingerprint, record | 7 times                          | next | 0 |
 *   record      | next hop | deeper | below | name_bytes | the name, then zeros, up to 64 * n |
 *
 * Each next hop has two copies, so that it can change while packets use it. `valid_copy` of the
 * first copy selects the valid one. A record or next of 0 means none. Fingerprints may collide, so
 * a look-up always compares the name in the record.
 *
 * A look-up tries prefixes from short to long, but only lengths that the table contains. Bit i of
 * the header's `depths` is set if the table has prefixes of i + 1 components. The highest set bit
 * is that of `guide` components. For each name longer than this, the table has a record of its
 * first `guide` components, with or without a next hop. In this record, bit i of `deeper` is set if
 * a name below it has guide + 1 + i components. Most look-ups therefore end at the first record
 * that they find.
 */
#ifndef GODWIT_NDN_IMAGE_H
#define GODWIT_NDN_IMAGE_H

#define GW_NDN_MAGIC 0x206e646eu /* "ndn " */

typedef struct gw_ndn_image {
    gw_u32 magic;            /* GW_NDN_MAGIC */
    gw_u32 next_hops;        /* capacity for next hops */
    gw_u32 buckets;          /* buckets that a hash can select */
    gw_u32 overflow;         /* overflow buckets */
    gw_u32 records;          /* size of the records, in units of 64 bytes */
    gw_u32 default_next_hop; /* next hop of the name "/", or GW_NDN_NONE */
    gw_u32 depths;           /* lengths of the prefixes, see above */
    gw_u32 guide;            /* 1 to 32 */
    gw_u32 udp_port;         /* destination port of NDN over UDP */
    gw_u32 pad;              /* 0 */
    gw_u64 key0;             /* key of SipHash */
    gw_u64 key1;
    gw_u64 next_hops_offset;
    gw_u64 buckets_offset;
    gw_u64 records_offset;
    gw_u64 bytes; /* size of the image */
} gw_ndn_image;
GW_STATIC_ASSERT(sizeof(gw_ndn_image) == 88, ndn_image_size);

#define GW_NDN_SLOTS  7u          /* slots per bucket */
#define GW_NDN_CHAIN  16u         /* maximum number of buckets in a chain */
#define GW_NDN_NONE   0xffffffffu /* no next hop */
#define GW_NDN_DEPTHS 32u         /* maximum number of components of a name in the table */

typedef struct gw_ndn_slot {
    gw_u32 fingerprint;
    gw_u32 record; /* in units of 64 bytes; 0: the slot is free */
} gw_ndn_slot;

typedef struct gw_ndn_bucket {
    gw_ndn_slot slots[GW_NDN_SLOTS];
    gw_u32 next; /* index of the next bucket in the chain; 0: none */
    gw_u32 pad;  /* 0 */
} gw_ndn_bucket;
GW_STATIC_ASSERT(sizeof(gw_ndn_bucket) == 64, ndn_bucket_size);

/* Record of a prefix in the table. Its name follows. */
typedef struct gw_ndn_record {
    gw_u32 next_hop;   /* index, or GW_NDN_NONE if the record is only a guide */
    gw_u32 deeper;     /* lengths of the names below, see above; guides only */
    gw_u32 below;      /* number of names that use the record as a guide; for the host */
    gw_u32 name_bytes; /* 2 or more */
} gw_ndn_record;
GW_STATIC_ASSERT(sizeof(gw_ndn_record) == 16, ndn_record_size);

#define GW_NDN_LOCAL     1u /* the destination is this machine */
#define GW_NDN_BLACKHOLE 2u /* the route discards packets */

/* Protocols that carry NDN packets. */
#define GW_NDN_ETHERNET 0u
#define GW_NDN_UDP4     1u
#define GW_NDN_UDP6     2u

/* A next hop: the headers that precede the NDN packet in the forwarded frame. */
typedef struct gw_ndn_next_hop {
    gw_u8 destination_mac[6];
    gw_u8 source_mac[6];
    gw_u16 port;
    gw_u8 flags;              /* GW_NDN_LOCAL, GW_NDN_BLACKHOLE */
    gw_u8 carrier;            /* GW_NDN_ETHERNET, ... */
    gw_u8 source_address[16]; /* with UDP4, the first 4 bytes */
    gw_u8 destination_address[16];
    gw_u16 source_port;
    gw_u16 destination_port;
    gw_u32 valid_copy; /* in the first copy: index of the valid copy, 0 or 1 */
    gw_u32 pad[2];     /* 0 */
} gw_ndn_next_hop;
GW_STATIC_ASSERT(sizeof(gw_ndn_next_hop) == 64, ndn_next_hop_size);
GW_ASSERT_OFFSET(gw_ndn_next_hop, source_address, 16);

#endif
