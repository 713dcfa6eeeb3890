/*
 * Table image of ipsec: the SAs (security associations) and their selectors in one block of memory.
 * crates/function/src/ipsec/tables.rs builds the image.
 *
 *   0         sa_offset            selector_offset
 *   | header  | SA 0 | SA 1 | ... | selector 0 | selector 1 | ... |
 *
 * Offsets count bytes from the start of the image. All numbers are little-endian. Addresses and
 * ports are numbers too: 192.0.2.1 is 0xc0000201. An IPv6 address is four numbers, the most
 * significant first. Fields that are described as bytes have the byte order of the wire.
 */
#ifndef GODWIT_IPSEC_IMAGE_H
#define GODWIT_IPSEC_IMAGE_H

typedef struct gw_ipsec_image {
    gw_u32 magic;           /* GW_IPSEC_MAGIC */
    gw_u32 sa_count;        /* number of SA slots, 0..2^20 */
    gw_u32 sa_offset;       /* a multiple of 64 */
    gw_u32 selector_count;  /* number of selector slots, for all SAs together */
    gw_u32 selector_offset; /* a multiple of 64 */
    gw_u32 reserved[3];     /* 0 */
} gw_ipsec_image;
GW_STATIC_ASSERT(sizeof(gw_ipsec_image) == 32, ipsec_image_size);

/* Flags of a security association (gw_ipsec_sa.flags). */
#define GW_IPSEC_SA_USED       0x01u /* the slot holds an SA */
#define GW_IPSEC_SA_INBOUND    0x02u
#define GW_IPSEC_SA_TRANSPORT  0x04u /* otherwise tunnel mode */
#define GW_IPSEC_SA_OUTER_IPV6 0x08u /* the endpoints have IPv6 addresses, otherwise IPv4 */
#define GW_IPSEC_SA_ESN        0x10u /* extended sequence numbers (RFC 4303, section 2.2.1) */
#define GW_IPSEC_SA_UDP        0x20u /* ESP in UDP (RFC 3948) */
#define GW_IPSEC_SA_DF_CLEAR                                                                       \
    0x40u /* tunnel, outer IPv4: DF is 0; with neither DF flag, DF is copied */
#define GW_IPSEC_SA_DF_SET      0x80u  /* tunnel, outer IPv4: DF is 1 */
#define GW_IPSEC_SA_DSCP_SET    0x100u /* tunnel: DSCP is gw_ipsec_sa.dscp, otherwise copied */
#define GW_IPSEC_SA_ECN_IGNORED 0x200u /* RFC 6040, section 4.1, compatibility mode */

/*
 * A security association (SA). The first cache line holds the header fields, the second line holds
 * the authentication state, and the other lines hold the keys. Only some suites use `more`, so the
 * others need six cache lines:
 *
 *   suite            authentication                    keys
 *   HMAC-SHA1,       words 0..8: state after the block  as the cipher requires
 *   HMAC-SHA-256     key xor ipad; words 8..16: state
 *                    after the block key xor opad (SHA-1
 *                    uses the first five of each)
 *   HMAC-SHA-384,    state after the block key xor ipad  as the cipher requires
 *   HMAC-SHA-512     (sha512.h); more, words 0..16:
 *                    state after key xor opad
 *   AES-XCBC,        bytes 0..16: subkey of a complete   as the cipher requires
 *   AES-CMAC         last block; bytes 16..32: of an
 *                    incomplete one; more, words 0..44:
 *                    round keys of the MAC
 *   GCM, GMAC        powers 1 to 4 of the hash key H    AES round keys for encryption; for
 *                    (dialect/ghash.h)                  AES-128, powers 5 to 8 of H follow
 *   CCM              0                                  AES round keys for encryption
 *   AES-CBC          as HMAC                            round keys: outbound for encryption,
 *                                                       inbound for decryption (dialect/aes.h)
 *   AES-CTR          as HMAC                            round keys for encryption
 *   ChaCha20         0                                  the key, 32 bytes
 */
typedef struct gw_ipsec_sa {
    gw_u32 spi;
    gw_u32 flags;
    gw_u32 salt;           /* bytes; first part of the nonce, before the IV. CCM: the flags of a
                              counter block, 3, and a salt of 3 bytes */
    gw_u8 suite;           /* number of suite.h */
    gw_u8 icv_bytes;       /* length of the ICV in the packet: 0, 8, 12, 16, 24 or 32 */
    gw_u8 hop_limit;       /* hop limit or TTL of the outer header */
    gw_u8 dscp;            /* 0..63 */
    gw_u32 source[4];      /* endpoint that encrypts; IPv4 uses the first word */
    gw_u32 destination[4]; /* endpoint that decrypts; IPv4 uses the first word */
    gw_u16 udp_source;
    gw_u16 udp_destination;
    gw_u32 selector_first; /* inbound: index of the SA's first selector */
    gw_u32 selector_count; /* inbound: number of selectors; an inner packet must match one */
    gw_u32 reserved;       /* 0 */
    gw_u32 authentication[16];
    gw_u32 keys[60];
    gw_u32 reserved_keys[4]; /* 0 */
    gw_u32 more[48];
} gw_ipsec_sa;
GW_STATIC_ASSERT(sizeof(gw_ipsec_sa) == 576, ipsec_sa_size);
GW_ASSERT_OFFSET(gw_ipsec_sa, source, 16);
GW_ASSERT_OFFSET(gw_ipsec_sa, udp_source, 48);
GW_ASSERT_OFFSET(gw_ipsec_sa, selector_first, 52);
GW_ASSERT_OFFSET(gw_ipsec_sa, authentication, 64);
GW_ASSERT_OFFSET(gw_ipsec_sa, keys, 128);
GW_ASSERT_OFFSET(gw_ipsec_sa, more, 384);

/* Index of the first word of the outer state of HMAC-SHA1 and HMAC-SHA-256 in
 * gw_ipsec_sa.authentication. */
#define GW_IPSEC_HMAC_OUTER 8u

#define GW_IPSEC_PROTOCOL_ANY 256u

/* Selector: a condition on the addresses, protocol and ports of packets that an SA may carry (RFC
 * 4301, section 4.4.1.1). */
typedef struct gw_ipsec_selector {
    gw_u32 source[4]; /* masked with the prefix length; IPv4 uses the first word */
    gw_u32 destination[4];
    gw_u8 source_bits; /* prefix length: 0..32 or 0..128 */
    gw_u8 destination_bits;
    gw_u8 family;    /* 4 or 6; 0: both, and the prefixes are ignored */
    gw_u8 ports;     /* 1: ports are compared, and a packet without visible ports does not match */
    gw_u16 protocol; /* 0..255, or GW_IPSEC_PROTOCOL_ANY */
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

/* Low bits of a packet's 64-bit parameter that hold the sequence number. The other bits hold the
 * index of the SA. */
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
