/*
 * Structs that host and kernels share. src/lib.rs in this folder declares the same structs for
 * Rust. Both sides assert every size and offset, and a test compares the two. The dialect header
 * includes this file and defines gw_u8 .. gw_u64, GW_STATIC_ASSERT and GW_ASSERT_OFFSET for each
 * compiler. All fields are little-endian.
 */
#ifndef GODWIT_ABI_H
#define GODWIT_ABI_H

/* Size of a buffer unit, in bytes. A buffer starts at arena + buffer * GW_BUFFER_UNIT. */
#define GW_BUFFER_UNIT 64u

/*
 * Location of one packet in the arena.
 *
 *   buffer*64            +head              +head+length        +room*64
 *   |<---- headroom ---->|<---- frame ----->|<---- tailroom --->|
 *
 * A function may change only head and length, and keeps the frame within the buffer.
 */
typedef struct gw_descriptor {
    gw_u32 buffer;    /* start of the buffer, in units of 64 bytes from the arena's base */
    gw_u16 head;      /* bytes from the buffer's start to the first byte of the frame */
    gw_u16 length;    /* length of the frame in bytes, without FCS */
    gw_u8 room;       /* size of the buffer, in units of 64 bytes */
    gw_u8 port;       /* ingress port */
    gw_u16 order;     /* sequence number in the worker's arrival order, modulo 2^16 */
    gw_u32 flow_hash; /* symmetric Toeplitz hash of the 5-tuple */
} gw_descriptor;
GW_STATIC_ASSERT(sizeof(gw_descriptor) == 16, descriptor_size);
GW_ASSERT_OFFSET(gw_descriptor, head, 4);
GW_ASSERT_OFFSET(gw_descriptor, length, 6);
GW_ASSERT_OFFSET(gw_descriptor, room, 8);
GW_ASSERT_OFFSET(gw_descriptor, port, 9);
GW_ASSERT_OFFSET(gw_descriptor, order, 10);
GW_ASSERT_OFFSET(gw_descriptor, flow_hash, 12);

/* Verdict of a dropped packet. All other verdicts are indices into the function's contract. */
#define GW_VERDICT_DROP 255u

/* gw_outcome.port of a flooded packet: it goes to all ports of a port set except the ingress port.
 * gw_outcome.value is the index of the port set. */
#define GW_PORT_FLOOD 0xffffu

/* Result of a function for one packet. */
typedef struct gw_outcome {
    gw_u8 verdict; /* index into the contract's verdicts, or GW_VERDICT_DROP */
    gw_u8 reason;  /* with GW_VERDICT_DROP: index into the contract's drop reasons */
    gw_u16 port;   /* egress port, if the verdict requires one, or GW_PORT_FLOOD */
    gw_u32 value;  /* additional result, defined by the contract */
} gw_outcome;
GW_STATIC_ASSERT(sizeof(gw_outcome) == 8, outcome_size);
GW_ASSERT_OFFSET(gw_outcome, reason, 1);
GW_ASSERT_OFFSET(gw_outcome, port, 2);
GW_ASSERT_OFFSET(gw_outcome, value, 4);

/* Up to one work-group of packets with the same function, variant, length class and row. */
typedef struct gw_bin {
    gw_u32 first;        /* index of the first packet in the chunk's arrays */
    gw_u16 count;        /* number of packets */
    gw_u8 kernel;        /* kernel number */
    gw_u8 variant;       /* variant of the kernel */
    gw_u16 instance;     /* configured function: index into the table images */
    gw_u16 length_bytes; /* length of the longest frame */
    gw_u16 length_class; /* length class of all frames */
    gw_u8 row;           /* row of the instance in the device chain */
    gw_u8 part;          /* GW_PART_MORE and GW_PART_REST, for a bin of several variants */
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
 * A bin of several variants is stored in a chunk as consecutive parts, one per variant. One group
 * runs all parts in order. Lanes in lockstep would otherwise wait for each other at each branch on
 * the variant.
 */
#define GW_PART_MORE 1u /* the chunk's next bin is another part of the same bin */
#define GW_PART_REST 2u /* the previous bin is another part: no other group starts here */

/*
 * The device chain: the part of the chain that a device executes without the host. It is stored at
 * the beginning of the table images:
 *
 *   | gw_chain, 64 bytes | a gw_chain_stage per instance | hops: gw_u32 [instance][row][verdict] |
 *
 * After a function returns a verdict for a packet, the hop for (instance, row, verdict) gives the
 * packet's next function. Without a hop (GW_HOP_NONE) the device is done with the packet, and the
 * host continues.
 */
typedef struct gw_chain {
    gw_u32 rows;      /* rows per instance, one for each class of packets; 0: no chain */
    gw_u32 verdicts;  /* columns per row; higher verdicts have no hop */
    gw_u32 instances; /* number of configured functions */
    gw_u32 reserved[13];
} gw_chain;
GW_STATIC_ASSERT(sizeof(gw_chain) == 64, chain_size);
GW_ASSERT_OFFSET(gw_chain, verdicts, 4);
GW_ASSERT_OFFSET(gw_chain, instances, 8);

/* Kernel and variant of an instance (configured function) on the device chain. Packets run there
 * with parameter 0. */
typedef struct gw_chain_stage {
    gw_u32 kernel;  /* kernel number */
    gw_u32 variant; /* variant of all packets */
} gw_chain_stage;
GW_STATIC_ASSERT(sizeof(gw_chain_stage) == 8, chain_stage_size);
GW_ASSERT_OFFSET(gw_chain_stage, variant, 4);

/*
 * A hop is the transition of a packet to its next function on a device. The lower 16 bits hold the
 * instance of that function. The upper 16 bits hold its rank, which is lower than the rank of every
 * function that follows it.
 */
#define GW_HOP_NONE 0xffffffffu /* the packet does not continue on the device */

/*
 * The trail of a packet records its hops for the host. Each hop takes one byte, the first in the
 * lowest bits: the verdict that caused the hop. Unused bytes are 0xff. The packet's outcome is that
 * of its last function.
 */
#define GW_TRAIL_NONE 0xffffffffu /* no hop */
#define GW_HOPS_MAX   4u          /* maximum number of hops on a device */

/* Size of a chain scratch for `packets` packets, in bytes. `packets` is a multiple of 16.
 * loops_chain.h describes the chain scratch. */
#define GW_CHAIN_SCRATCH_BYTES(packets) (40u * (packets))

/*
 * Mailbox through which the host gives bins to one persistent group (Hummingbird, algorithms 1 and
 * 2). It contains a ring of slots. The host fills slot posted % slots and increments posted. The
 * group processes the bin and increments finished.
 *
 *   | gw_mailbox | slot 0 | slot 1 | ...          all at 64-byte boundaries
 *
 *   slot: | gw_bin, 64 bytes | descriptors | parameters | outcomes | trails |
 *         each array has bin_packets elements
 */
typedef struct gw_mailbox {
    gw_u32 posted; /* written by the host: slots filled, modulo 2^32 */
    gw_u32 stop;   /* written by the host: if not 0, the group ends after the last posted slot */
    gw_u64 extent; /* written by the host: extent of the last posted bin, see below */
    gw_u32 reserved_host[12];
    gw_u32 finished; /* written by the group: slots processed, modulo 2^32 */
    gw_u32 running;  /* written by the group: GW_MAILBOX_POLLING, then GW_MAILBOX_ENDED */
    gw_u32 reserved_device[14];
} gw_mailbox;
GW_STATIC_ASSERT(sizeof(gw_mailbox) == 128, mailbox_size);
GW_ASSERT_OFFSET(gw_mailbox, extent, 8);
GW_ASSERT_OFFSET(gw_mailbox, finished, 64);

/*
 * gw_mailbox.extent locates the buffers of a bin if they are contiguous in the order of its
 * packets. A group can then load them before it has read the descriptors:
 *
 *   bits 0 to 31    gw_descriptor.buffer of the first packet
 *   bits 32 to 47   length of all buffers in buffer units; 0: not contiguous, or too long
 *   bits 48 to 63   value of posted that includes the bin, modulo 2^16
 *
 * GW_EXTENT_UNITS_MAX is the maximum length.
 */
#define GW_EXTENT_UNITS_MAX 192u

#define GW_MAILBOX_POLLING 1u /* the group polls */
#define GW_MAILBOX_ENDED   2u /* the group has ended */

/* Size of a mailbox slot and offsets of its arrays, in bytes. bin_packets is a multiple of 16, so
 * slots begin at multiples of 64. */
#define GW_MAILBOX_SLOT_BYTES(bin_packets)      (64u + 36u * (bin_packets))
#define GW_MAILBOX_SLOT_DESCRIPTORS             64u
#define GW_MAILBOX_SLOT_PARAMETERS(bin_packets) (64u + 16u * (bin_packets))
#define GW_MAILBOX_SLOT_OUTCOMES(bin_packets)   (64u + 24u * (bin_packets))
#define GW_MAILBOX_SLOT_TRAILS(bin_packets)     (64u + 32u * (bin_packets))

#endif
