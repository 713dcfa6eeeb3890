/*
 * The table image of ndn: names in a hash table of buckets, keyed, with the names themselves.
 *
 *   0           next_hops_offset   buckets_offset                  records_offset     bytes
 *   | header    | next_hops * 128  | (buckets + overflow) * 64     | records * 64     |
 *
 * All offsets are multiples of 64, from the image's first byte.
 *
 * A name is the TLV-VALUE of its Name element: components one after another, each as it lies in a
 * packet. The hash of a name is SipHash-1-3 of these bytes under the image's key: its low half
 * says the bucket, (low * buckets) >> 32, its high half is the fingerprint. A bucket that is full
 * goes on in one of the overflow behind all others, and so forth, GW_NDN_CHAIN at most:
 *
 *   bucket      | fingerprint, record | 7 times                          | next | 0 |
 *   record      | next hop | deeper | below | name_bytes | the name, then zeros, up to 64 * n |
 *
 * A next hop is twice there, so that it can change while packets use it: the first says which
 * counts. record 0 is none, and so is next 0. A hash is never believed: the name in the record is
 * compared.
 *
 * Prefixes are tried from short to long, but only of numbers of components for which there is
 * something to find: bit i of the header's depths stands for i + 1 components. Its highest
 * bit is for guide components: every longer name has a record of its first guide components,
 * with or without a next hop, in which bit i of deeper stands for guide + 1 + i components and
 * says that some name below has so many. Most look-ups so end with the first record they find.
 */
#ifndef GODWIT_NDN_IMAGE_H
#define GODWIT_NDN_IMAGE_H

#define GW_NDN_MAGIC 0x206e646eu /* "ndn " */

typedef struct gw_ndn_image {
    gw_u32 magic;            /* GW_NDN_MAGIC */
    gw_u32 next_hops;        /* how many gw_ndn_next_hop there is room for */
    gw_u32 buckets;          /* that hashes lead to */
    gw_u32 overflow;         /* buckets behind these */
    gw_u32 records;          /* units of 64 bytes */
    gw_u32 default_next_hop; /* of the name "/", or GW_NDN_NONE */
    gw_u32 depths;           /* see above */
    gw_u32 guide;            /* 1 to 32 */
    gw_u32 udp_port;         /* where NDN is listened for */
    gw_u32 pad;              /* 0 */
    gw_u64 key0;             /* of SipHash */
    gw_u64 key1;
    gw_u64 next_hops_offset;
    gw_u64 buckets_offset;
    gw_u64 records_offset;
    gw_u64 bytes; /* size of the image */
} gw_ndn_image;
GW_STATIC_ASSERT(sizeof(gw_ndn_image) == 88, ndn_image_size);

#define GW_NDN_SLOTS  7u          /* of a bucket */
#define GW_NDN_CHAIN  16u         /* most buckets of one hash */
#define GW_NDN_NONE   0xffffffffu /* no next hop */
#define GW_NDN_DEPTHS 32u         /* most components of a name in the table */

typedef struct gw_ndn_slot {
    gw_u32 fingerprint;
    gw_u32 record; /* in units of 64 bytes; 0: the slot is free */
} gw_ndn_slot;

typedef struct gw_ndn_bucket {
    gw_ndn_slot slots[GW_NDN_SLOTS];
    gw_u32 next; /* index of the bucket where this one goes on; 0: nowhere */
    gw_u32 pad;  /* 0 */
} gw_ndn_bucket;
GW_STATIC_ASSERT(sizeof(gw_ndn_bucket) == 64, ndn_bucket_size);

/* The name follows. */
typedef struct gw_ndn_record {
    gw_u32 next_hop;   /* or GW_NDN_NONE: longer names have it as a guide */
    gw_u32 deeper;     /* see above; of guides only */
    gw_u32 below;      /* names that have it as a guide; for the host */
    gw_u32 name_bytes; /* 2 or more */
} gw_ndn_record;
GW_STATIC_ASSERT(sizeof(gw_ndn_record) == 16, ndn_record_size);

#define GW_NDN_LOCAL     1u /* for this machine */
#define GW_NDN_BLACKHOLE 2u /* dropped on purpose */

/* What carries an NDN packet. */
#define GW_NDN_ETHERNET 0u
#define GW_NDN_UDP4     1u
#define GW_NDN_UDP6     2u

/* What the frame that leaves has in front of the NDN packet. */
typedef struct gw_ndn_next_hop {
    gw_u8 destination_mac[6];
    gw_u8 source_mac[6];
    gw_u16 port;
    gw_u8 flags;              /* GW_NDN_LOCAL, GW_NDN_BLACKHOLE */
    gw_u8 carrier;            /* GW_NDN_ETHERNET, ... */
    gw_u8 source_address[16]; /* of UDP4 the first 4 bytes */
    gw_u8 destination_address[16];
    gw_u16 source_port;
    gw_u16 destination_port;
    gw_u32 turn;   /* of the first of two: which of them counts, 0 or 1 */
    gw_u32 pad[2]; /* 0 */
} gw_ndn_next_hop;
GW_STATIC_ASSERT(sizeof(gw_ndn_next_hop) == 64, ndn_next_hop_size);
GW_ASSERT_OFFSET(gw_ndn_next_hop, source_address, 16);

#endif
