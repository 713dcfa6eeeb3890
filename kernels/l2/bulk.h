/* The bare lookup, many addresses at once, without packets: for measuring the table alone. */
#ifndef GODWIT_L2_BULK_H
#define GODWIT_L2_BULK_H

/* Look-ups whose misses are under way together. */
#define GW_L2_BULK 64u

#define GW_L2_NONE 0xffffffffu /* what a look-up says of an address that is not there */

/* keys: VID << 48 | MAC; ports receives a port or GW_L2_NONE for each. */
static inline void gw_l2_bulk(const gw_u8 *image, const gw_u64 *restrict keys,
                              gw_u32 *restrict ports, gw_u64 count)
{
    const gw_l2_image *header = (const gw_l2_image *)image;
    gw_u64 mixed[GW_L2_BULK];
    for (gw_u64 first = 0; first < count; first += GW_L2_BULK) {
        const gw_u64 now = first + GW_L2_BULK < count ? GW_L2_BULK : count - first;
        for (gw_u64 i = 0; i < now; i++) {
            mixed[i] = gw_l2_mix(header, keys[first + i]);
        }
        for (gw_u64 i = 0; i < now; i++) {
            GW_FETCH(gw_l2_one(header, mixed[i]));
            GW_FETCH(gw_l2_other(header, mixed[i]));
        }
        for (gw_u64 i = 0; i < now; i++) {
            const gw_u64 entry = gw_l2_find(header, mixed[i]);
            ports[first + i] = entry != 0 ? (gw_u32)(entry >> GW_L2_PORT_SHIFT) & 0xff : GW_L2_NONE;
        }
    }
}

#endif
