/*
 * maglev: a table for consistent hashing (Eisenbud et al., Maglev: A Fast and Reliable Software
 * Network Load Balancer, NSDI 2016, section 3.4). Each of its 65537 entries is a row index. There
 * is room for two copies of the entries. To change the table, the host writes the unused copy and
 * then selects it.
 */
#ifndef GODWIT_TABLES_MAGLEV_H
#define GODWIT_TABLES_MAGLEV_H

#define GW_MAGLEV_ENTRIES 65537u /* a prime */

typedef struct gw_maglev {
    gw_u64 entries_offset; /* offset of the entries, 2 bytes each; changes while lookups run */
    gw_u64 rows_offset;
    gw_u64 reserved[14];
} gw_maglev;
GW_STATIC_ASSERT(sizeof(gw_maglev) == GW_TABLE_HEADER_BYTES, maglev_size);

/* Returns the row index for a hash, or GW_TABLE_NONE if the table has no rows. */
GW_LANE gw_u32 gw_maglev_find(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_maglev *table,
                              gw_u32 hash)
{
    const GW_GLOBAL gw_u16 *entries =
        (const GW_GLOBAL gw_u16 *)(image + GW_ONCE(gw_u64, &table->entries_offset));
    const gw_u32 index = entries[hash % GW_MAGLEV_ENTRIES];
    return index == 0xffffu ? GW_TABLE_NONE : index;
}

#endif
