/* array: a table in which a number selects a row. Each entry holds a row index, or
 * GW_TABLE_NONE. */
#ifndef GODWIT_TABLES_ARRAY_H
#define GODWIT_TABLES_ARRAY_H

typedef struct gw_array {
    gw_u32 entries; /* number of entries */
    gw_u32 row_bytes;
    gw_u64 entries_offset; /* offset of the entries, 4 bytes each */
    gw_u64 rows_offset;
    gw_u64 reserved[13];
} gw_array;
GW_STATIC_ASSERT(sizeof(gw_array) == GW_TABLE_HEADER_BYTES, array_size);

/* Returns the row index of an entry, or GW_TABLE_NONE. */
GW_LANE gw_u32 gw_array_find(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_array *table,
                             gw_u32 number)
{
    const GW_GLOBAL gw_u32 *entries = (const GW_GLOBAL gw_u32 *)(image + table->entries_offset);
    return number < table->entries ? GW_ONCE(gw_u32, entries + number) : GW_TABLE_NONE;
}

#endif
