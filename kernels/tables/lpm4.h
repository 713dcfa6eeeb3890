/*
 * lpm4: a table that finds the longest matching IPv4 prefix. kernels/ipv4/ipv4.h shows its DIR-24-8
 * layout. An entry has 2 bytes if the table has at most 32767 rows, and 4 bytes otherwise.
 */
#ifndef GODWIT_TABLES_LPM4_H
#define GODWIT_TABLES_LPM4_H

typedef struct gw_lpm4 {
    gw_u32 entry_bytes; /* 2 or 4 */
    gw_u32 row_bytes;
    gw_u64 tbl24_offset;
    gw_u64 tbl8_offset;
    gw_u64 rows_offset;
    gw_u64 reserved[12];
} gw_lpm4;
GW_STATIC_ASSERT(sizeof(gw_lpm4) == GW_TABLE_HEADER_BYTES, lpm4_size);

/* Returns the row index of an IPv4 address's longest prefix, or GW_TABLE_NONE if no prefix
 * matches. */
GW_LANE gw_u32 gw_lpm4_find(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_lpm4 *table,
                            gw_u32 address)
{
    if (table->entry_bytes == 2) {
        const GW_GLOBAL gw_u16 *tbl24 = (const GW_GLOBAL gw_u16 *)(image + table->tbl24_offset);
        GW_EXPENSIVE(&tbl24[address >> 8]);
        gw_u32 entry = GW_ONCE(gw_u16, &tbl24[address >> 8]);
        if (entry & 0x8000u) {
            const GW_GLOBAL gw_u16 *tbl8 = (const GW_GLOBAL gw_u16 *)(image + table->tbl8_offset);
            const gw_u32 index = (entry & 0x7fffu) << 8 | (address & 0xff);
            GW_EXPENSIVE(&tbl8[index]);
            entry = tbl8[index];
        }
        /* Map 0x7fff (no row) to 0xffffffff without a branch, which would be mispredicted for
         * random addresses. */
        return entry | (0u - ((entry + 1) >> 15));
    }
    const GW_GLOBAL gw_u32 *tbl24 = (const GW_GLOBAL gw_u32 *)(image + table->tbl24_offset);
    GW_EXPENSIVE(&tbl24[address >> 8]);
    gw_u32 entry = GW_ONCE(gw_u32, &tbl24[address >> 8]);
    if (entry & 0x80000000u) {
        const GW_GLOBAL gw_u32 *tbl8 = (const GW_GLOBAL gw_u32 *)(image + table->tbl8_offset);
        const gw_u64 index = (gw_u64)(entry & 0x7fffffffu) << 8 | (address & 0xff);
        GW_EXPENSIVE(&tbl8[index]);
        entry = tbl8[index];
    }
    return entry | (0u - ((entry + 1) >> 31));
}

#endif
