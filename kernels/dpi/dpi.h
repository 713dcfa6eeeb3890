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

GW_LANE void gw_dpi_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_payload payload = gw_payload_parse(frame, descriptor->length);
    if (payload.start > payload.end) {
        gw_drop(outcome, GW_DPI_TRUNCATED);
        return;
    }
    const GW_GLOBAL gw_dpi_image *image = (const GW_GLOBAL gw_dpi_image *)lane->image;
    const GW_GLOBAL gw_u8 *class_map = lane->image + image->class_map_offset;
    const GW_GLOBAL gw_u32 *transitions =
        (const GW_GLOBAL gw_u32 *)(lane->image + image->transitions_offset);
    const GW_GLOBAL gw_dpi_match *matches =
        (const GW_GLOBAL gw_dpi_match *)(lane->image + image->matches_offset);
    const gw_u32 classes = image->classes;
    const gw_u32 match_limit = image->match_states * classes;

    gw_u32 row = image->start;
    gw_u32 count = 0;
    gw_u32 first = 0;
    for (gw_u32 i = payload.start; i < payload.end; i++) {
        row = transitions[row + class_map[frame[i]]];
        if (row < match_limit) {
            const gw_dpi_match match = matches[row / classes];
            first = count == 0 ? match.pattern : first;
            /* Kept below 2^17, so that no number of matches wraps round. */
            count += match.count < 0xffff ? match.count : 0xffff;
            count = count < 0xffff ? count : 0xffff;
        }
    }
    gw_verdict(outcome, count == 0 ? GW_DPI_CLEAN : GW_DPI_MATCH, count, first);
}

/* The states to come are not known before the bytes are read. */
GW_LANE void gw_dpi_touch(const gw_lane *lane, const gw_descriptor *descriptor)
{
    (void)lane;
    (void)descriptor;
}

#endif
