/*
 * Structs that host and kernels share. lib.rs beside this file declares the same
 * structs for Rust; both sides assert every size and offset, and a test compares
 * the two. Included by the dialect header, which defines gw_u8 .. gw_u64 and
 * GW_STATIC_ASSERT and GW_ASSERT_OFFSET for each compiler. Little-endian everywhere.
 */
#ifndef GODWIT_ABI_H
#define GODWIT_ABI_H

/* A buffer starts at arena + buffer * GW_BUFFER_UNIT. */
#define GW_BUFFER_UNIT 64u

/*
 * The place of one packet in the arena.
 *
 *   buffer*64            +head              +head+length        +room*64
 *   |<---- headroom ---->|<---- frame ----->|<---- tailroom --->|
 *
 * A function may move head and length (and no other field) within the buffer.
 */
typedef struct gw_descriptor {
    gw_u32 buffer;    /* start of the buffer, in units of 64 bytes from the arena's base */
    gw_u16 head;      /* bytes from the buffer's start to the first byte of the frame */
    gw_u16 length;    /* bytes of the frame, without FCS */
    gw_u8 room;       /* size of the buffer, in units of 64 bytes */
    gw_u8 port;       /* port the packet came in by */
    gw_u16 order;     /* place in the worker's order of arrival, modulo 2^16 */
    gw_u32 flow_hash; /* symmetric Toeplitz hash of the 5-tuple */
} gw_descriptor;
GW_STATIC_ASSERT(sizeof(gw_descriptor) == 16, descriptor_size);
GW_ASSERT_OFFSET(gw_descriptor, head, 4);
GW_ASSERT_OFFSET(gw_descriptor, length, 6);
GW_ASSERT_OFFSET(gw_descriptor, room, 8);
GW_ASSERT_OFFSET(gw_descriptor, port, 9);
GW_ASSERT_OFFSET(gw_descriptor, order, 10);
GW_ASSERT_OFFSET(gw_descriptor, flow_hash, 12);

/* Verdicts are numbers of the function's contract, counted from 0, except this one. */
#define GW_VERDICT_DROP 255u

/* gw_outcome.port of a packet that goes to all ports of a set of the function's, but the one that
 * it came by; value is the number of the set. */
#define GW_PORT_FLOOD 0xffffu

/* What a function says of one packet. */
typedef struct gw_outcome {
    gw_u8 verdict; /* index into the contract's verdicts, or GW_VERDICT_DROP */
    gw_u8 reason;  /* with GW_VERDICT_DROP: index into the contract's drop reasons */
    gw_u16 port;   /* egress port, where the verdict says that the function chose one */
    gw_u32 value;  /* what else the function found; the contract says what it means */
} gw_outcome;
GW_STATIC_ASSERT(sizeof(gw_outcome) == 8, outcome_size);
GW_ASSERT_OFFSET(gw_outcome, reason, 1);
GW_ASSERT_OFFSET(gw_outcome, port, 2);
GW_ASSERT_OFFSET(gw_outcome, value, 4);

/* Up to one work-group of packets of the same (function, variant, length class, row). */
typedef struct gw_bin {
    gw_u32 first;        /* index of its first packet in the chunk's arrays */
    gw_u16 count;        /* packets in it */
    gw_u8 kernel;        /* which kernel: index into functions.h */
    gw_u8 variant;       /* which variant of it */
    gw_u16 instance;     /* which configured function: index into the table images */
    gw_u16 length_bytes; /* longest frame in it */
    gw_u16 length_class; /* its length class */
    gw_u8 row;           /* of its instance in the chain that a device follows */
    gw_u8 part;          /* GW_PART_MORE, GW_PART_REST: of a bin of several variants; or 0 */
} gw_bin;
GW_STATIC_ASSERT(sizeof(gw_bin) == 16, bin_size);
GW_ASSERT_OFFSET(gw_bin, count, 4);
GW_ASSERT_OFFSET(gw_bin, kernel, 6);
GW_ASSERT_OFFSET(gw_bin, variant, 7);
GW_ASSERT_OFFSET(gw_bin, instance, 8);
GW_ASSERT_OFFSET(gw_bin, length_bytes, 10);
GW_ASSERT_OFFSET(gw_bin, length_class, 12);
GW_ASSERT_OFFSET(gw_bin, row, 14);
GW_ASSERT_OFFSET(gw_bin, part, 15);

/*
 * A bin of packets of several variants lies in a chunk as its parts, one a variant, one behind the
 * other. One group runs them one after the other: lanes in lockstep that take different ways wait
 * for each other.
 */
#define GW_PART_MORE 1u /* the chunk's next bin is another part */
#define GW_PART_REST 2u /* the one in front is another part: no other group begins here */

/*
 * The part of the chain that a device follows by itself, at the beginning of its table images:
 *
 *   | gw_chain, 64 bytes | gw_chain_stage of each instance | hops: gw_u32 [instance][row][verdict]
 * |
 *
 * Packets whose hop leads on go to the next function on the device; the others are done, and the
 * host decides on.
 */
typedef struct gw_chain {
    gw_u32 rows;      /* of each instance, one a class of packets; 0: there is no chain */
    gw_u32 verdicts;  /* columns of each row; a verdict beyond them leads nowhere */
    gw_u32 instances; /* configured functions */
    gw_u32 reserved[13];
} gw_chain;
GW_STATIC_ASSERT(sizeof(gw_chain) == 64, chain_size);
GW_ASSERT_OFFSET(gw_chain, verdicts, 4);
GW_ASSERT_OFFSET(gw_chain, instances, 8);

/* A configured function, as packets that come to it on a device are run: with parameter 0. */
typedef struct gw_chain_stage {
    gw_u32 kernel;  /* which kernel it has */
    gw_u32 variant; /* of all packets */
} gw_chain_stage;
GW_STATIC_ASSERT(sizeof(gw_chain_stage) == 8, stop_size);
GW_ASSERT_OFFSET(gw_chain_stage, variant, 4);

/*
 * A hop: a rank, smaller than that of every function behind it, in the upper 16 bits; the
 * instance in the lower.
 */
#define GW_HOP_NONE 0xffffffffu /* not on */

/*
 * What the host learns of a packet's way: a byte for each function that led it on, the first in the
 * lowest bits: its verdict. Bytes of ones follow. The outcome is that of the last function.
 */
#define GW_TRAIL_NONE 0xffffffffu
#define GW_HOPS_MAX   4u

/* Where a device packs packets anew (dialect/loops_chain.h); packets is a multiple of 16. */
#define GW_CHAIN_SCRATCH_BYTES(packets) (40u * (packets))

/*
 * How host and one persistent group talk (Hummingbird, algorithms 1 and 2): a ring of
 * places for bins. The host fills place posted % places and then counts posted up;
 * the group works it off and then counts finished up.
 *
 *   | gw_mailbox | place 0 | place 1 | ...                    all at 64-byte boundaries
 *   place: | gw_bin, 64 bytes | descriptors | parameters | outcomes | trails |   bin_packets of
 * each
 */
typedef struct gw_mailbox {
    gw_u32 posted; /* written by the host: places filled so far, modulo 2^32 */
    gw_u32 stop;   /* written by the host: not 0 when the group is to end once all is worked off */
    gw_u64 extent; /* written by the host, of the last place: below */
    gw_u32 reserved_host[12];
    gw_u32 finished; /* written by the group: places worked off so far, modulo 2^32 */
    gw_u32 running;  /* written by the group: 1 once it polls, 2 when it has ended */
    gw_u32 reserved_device[14];
} gw_mailbox;
GW_STATIC_ASSERT(sizeof(gw_mailbox) == 128, mailbox_size);
GW_ASSERT_OFFSET(gw_mailbox, extent, 8);
GW_ASSERT_OFFSET(gw_mailbox, finished, 64);

/*
 * Where the buffers of a bin lie, if they lie side by side in the order of its packets, so that a
 * group can bring them before it has seen the descriptors:
 *
 *   the first's buffer | units of all together << 32 | posted behind it, modulo 2^16, << 48
 *
 * Units are those of buffers; 0: they do not lie so, or are more than GW_EXTENT_UNITS_MAX.
 */
#define GW_EXTENT_UNITS_MAX 192u

#define GW_MAILBOX_POLLING 1u
#define GW_MAILBOX_ENDED   2u

/* Bytes of a place; bin_packets is a multiple of 16, so that places begin at multiples of 64. */
#define GW_MAILBOX_SLOT_BYTES(bin_packets)      (64u + 36u * (bin_packets))
#define GW_MAILBOX_SLOT_DESCRIPTORS             64u
#define GW_MAILBOX_SLOT_PARAMETERS(bin_packets) (64u + 16u * (bin_packets))
#define GW_MAILBOX_SLOT_OUTCOMES(bin_packets)   (64u + 24u * (bin_packets))
#define GW_MAILBOX_SLOT_TRAILS(bin_packets)     (64u + 32u * (bin_packets))

#endif
