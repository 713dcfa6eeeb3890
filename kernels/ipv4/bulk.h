/* The bare lookup, many addresses at once, without packets: for measuring the table alone. */
#ifndef GODWIT_IPV4_BULK_H
#define GODWIT_IPV4_BULK_H

/*
 * Two passes: the first only loads, without a branch, so that as many misses are under way as the
 * core can hold; the second follows the few entries that lead to tbl8.
 */
#define GW_IPV4_BULK(entry_type, top, none)                                                        \
    const entry_type *tbl24 = (const entry_type *)(image + header->tbl24_offset);                  \
    const entry_type *tbl8 = (const entry_type *)(image + header->tbl8_offset);                    \
    for (gw_u64 i = 0; i < count; i++) {                                                           \
        next_hops[i] = tbl24[addresses[i] >> 8];                                                   \
    }                                                                                              \
    for (gw_u64 i = 0; i < count; i++) {                                                           \
        gw_u32 entry = next_hops[i];                                                               \
        if (__builtin_expect(entry & (top), 0)) {                                                  \
            entry = tbl8[(gw_u64)(entry & (none)) << 8 | (addresses[i] & 0xff)];                   \
        }                                                                                          \
        next_hops[i] = entry == (none) ? GW_IPV4_NONE : entry;                                     \
    }

/* addresses in host order; next_hops receives an index or GW_IPV4_NONE for each. */
static inline void gw_ipv4_bulk(const gw_u8 *image, gw_u32 variant,
                                const gw_u32 *restrict addresses, gw_u32 *restrict next_hops,
                                gw_u64 count)
{
    const gw_ipv4_image *header = (const gw_ipv4_image *)image;
    if (variant == GW_IPV4_VARIANT_NARROW) {
        GW_IPV4_BULK(gw_u16, 0x8000u, 0x7fffu)
    } else {
        GW_IPV4_BULK(gw_u32, 0x80000000u, 0x7fffffffu)
    }
}

#endif
