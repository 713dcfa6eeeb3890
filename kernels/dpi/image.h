/*
 * The table image of dpi: an Aho-Corasick automaton (Aho, Corasick, Efficient
 * String Matching, CACM 1975) with all failure links resolved, over classes of
 * bytes.
 *
 *   0         64                 320                         matches_offset          bytes
 *   | header  | 256 * gw_u8      | states * classes * gw_u32 | match_states * 8      |
 *
 * Offsets are multiples of 64, from the image's first byte.
 *
 *   class_map[byte]              the byte's class, below classes
 *   a row                        is a state's number times classes, below 2^32
 *   transitions[row + class]     the row of the next state
 *   states below match_states    are those where patterns end; so row < match_limit tells a match,
 *                                and the start state has any number
 *   matches[state]               what ends in it, patterns that are suffixes included
 *   longest_bytes                no state is deeper than this: the state behind a byte depends on
 * this many bytes at most, that byte included
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
    gw_u32 match_states; /* the states 0..match_states are matches */
    gw_u32 start;        /* row of the start state */
    gw_u32 patterns;
    gw_u32 longest_bytes; /* of the patterns; 0: there are none */
    gw_u32 match_limit;   /* match_states * classes */
    gw_u64 matches_offset;
    gw_u64 bytes; /* size of the image */
} gw_dpi_image;
GW_STATIC_ASSERT(sizeof(gw_dpi_image) == 48, dpi_image_size);

typedef struct gw_dpi_match {
    gw_u32 pattern; /* the lowest number of the patterns that end here */
    gw_u32 count;   /* how many patterns end here, at least 1 */
} gw_dpi_match;
GW_STATIC_ASSERT(sizeof(gw_dpi_match) == 8, dpi_match_size);

#endif
