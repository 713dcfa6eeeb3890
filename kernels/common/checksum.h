/* Updates Internet checksums (RFC 1071, RFC 1624) in functions that rewrite headers. */
#ifndef GODWIT_CHECKSUM_H
#define GODWIT_CHECKSUM_H

/* Folds a sum of 16-bit words to 16 bits. */
GW_LANE gw_u32 gw_checksum_fold(gw_u64 sum)
{
    sum = (sum & 0xffffffffu) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    return (gw_u32)((sum & 0xffff) + (sum >> 16));
}

/* Returns the new value of a checksum after one 16-bit word of the checksummed data has changed
 * (RFC 1624 section 3, equation 3). */
GW_LANE gw_u32 gw_checksum_change16(gw_u32 checksum, gw_u32 before, gw_u32 after)
{
    return ~gw_checksum_fold((gw_u64)(~checksum & 0xffff) + (~before & 0xffff) + after) & 0xffff;
}

/* Returns the new value of a checksum after one 32-bit word of the checksummed data has changed.
 * The word begins at an even offset. */
GW_LANE gw_u32 gw_checksum_change32(gw_u32 checksum, gw_u32 before, gw_u32 after)
{
    checksum = gw_checksum_change16(checksum, before >> 16, after >> 16);
    return gw_checksum_change16(checksum, before & 0xffff, after & 0xffff);
}

#endif
