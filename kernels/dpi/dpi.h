/*
 * dpi: looks for many byte strings in the payload at once.
 *
 * Every pattern that ends at every byte of the payload counts, overlaps
 * included. A pattern lies within one packet.
 *
 * Reads    headers as far as common/payload.h says; every byte of the payload
 * Writes   nothing
 * Next     clean (0); match (1), value = the pattern that ends first (of several that
 *          end at the same byte, the lowest number), port = matches, at most 65535
 * Drops    truncated (0): headers say more than the frame has (common/payload.h)
 * Tables   image.h; variant 0
 * Cost     the payload's bytes; one dependent load per byte (the transition), likely
 *          to miss the near caches where there are many patterns
 * Spec     Aho, Corasick, Efficient String Matching, CACM 1975, sections 2 and 6
 */
#ifndef GODWIT_DPI_H
#define GODWIT_DPI_H

#include "../common/payload.h"
#include "image.h"

#define GW_DPI_CLEAN     0u
#define GW_DPI_MATCH     1u
#define GW_DPI_TRUNCATED 0u

/* Counts what ends in the state of a row, if anything does. The first to end is named. */
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

/* A call, whose value is saved where packets switch: without it, gopt saves all of the lane. */
GW_LANE const GW_GLOBAL gw_dpi_image *gw_dpi_header(const gw_lane *lane)
{
    return (const GW_GLOBAL gw_dpi_image *)lane->image;
}

/* The transition from a row by a byte: where the number of the next row stands. */
GW_LANE const GW_GLOBAL gw_u32 *gw_dpi_entry(const GW_GLOBAL gw_dpi_image *image, gw_u32 row,
                                             gw_u32 byte)
{
    const GW_GLOBAL gw_u8 *base = (const GW_GLOBAL gw_u8 *)image;
    const gw_u32 byte_class = base[GW_DPI_CLASS_MAP_OFFSET + byte];
    return (const GW_GLOBAL gw_u32 *)(base + GW_DPI_TRANSITIONS_OFFSET) + row + byte_class;
}

/*
 * Two bytes a turn: the transition of the first is fetched before, that of the second
 * misses at times, while the core already works on the packets that come next. One byte
 * a turn is slower where the caches hold the automaton, four where they don't (docs/
 * functions/dpi.md). What packets keep is the less the better: the outcome counts.
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
