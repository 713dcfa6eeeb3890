/*
 * Structs that the host shares with the kernels. Kernels are the parts of packet functions that run
 * on devices. src/lib.rs in this folder declares the same structs for Rust. Both files assert the
 * size of each struct and the offset of each field, and a test compares the layouts that the two
 * compilers choose. The file that includes this header must define the types gw_u8 to gw_u64,
 * GW_STATIC_ASSERT and GW_ASSERT_OFFSET. All fields are little-endian.
 */
#ifndef GODWIT_ABI_H
#define GODWIT_ABI_H

/* Size of one buffer unit, in bytes. Packet buffers begin at multiples of this unit, and their
 * sizes are multiples of it. */
#define GW_BUFFER_UNIT 64u

/*
 * Descriptor of one packet. It locates the packet's buffer and frame in the arena, the memory that
 * holds all packets. A buffer consists of headroom, frame and tailroom:
 *
 *   buffer*64            +head              +head+length        +room*64
 *   |<---- headroom ---->|<---- frame ----->|<---- tailroom --->|
 *
 * A packet function may change only `head` and `length`, and it keeps the frame within the buffer.
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

/* Verdict of a dropped packet. A verdict is the result of a packet function for a packet. All other
 * verdicts are indices into a list that each function declares. */
#define GW_VERDICT_DROP 255u

/* Value of gw_outcome.port for a flooded packet. The packet leaves through all ports of a port set
 * except its ingress port. gw_outcome.value is then the index of the port set. */
#define GW_PORT_FLOOD 0xffffu

/* Result of a function for one packet. */
typedef struct gw_outcome {
    gw_u8 verdict; /* index into the verdicts that the function declares, or GW_VERDICT_DROP */
    gw_u8 reason;  /* with GW_VERDICT_DROP: index into the declared drop reasons */
    gw_u16 port;   /* egress port, if the verdict requires one, or GW_PORT_FLOOD */
    gw_u32 value;  /* additional result; its meaning depends on function and verdict */
} gw_outcome;
GW_STATIC_ASSERT(sizeof(gw_outcome) == 8, outcome_size);
GW_ASSERT_OFFSET(gw_outcome, reason, 1);
GW_ASSERT_OFFSET(gw_outcome, port, 2);
GW_ASSERT_OFFSET(gw_outcome, value, 4);

/* A batch of packets for one function. One work-group of a device processes the batch. All packets
 * of the batch need the same kind of processing, and their frames have similar lengths. */
typedef struct gw_bin {
    gw_u32 first;        /* index of the first packet in the packet arrays */
    gw_u16 count;        /* number of packets */
    gw_u8 kernel;        /* kernel number */
    gw_u8 variant;       /* kind of processing */
    gw_u16 instance;     /* index of the configured function in the table images */
    gw_u16 length_bytes; /* length of the longest frame */
    gw_u16 length_class; /* length class of all frames */
    gw_u8 row;           /* row of the configured function in gw_chain */
    gw_u8 part;          /* flags GW_PART_MORE and GW_PART_REST of a batch with several parts */
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
 * Flags of gw_bin.part. If the packets of a batch need different kinds of processing, the batch has
 * one part for each kind. One work-group runs all parts in order, so its threads always take the
 * same branches.
 */
#define GW_PART_MORE 1u /* the next entry is another part of the same batch */
#define GW_PART_REST 2u /* the previous entry is another part: no other work-group starts here */

/*
 * The part of the function chain that a device executes without returning packets to the host. It
 * is stored at the beginning of the table images:
 *
 *   | gw_chain, 64 bytes | a gw_chain_stage per instance | hops: gw_u32 [instance][row][verdict] |
 *
 * When a configured function returns a verdict for a packet, an entry of the table `hops` selects
 * the packet's next function. The value GW_HOP_NONE means that the device is done with the packet
 * and that the host continues.
 */
typedef struct gw_chain {
    gw_u32 rows;      /* rows per configured function, one per class of packets; 0: no chain */
    gw_u32 verdicts;  /* columns per row; higher verdicts have no entry */
    gw_u32 instances; /* number of configured functions */
    gw_u32 reserved[13];
} gw_chain;
GW_STATIC_ASSERT(sizeof(gw_chain) == 64, chain_size);
GW_ASSERT_OFFSET(gw_chain, verdicts, 4);
GW_ASSERT_OFFSET(gw_chain, instances, 8);

/* How a device runs a configured function on packets that come from another function on the device.
 * These packets have parameter 0, because no host code has prepared them. */
typedef struct gw_chain_stage {
    gw_u32 kernel;  /* kernel number */
    gw_u32 variant; /* kind of processing of all packets */
} gw_chain_stage;
GW_STATIC_ASSERT(sizeof(gw_chain_stage) == 8, chain_stage_size);
GW_ASSERT_OFFSET(gw_chain_stage, variant, 4);

/*
 * A packet's next function on a device, as one number. Bits 0 to 15 hold the function's index, and
 * bits 16 to 31 hold its rank in the order of execution. Functions with lower ranks run first.
 */
#define GW_HOP_NONE 0xffffffffu /* the packet does not continue on the device */

/*
 * Path of a packet through the functions on a device. Each byte holds a verdict that led to a next
 * function. The first verdict is in the lowest byte, and unused bytes are 0xff. The last function's
 * verdict is only in gw_outcome.
 */
#define GW_TRAIL_NONE 0xffffffffu /* only one function */
#define GW_HOPS_MAX   4u          /* maximum number of next functions */

/* Scratch memory, in bytes, for packets that continue to a next function on the device. The packet
 * count must be a multiple of 16. */
#define GW_CHAIN_SCRATCH_BYTES(packets) (40u * (packets))

/*
 * Queue through which the host gives batches of packets to one persistent work-group. The design
 * follows Hummingbird, algorithms 1 and 2. The queue is a ring of slots. The host fills slot
 * `posted % slots` and increments `posted`. The work-group processes the batch in the slot and
 * increments `finished`.
 *
 *   | gw_mailbox | slot 0 | slot 1 | ...          all at 64-byte boundaries
 *
 *   slot: | gw_bin, 64 bytes | descriptors | parameters | outcomes | trails |
 *         each array has bin_packets elements
 */
typedef struct gw_mailbox {
    gw_u32 posted; /* written by the host: slots filled, modulo 2^32 */
    gw_u32 stop;   /* written by the host: if not 0, the group ends after the last filled slot */
    gw_u64 extent; /* written by the host: address range of the last posted batch, see below */
    gw_u32 reserved_host[12];
    gw_u32 finished; /* written by the group: slots processed, modulo 2^32 */
    gw_u32 running;  /* written by the group: GW_MAILBOX_POLLING, then GW_MAILBOX_ENDED */
    gw_u32 reserved_device[14];
} gw_mailbox;
GW_STATIC_ASSERT(sizeof(gw_mailbox) == 128, mailbox_size);
GW_ASSERT_OFFSET(gw_mailbox, extent, 8);
GW_ASSERT_OFFSET(gw_mailbox, finished, 64);

/*
 * Address range of the packet buffers in a batch, stored in gw_mailbox.extent. It exists if these
 * buffers are contiguous and in packet order. A work-group can then load the buffers before it has
 * read the packet descriptors.
 *
 *   bits 0 to 31    gw_descriptor.buffer of the first packet
 *   bits 32 to 47   length of all buffers in buffer units; 0: not contiguous, or too long
 *   bits 48 to 63   value of posted that includes the batch, modulo 2^16
 *
 * GW_EXTENT_UNITS_MAX is the maximum length.
 */
#define GW_EXTENT_UNITS_MAX 192u

#define GW_MAILBOX_POLLING 1u /* the group polls */
#define GW_MAILBOX_ENDED   2u /* the group has ended */

/* Layout of one queue slot: its size and the offsets of its arrays, in bytes. The capacity
 * `bin_packets` is a multiple of 16, so slots begin at multiples of 64 bytes. */
#define GW_MAILBOX_SLOT_BYTES(bin_packets)      (64u + 36u * (bin_packets))
#define GW_MAILBOX_SLOT_DESCRIPTORS             64u
#define GW_MAILBOX_SLOT_PARAMETERS(bin_packets) (64u + 16u * (bin_packets))
#define GW_MAILBOX_SLOT_OUTCOMES(bin_packets)   (64u + 24u * (bin_packets))
#define GW_MAILBOX_SLOT_TRAILS(bin_packets)     (64u + 32u * (bin_packets))

#endif
