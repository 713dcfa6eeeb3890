/*
 * The table image of ipsec; crates/function/src/ipsec/tables.rs builds it.
 *
 *   0         sa_offset            selector_offset
 *   | header  | SA 0 | SA 1 | ... | selector 0 | selector 1 | ... |
 *
 * Offsets count bytes from the image's start. All numbers are little-endian; addresses and
 * ports are numbers too (192.0.2.1 is 0xc0000201, an IPv6 address four of them, the first
 * first). What is said to be bytes lies as it goes over the wire.
 */
#ifndef GODWIT_IPSEC_IMAGE_H
#define GODWIT_IPSEC_IMAGE_H

#define GW_IPSEC_MAGIC 0x45535049u /* "IPSE" */

typedef struct gw_ipsec_image {
    gw_u32 magic;           /* GW_IPSEC_MAGIC */
    gw_u32 sa_count;        /* places for SAs, 0..2^20 */
    gw_u32 sa_offset;       /* a multiple of 64 */
    gw_u32 selector_count;  /* places for selectors, of all SAs together */
    gw_u32 selector_offset; /* a multiple of 64 */
    gw_u32 reserved[3];     /* 0 */
} gw_ipsec_image;
GW_STATIC_ASSERT(sizeof(gw_ipsec_image) == 32, ipsec_image_size);

/* Flags of an SA. */
#define GW_IPSEC_SA_USED        0x01u /* the place holds an SA */
#define GW_IPSEC_SA_INBOUND     0x02u
#define GW_IPSEC_SA_TRANSPORT   0x04u /* otherwise tunnel */
#define GW_IPSEC_SA_OUTER_IPV6  0x08u /* its endpoints are IPv6 addresses, otherwise IPv4 */
#define GW_IPSEC_SA_ESN         0x10u /* extended sequence numbers (RFC 4303, section 2.2.1) */
#define GW_IPSEC_SA_UDP         0x20u /* ESP in UDP (RFC 3948) */
#define GW_IPSEC_SA_DF_CLEAR    0x40u /* tunnel, IPv4 outside: DF is 0; without both, it is copied */
#define GW_IPSEC_SA_DF_SET      0x80u  /* DF is 1 */
#define GW_IPSEC_SA_DSCP_SET    0x100u /* tunnel: DSCP is gw_ipsec_sa.dscp, otherwise copied */
#define GW_IPSEC_SA_ECN_IGNORED 0x200u /* RFC 6040, section 4.1, compatibility mode */

/*
 * One security association: a cache line for headers, one for authentication, keys behind.
 *
 *   suite            authentication                    keys
 *   HMAC             state after key xor ipad in 0..8,  as the cipher has it
 *                    after key xor opad in 8..16
 *                    (SHA-1 uses the first five of each)
 *   GCM, GMAC        powers 1 to 4 of the hash key H    round keys of AES to encrypt; behind those
 *                    (dialect/ghash.h)                  of AES-128, powers 5 to 8
 *   AES-CBC          as HMAC                            round keys: outbound to encrypt, inbound
 *                                                       to decrypt (dialect/aes.h)
 *   AES-CTR          as HMAC                            round keys to encrypt
 *   ChaCha20         0                                  the key, 32 bytes
 */
typedef struct gw_ipsec_sa {
    gw_u32 spi;
    gw_u32 flags;
    gw_u32 salt;           /* bytes: of the nonce, in front of the IV */
    gw_u8 suite;           /* number in suite.h */
    gw_u8 icv_bytes;       /* on the wire: 0, 8, 12, 16 */
    gw_u8 hop_limit;       /* of the outer header */
    gw_u8 dscp;            /* 0..63 */
    gw_u32 source[4];      /* endpoint that encrypts; IPv4: the first */
    gw_u32 destination[4]; /* endpoint that decrypts */
    gw_u16 udp_source;
    gw_u16 udp_destination;
    gw_u32 selector_first; /* inbound: index of its first selector */
    gw_u32 selector_count; /* inbound: how many it has; a packet inside must match one */
    gw_u32 reserved;       /* 0 */
    gw_u32 authentication[16];
    gw_u32 keys[60];
    gw_u32 reserved_keys[4]; /* 0 */
} gw_ipsec_sa;
GW_STATIC_ASSERT(sizeof(gw_ipsec_sa) == 384, ipsec_sa_size);
GW_ASSERT_OFFSET(gw_ipsec_sa, source, 16);
GW_ASSERT_OFFSET(gw_ipsec_sa, udp_source, 48);
GW_ASSERT_OFFSET(gw_ipsec_sa, selector_first, 52);
GW_ASSERT_OFFSET(gw_ipsec_sa, authentication, 64);
GW_ASSERT_OFFSET(gw_ipsec_sa, keys, 128);

/* Of `authentication`: where the outer state of HMAC lies. */
#define GW_IPSEC_HMAC_OUTER 8u

#define GW_IPSEC_PROTOCOL_ANY 256u

/* What packets an SA may carry (RFC 4301, section 4.4.1.1). */
typedef struct gw_ipsec_selector {
    gw_u32 source[4]; /* masked; IPv4: the first */
    gw_u32 destination[4];
    gw_u8 source_bits; /* length of the prefix: 0..32, 0..128 */
    gw_u8 destination_bits;
    gw_u8 family;          /* 4 or 6; 0: both, and no prefix */
    gw_u8 ports;           /* 1: the ports matter, and a packet that shows none does not match */
    gw_u16 protocol;       /* 0..255, or GW_IPSEC_PROTOCOL_ANY */
    gw_u16 reserved_ports; /* 0 */
    gw_u16 source_port_first;
    gw_u16 source_port_last;
    gw_u16 destination_port_first;
    gw_u16 destination_port_last;
    gw_u32 reserved[4]; /* 0 */
} gw_ipsec_selector;
GW_STATIC_ASSERT(sizeof(gw_ipsec_selector) == 64, ipsec_selector_size);
GW_ASSERT_OFFSET(gw_ipsec_selector, source_bits, 32);
GW_ASSERT_OFFSET(gw_ipsec_selector, source_port_first, 40);

/* The parameter of a packet: SA << 44 | sequence number. */
#define GW_IPSEC_SEQUENCE_BITS 44u
#define GW_IPSEC_SEQUENCE_MASK (((gw_u64)1 << GW_IPSEC_SEQUENCE_BITS) - 1)

GW_LANE gw_u32 gw_ipsec_sa_index(gw_u64 parameter)
{
    return (gw_u32)(parameter >> GW_IPSEC_SEQUENCE_BITS);
}

GW_LANE gw_u64 gw_ipsec_sequence(gw_u64 parameter)
{
    return parameter & GW_IPSEC_SEQUENCE_MASK;
}

#endif
