/*
 * Structs that host and kernels share. lib.rs beside this file declares the same
 * structs for Rust; both sides assert every size and offset, and a test compares
 * the two. Included by the dialect header, which defines gw_u8 .. gw_u64 and
 * GW_STATIC_ASSERT and GW_ASSERT_OFFSET for each compiler. Little-endian everywhere.
 */
#ifndef GODWIT_ABI_H
#define GODWIT_ABI_H

/* A window starts at arena + window * GW_WINDOW_UNIT. */
#define GW_WINDOW_UNIT 64u

/*
 * The place of one packet in the arena.
 *
 *   window*64            +head              +head+length        +room*64
 *   |<---- headroom ---->|<---- frame ----->|<---- tailroom --->|
 *
 * A function may move head and length (and no other field) within the window.
 */
typedef struct gw_descriptor {
    gw_u32 window;    /* start of the window, in units of 64 bytes from the arena's base */
    gw_u16 head;      /* bytes from the window's start to the first byte of the frame */
    gw_u16 length;    /* bytes of the frame, without FCS */
    gw_u8 room;       /* size of the window, in units of 64 bytes */
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

/* Up to one work-group of packets of the same (function, variant, length class). */
typedef struct gw_bin {
    gw_u32 first;        /* index of its first packet in the chunk's arrays */
    gw_u16 count;        /* packets in it */
    gw_u8 kernel;        /* which kernel: index into functions.h */
    gw_u8 variant;       /* which variant of it */
    gw_u16 instance;     /* which configured function: index into the table images */
    gw_u16 length_bytes; /* longest frame in it */
    gw_u32 length_class; /* its length class */
} gw_bin;
GW_STATIC_ASSERT(sizeof(gw_bin) == 16, bin_size);
GW_ASSERT_OFFSET(gw_bin, count, 4);
GW_ASSERT_OFFSET(gw_bin, kernel, 6);
GW_ASSERT_OFFSET(gw_bin, variant, 7);
GW_ASSERT_OFFSET(gw_bin, instance, 8);
GW_ASSERT_OFFSET(gw_bin, length_bytes, 10);
GW_ASSERT_OFFSET(gw_bin, length_class, 12);

/*
 * How host and one persistent group talk (Hummingbird, algorithms 1 and 2): a ring of
 * places for bins. The host fills place posted % places and then counts posted up;
 * the group works it off and then counts finished up.
 *
 *   | gw_mailbox | place 0 | place 1 | ...                    all at 64-byte boundaries
 *   place: | gw_bin, 64 bytes | descriptors | parameters | outcomes |     bin_packets of each
 */
typedef struct gw_mailbox {
    gw_u32 posted; /* written by the host: places filled so far, modulo 2^32 */
    gw_u32 stop;   /* written by the host: not 0 when the group is to end once all is worked off */
    gw_u32 reserved_host[14];
    gw_u32 finished; /* written by the group: places worked off so far, modulo 2^32 */
    gw_u32 running;  /* written by the group: 1 once it polls, 2 when it has ended */
    gw_u32 reserved_device[14];
} gw_mailbox;
GW_STATIC_ASSERT(sizeof(gw_mailbox) == 128, mailbox_size);
GW_ASSERT_OFFSET(gw_mailbox, finished, 64);

#define GW_MAILBOX_POLLING 1u
#define GW_MAILBOX_ENDED   2u

/* Bytes of a place; bin_packets is even. */
#define GW_PLACE_BYTES(bin_packets)      (64u + 32u * (bin_packets))
#define GW_PLACE_DESCRIPTORS             64u
#define GW_PLACE_PARAMETERS(bin_packets) (64u + 16u * (bin_packets))
#define GW_PLACE_OUTCOMES(bin_packets)   (64u + 24u * (bin_packets))

#endif
