/*
 * Computes the header fields that ESP and AH add and remove. The code is compiled twice, for one
 * packet and for sixteen packets at once (dialect/words.h). The file therefore has no include
 * guard.
 */

typedef struct GW_NAME(gw_ipsec_sa_words) {
    GW_WORD spi;
    GW_WORD flags;
    GW_WORD bytes; /* suite | icv_bytes << 8 | hop_limit << 16 | dscp << 24 */
    GW_WORD source;
    GW_WORD destination;
} GW_NAME(gw_ipsec_sa_words);

/* Folds a checksum to 16 bits by adding the carries (RFC 1071). The sum must be below 2^32. */
GW_WORDWISE GW_WORD GW_NAME(gw_ipsec_fold)(GW_WORD sum)
{
    sum = (sum & 0xffffu) + (sum >> 16);
    return (sum & 0xffffu) + (sum >> 16);
}

/* Returns the sum of the two 16-bit halves of a word. */
GW_WORDWISE GW_WORD GW_NAME(gw_ipsec_halves)(GW_WORD word)
{
    return (word >> 16) + (word & 0xffffu);
}

/* Returns the ones' complement sum of an IPv4 header without options. If the header checksum is
 * correct, the sum is 0xffff. */
GW_WORDWISE GW_WORD GW_NAME(gw_ipsec_ipv4_sum)(const GW_WORD *ip)
{
    return GW_NAME(gw_ipsec_fold)(
        GW_NAME(gw_ipsec_halves)(ip[0]) + GW_NAME(gw_ipsec_halves)(ip[1]) +
        GW_NAME(gw_ipsec_halves)(ip[2]) + GW_NAME(gw_ipsec_halves)(ip[3]) +
        GW_NAME(gw_ipsec_halves)(ip[4]));
}

/* Returns whether the first word of an IPv4 header is valid: version, header length and total
 * length (RFC 791, section 3.1). */
GW_WORDWISE GW_TEST GW_NAME(gw_ipsec_ipv4_valid)(GW_WORD first)
{
    const GW_WORD header_bytes = first >> 22 & 0x3cu;
    return GW_EQUAL(first >> 28, 4) & GW_AT_LEAST(header_bytes, GW_IPV4_BYTES) &
           GW_AT_LEAST(first & 0xffffu, header_bytes);
}

/* Returns the outer header's type of service: ECN (RFC 6040, section 4.1) and DSCP (RFC 4301,
 * section 5.1.2). `tos` is the inner packet's type of service. */
GW_WORDWISE GW_WORD GW_NAME(gw_ipsec_outer_tos)(GW_NAME(gw_ipsec_sa_words) sa, GW_WORD tos)
{
    const GW_WORD dscp = GW_SELECT(GW_HAS(sa.flags, GW_IPSEC_SA_DSCP_SET), sa.bytes >> 24 << 2,
                                   tos & (0xffu & ~GW_IPSEC_ECN));
    const GW_WORD ecn = GW_SELECT(GW_HAS(sa.flags, GW_IPSEC_SA_ECN_IGNORED), 0, tos & GW_IPSEC_ECN);
    return dscp | ecn;
}

/* Returns the outer header's DF (don't fragment) bit (RFC 4301, section 8.1). `df` is the inner
 * packet's DF bit. */
GW_WORDWISE GW_WORD GW_NAME(gw_ipsec_outer_df)(GW_NAME(gw_ipsec_sa_words) sa, GW_WORD df)
{
    const GW_WORD kept = GW_SELECT(GW_HAS(sa.flags, GW_IPSEC_SA_DF_CLEAR), 0, df);
    return GW_SELECT(GW_HAS(sa.flags, GW_IPSEC_SA_DF_SET), GW_IPSEC_IPV4_DF, kept);
}

/* Computes an outer IPv4 header (RFC 4301, section 5.1.2). `protocol` is the protocol after the
 * header. `tos` and `df` come from the inner packet. The identification is the lower half of the
 * sequence number, so repeated runs produce the same bytes. */
GW_WORDWISE void GW_NAME(gw_ipsec_outer_ipv4)(GW_WORD *outer, GW_NAME(gw_ipsec_sa_words) sa,
                                              GW_WORD tos, GW_WORD df, GW_WORD sequence,
                                              GW_WORD total_bytes, gw_u32 protocol)
{
    outer[0] = total_bytes | GW_NAME(gw_ipsec_outer_tos)(sa, tos) << 16 | 0x45000000u;
    outer[1] = sequence << 16 | GW_NAME(gw_ipsec_outer_df)(sa, df);
    outer[2] = (sa.bytes >> 16 & 0xffu) << 24 | protocol << 16;
    outer[3] = sa.source;
    outer[4] = sa.destination;
    outer[2] = outer[2] | (~GW_NAME(gw_ipsec_ipv4_sum)(outer) & 0xffffu);
}

/* Returns the number of bytes that ESP encrypts: payload, padding and trailer. It is a multiple of
 * the suite's block size (RFC 4303, section 2.4). */
GW_WORDWISE GW_WORD GW_NAME(gw_ipsec_cipher_bytes)(gw_ipsec_suite suite, GW_WORD payload_bytes)
{
    const gw_u32 block_bytes = gw_ipsec_block_bytes(suite);
    return (payload_bytes + (GW_ESP_TAIL_BYTES + block_bytes - 1)) & ~(block_bytes - 1);
}

/* Returns whether the encrypted data is at least one block long, and a multiple of the block size.
 * `bytes` also includes `around` bytes that are not encrypted. */
GW_WORDWISE GW_TEST GW_NAME(gw_ipsec_cipher_bytes_valid)(gw_ipsec_suite suite, GW_WORD bytes,
                                                         GW_WORD around)
{
    const gw_u32 block_bytes = gw_ipsec_block_bytes(suite);
    return GW_AT_LEAST(bytes, around + block_bytes) &
           GW_NOT(GW_HAS(bytes - around, block_bytes - 1));
}
