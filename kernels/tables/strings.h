/*
 * strings: byte strings that are searched in a payload, as an Aho-Corasick automaton over byte
 * classes. A block has the same layout as the table image of dpi (dpi/dpi.h):
 *
 *   0         64                 320                         matches_offset
 *   | header  | 256 * gw_u8      | states * classes * gw_u32 | match_states * 8      |
 *
 * There is room for two blocks. To change the table, the host writes the unused block and then
 * selects it.
 */
#ifndef GODWIT_TABLES_STRINGS_H
#define GODWIT_TABLES_STRINGS_H

#define GW_STRINGS_CLASSES     64u
#define GW_STRINGS_TRANSITIONS 320u

typedef struct gw_strings {
    gw_u64 block_offset; /* changes while searches run */
    gw_u64 reserved[15];
} gw_strings;
GW_STATIC_ASSERT(sizeof(gw_strings) == GW_TABLE_HEADER_BYTES, strings_size);

typedef struct gw_strings_block {
    gw_u32 magic;
    gw_u32 states;
    gw_u32 classes;
    gw_u32 match_states;
    gw_u32 start; /* row of the start state */
    gw_u32 patterns;
    gw_u32 longest_bytes;
    gw_u32 match_limit; /* patterns end in the states with lower rows */
    gw_u64 matches_offset;
    gw_u64 bytes;
} gw_strings_block;
GW_STATIC_ASSERT(sizeof(gw_strings_block) == 48, strings_block_size);

typedef struct gw_strings_match {
    gw_u32 pattern; /* lowest number of the patterns that end in this state */
    gw_u32 count;   /* number of patterns that end in this state */
} gw_strings_match;
GW_STATIC_ASSERT(sizeof(gw_strings_match) == 8, strings_match_size);

/* Returns the number of occurrences of all patterns in `length` bytes. `first` receives the number
 * of the pattern that ends first. It stays unchanged if there is none. */
GW_LANE gw_u32 gw_strings_search(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_strings *table,
                                 const GW_GLOBAL gw_u8 *bytes, gw_u32 length, gw_u32 *first)
{
    const GW_GLOBAL gw_u8 *block = image + GW_ONCE(gw_u64, &table->block_offset);
    const GW_GLOBAL gw_strings_block *head = (const GW_GLOBAL gw_strings_block *)block;
    const GW_GLOBAL gw_u32 *transitions =
        (const GW_GLOBAL gw_u32 *)(block + GW_STRINGS_TRANSITIONS);
    gw_u32 row = head->start;
    gw_u32 found = 0;
    for (gw_u32 i = 0; i < length; i++) {
        row = transitions[row + block[GW_STRINGS_CLASSES + bytes[i]]];
        if (row < head->match_limit) {
            const GW_GLOBAL gw_strings_match *match =
                (const GW_GLOBAL gw_strings_match *)(block + head->matches_offset) +
                row / head->classes;
            *first = found == 0 ? match->pattern : *first;
            found += match->count;
        }
    }
    return found;
}

#endif
