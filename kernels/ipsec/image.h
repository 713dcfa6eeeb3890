/*
 * The table image of ipsec; crates/function/src/ipsec/tables.rs builds it.
 *
 *   0         sa_offset            selector_offset
 *   | header  | SA 0 | SA 1 | ... | selector 0 | selector 1 | ... |
 *
 * Offsets count bytes from the image's start. All numbers are little-endian;
 * addresses and ports are numbers too (192.0.2.1 is 0xc0000201).
 */
#ifndef GODWIT_IPSEC_IMAGE_H
#define GODWIT_IPSEC_IMAGE_H

#define GW_IPSEC_MAGIC 0x45535049u /* "IPSE" */

typedef struct gw_ipsec_image {
    gw_u32 magic;           /* GW_IPSEC_MAGIC */
    gw_u32 sa_count;        /* 0..2^20 */
    gw_u32 sa_offset;       /* a multiple of 64 */
    gw_u32 selector_count;  /* of all SAs together */
    gw_u32 selector_offset; /* a multiple of 32 */
    gw_u32 reserved[3];     /* 0 */
} gw_ipsec_image;
GW_STATIC_ASSERT(sizeof(gw_ipsec_image) == 32, ipsec_image_size);

#define GW_IPSEC_OUTBOUND 0u
#define GW_IPSEC_INBOUND  1u

/* One security association: what its direction needs and no more, in four cache lines. */
typedef struct gw_ipsec_sa {
    gw_u32 round_keys[44]; /* outbound to encrypt, inbound to decrypt: see dialect/aes.h */
    gw_u32 hmac_inner[5];  /* SHA-1 state after the block of key xor ipad */
    gw_u32 hmac_outer[5];  /* SHA-1 state after the block of key xor opad */
    gw_u32 spi;
    gw_u32 source;         /* tunnel endpoint that encrypts */
    gw_u32 destination;    /* tunnel endpoint that decrypts */
    gw_u32 direction;      /* GW_IPSEC_OUTBOUND or GW_IPSEC_INBOUND */
    gw_u32 selector_first; /* inbound: index of its first selector */
    gw_u32 selector_count; /* inbound: how many it has; a packet inside must match one */
    gw_u32 reserved[4];    /* 0 */
} gw_ipsec_sa;
GW_STATIC_ASSERT(sizeof(gw_ipsec_sa) == 256, ipsec_sa_size);
GW_ASSERT_OFFSET(gw_ipsec_sa, hmac_inner, 176);
GW_ASSERT_OFFSET(gw_ipsec_sa, hmac_outer, 196);
GW_ASSERT_OFFSET(gw_ipsec_sa, spi, 216);
GW_ASSERT_OFFSET(gw_ipsec_sa, selector_first, 232);

#define GW_IPSEC_PROTOCOL_ANY 256u

/* What packets an SA may carry (RFC 4301, section 4.4.1.1). */
typedef struct gw_ipsec_selector {
    gw_u32 source; /* masked */
    gw_u32 source_mask;
    gw_u32 destination; /* masked */
    gw_u32 destination_mask;
    gw_u16 source_port_first;
    gw_u16 source_port_last;
    gw_u16 destination_port_first;
    gw_u16 destination_port_last;
    gw_u16 protocol; /* 0..255, or GW_IPSEC_PROTOCOL_ANY */
    gw_u16 ports;    /* 1: the ports matter, and a packet that shows none does not match */
    gw_u32 reserved; /* 0 */
} gw_ipsec_selector;
GW_STATIC_ASSERT(sizeof(gw_ipsec_selector) == 32, ipsec_selector_size);
GW_ASSERT_OFFSET(gw_ipsec_selector, source_port_first, 16);
GW_ASSERT_OFFSET(gw_ipsec_selector, protocol, 24);

#endif
