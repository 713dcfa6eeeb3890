/* Layout of the search image, a byte array with the compiled patterns. Offsets are in bytes from
 * the start of the image, and numbers are little-endian. `src/image.rs` writes the image and
 * describes each word. */
#ifndef GODWIT_LITERAL_IMAGE_H
#define GODWIT_LITERAL_IMAGE_H

#include <stdint.h>

struct gw_literal_group {
    uint32_t patterns;
    uint32_t table_at;
    uint32_t table_bits;
    uint32_t starts_at;
    uint32_t starts_bits;
    uint32_t values_at;
    uint32_t masks_at;
    uint32_t ids_at;
    uint32_t positions_at;
    uint32_t entries;
    uint32_t back;
    uint32_t unused;
};

struct gw_literal_image {
    uint32_t bytes;
    uint32_t k1;
    uint32_t k2;
    uint32_t patterns;
    uint32_t patterns_at;
    uint32_t first_at;
    uint32_t first_bits;
    uint32_t short_at;
    uint32_t longest;
    uint32_t unused[7];
    struct gw_literal_group group[4];
};

#endif
