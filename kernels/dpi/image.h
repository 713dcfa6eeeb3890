/*
 * Table image of dpi: an Aho-Corasick automaton over byte classes, with all failure links resolved
 * (Aho, Corasick, Efficient String Matching, CACM 1975).
 *
 *   0         64                 320                         matches_offset          bytes
 *   | header  | 256 * gw_u8      | states * classes * gw_u32 | match_states * 8      |
 *
 * Offsets are multiples of 64, from the first byte of the image.
 *
 *   class_map[byte]           class of the byte, below `classes`
 *   row                       state number times `classes`, below 2^32
 *   transitions[row + class]  row of the next state
 *   matches[state]            patterns that end in the state, including suffixes of others
 *   longest_bytes             maximum depth of a state: the state after a byte depends on at most
 *                             this number of bytes, including that byte
 *
 * Patterns end only in the states below match_states, so row < match_limit identifies a match. The
 * start state may have any number.
 */
#ifndef GODWIT_DPI_IMAGE_H
#define GODWIT_DPI_IMAGE_H

#define GW_DPI_MAGIC              0x20495044u /* "DPI " */
#define GW_DPI_CLASS_MAP_OFFSET   64u
#define GW_DPI_TRANSITIONS_OFFSET 320u

typedef struct gw_dpi_image {
    gw_u32 magic; /* GW_DPI_MAGIC */
    gw_u32 states;
    gw_u32 classes;      /* 1..256 */
    gw_u32 match_states; /* patterns end in states 0..match_states */
    gw_u32 start;        /* row of the start state */
    gw_u32 patterns;
    gw_u32 longest_bytes; /* length of the longest pattern; 0 without patterns */
    gw_u32 match_limit;   /* match_states * classes */
    gw_u64 matches_offset;
    gw_u64 bytes; /* size of the image */
} gw_dpi_image;
GW_STATIC_ASSERT(sizeof(gw_dpi_image) == 48, dpi_image_size);

typedef struct gw_dpi_match {
    gw_u32 pattern; /* lowest number of the patterns that end in this state */
    gw_u32 count;   /* number of patterns that end in this state, at least 1 */
} gw_dpi_match;
GW_STATIC_ASSERT(sizeof(gw_dpi_match) == 8, dpi_match_size);

#endif
