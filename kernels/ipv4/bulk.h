/* The bare lookup, many addresses at once, without packets: for measuring the table alone. */
#ifndef GODWIT_IPV4_BULK_H
#define GODWIT_IPV4_BULK_H

/* addresses in host order; next_hops receives an index or GW_IPV4_NONE for each. */
static inline void gw_ipv4_bulk(const gw_u8 *image, gw_u32 variant, const gw_u32 *addresses,
                                gw_u32 *next_hops, gw_u64 count)
{
    if (variant == GW_IPV4_VARIANT_NARROW) {
        for (gw_u64 i = 0; i < count; i++) {
            next_hops[i] = gw_ipv4_lookup(image, GW_IPV4_VARIANT_NARROW, addresses[i]);
        }
    } else {
        for (gw_u64 i = 0; i < count; i++) {
            next_hops[i] = gw_ipv4_lookup(image, GW_IPV4_VARIANT_WIDE, addresses[i]);
        }
    }
}

#endif
