/*
 * dpi: searches the payload for many byte strings at once.
 *
 * Every occurrence of every pattern counts, including overlapping ones. A pattern matches only
 * within one packet.
 *
 * Reads    headers as described in common/payload.h; every byte of the payload
 * Writes   nothing
 * Next     clean (0); match (1), value = the pattern that ends first (the lowest number if several
 *          end at the same byte), port = number of matches, at most 65535
 * Drops    truncated (0): a header or its length field exceeds the frame (common/payload.h)
 * Tables   image.h; variant 0
 * Cost     the bytes of the payload; one dependent load per byte (the transition), which likely
 *          misses the first-level caches with many patterns
 * Spec     Aho, Corasick, Efficient String Matching, CACM 1975, sections 2 and 6
 */
#ifndef GODWIT_DPI_H
#define GODWIT_DPI_H

#include "../common/payload.h"
#include "image.h"

#define GW_DPI_CLEAN     0u
#define GW_DPI_MATCH     1u
#define GW_DPI_TRUNCATED 0u

/* Adds the pattern matches of an automaton state to the outcome. `row` is the state's row. The
 * first match determines the value. */
GW_RARE void gw_dpi_found(const GW_GLOBAL gw_dpi_image *image, gw_u32 row, gw_outcome *outcome)
{
    if (row >= image->match_limit) {
        return;
    }
    const GW_GLOBAL gw_dpi_match *matches =
        (const GW_GLOBAL gw_dpi_match *)((const GW_GLOBAL gw_u8 *)image + image->matches_offset);
    const gw_dpi_match match = matches[row / image->classes];
    const gw_u32 before = outcome->port;
    const gw_u32 more = match.count < 0xffff ? match.count : 0xffff;
    const gw_u32 count = before + more < 0xffff ? before + more : 0xffff;
    gw_verdict(outcome, GW_DPI_MATCH, count, before == 0 ? match.pattern : outcome->value);
}

/* Returns the image header. It is a function, because gopt then saves only its result at a switch
 * between packets instead of the whole lane. */
GW_LANE const GW_GLOBAL gw_dpi_image *gw_dpi_header(const gw_lane *lane)
{
    return (const GW_GLOBAL gw_dpi_image *)lane->image;
}

/* Returns the address of the automaton's transition from `row` for a byte. It holds the row of the
 * next state. */
GW_LANE const GW_GLOBAL gw_u32 *gw_dpi_entry(const GW_GLOBAL gw_dpi_image *image, gw_u32 row,
                                             gw_u32 byte)
{
    const GW_GLOBAL gw_u8 *base = (const GW_GLOBAL gw_u8 *)image;
    const gw_u32 byte_class = base[GW_DPI_CLASS_MAP_OFFSET + byte];
    return (const GW_GLOBAL gw_u32 *)(base + GW_DPI_TRANSITIONS_OFFSET) + row + byte_class;
}

/*
 * Searches the payload, two bytes per iteration. The transition of the first byte is prefetched.
 * The second may miss the cache while the core already processes the next packets. One byte per
 * iteration is slower if the automaton fits the caches, and four are slower if it does not
 * (docs/functions/dpi.md). The outcome counts the matches, because every local variable that lives
 * across a switch costs time.
 */
GW_LANE void gw_dpi_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_payload payload = gw_payload_parse(frame, descriptor->length);
    if (payload.start > payload.end) {
        gw_drop(outcome, GW_DPI_TRUNCATED);
        return;
    }
    gw_verdict(outcome, GW_DPI_CLEAN, 0, 0);
    if (payload.start == payload.end) {
        return;
    }
    const GW_GLOBAL gw_u8 *byte = frame + payload.start;
    const GW_GLOBAL gw_u8 *const last = frame + payload.end - 1;
    const GW_GLOBAL gw_dpi_image *image = gw_dpi_header(lane);
    const GW_GLOBAL gw_u32 *entry = gw_dpi_entry(image, image->start, *byte);
    for (; byte < last; byte += 2) {
        GW_EXPENSIVE(entry);
        const gw_u32 row = *entry;
        const gw_u32 next = *gw_dpi_entry(image, row, byte[1]);
        if ((row < next ? row : next) < image->match_limit) {
            gw_dpi_found(image, row, outcome);
            gw_dpi_found(image, next, outcome);
        }
        if (byte + 1 == last) {
            return;
        }
        entry = gw_dpi_entry(image, next, byte[2]);
    }
    gw_dpi_found(image, *entry, outcome);
}

#endif
