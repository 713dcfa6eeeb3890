/* godwit function dpi
summary = "Searches the payload of every packet for many byte strings (Aho-Corasick)."
spec    = "Aho, Corasick, Efficient String Matching, CACM 18(6), 1975"
number  = 4
magic   = "DPI "
reads   = "all"
form    = "group"
variants = ["search"]
[verdicts]
clean = "The payload contains no pattern."
match = {
    text = """\
        The payload contains a pattern. The value is the number of the pattern that ends first.""",
    port = true,
    value = "number of the pattern that ends first; the port is the number of matches",
}
[drops]
truncated = "The headers state more bytes than the frame has."
[constants]
class_map_offset = "usize = 64: Offset of the byte classes."
transitions_offset = "usize = 320: Offset of the transitions."
[structs.image]
text = "Header of the table image, drawn in dpi.h"
fields.magic = "u32: GW_DPI_MAGIC"
fields.states = "u32: number of states"
fields.classes = "u32: number of byte classes, 1 to 256"
fields.match_states = "u32: patterns end in states 0..match_states"
fields.start = "u32: row of the start state"
fields.patterns = "u32: number of patterns"
fields.longest_bytes = "u32: length of the longest pattern; 0 without patterns"
fields.match_limit = "u32: match_states * classes; patterns end in the states with lower rows"
fields.matches_offset = "u64: offset of the matches"
fields.bytes = "u64: size of the image"
[structs.match]
text = "Patterns that end in a state"
default = true
fields.pattern = "u32: lowest number of the patterns that end in this state"
fields.count = "u32: number of patterns that end in this state, at least 1"
*/
/*
 * dpi: searches the payload for many byte strings at once.
 *
 * Every occurrence of every pattern counts, including overlapping ones. A pattern matches only
 * within one packet.
 *
 * The kernel reads all bytes of the payload. For each byte, it loads the next state of an
 * automaton, and each load depends on the previous one. With many patterns, this load is likely to
 * miss the first-level cache.
 */
#ifndef GODWIT_DPI_H
#define GODWIT_DPI_H

#include "../common/payload.h"

/*
 * Table image of dpi: an Aho-Corasick automaton over byte classes. All failure links are resolved
 * (Aho, Corasick, Efficient String Matching, CACM 1975).
 *
 *   0         64                 320                         matches_offset          bytes
 *   | header  | 256 * gw_u8      | states * classes * gw_u32 | match_states * 8      |
 *
 * Offsets count from the first byte of the image and are multiples of 64.
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

/* Adds a state's matches to the packet's outcome. The first matching pattern sets the `value` of
 * the outcome. */
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

/* Returns the header of the table image. This is a separate function, because the loop that gopt
 * generates then saves fewer values when it switches between packets. */
GW_LANE const GW_GLOBAL gw_dpi_image *gw_dpi_header(const gw_lane *lane)
{
    return (const GW_GLOBAL gw_dpi_image *)lane->image;
}

/* Returns the address of a state's transition on an input byte. The transition holds the next
 * state. */
GW_LANE const GW_GLOBAL gw_u32 *gw_dpi_entry(const GW_GLOBAL gw_dpi_image *image, gw_u32 row,
                                             gw_u32 byte)
{
    const GW_GLOBAL gw_u8 *base = (const GW_GLOBAL gw_u8 *)image;
    const gw_u32 byte_class = base[GW_DPI_CLASS_MAP_OFFSET + byte];
    return (const GW_GLOBAL gw_u32 *)(base + GW_DPI_TRANSITIONS_OFFSET) + row + byte_class;
}

/*
 * Searches the payload, two bytes per iteration.
 *
 * The first byte's transition is prefetched while other packets run. The second byte's transition
 * may miss the cache, but the core meanwhile processes the next packets. One byte per iteration is
 * slower if the automaton fits the caches, and four are slower if it does not
 * (docs/functions/dpi.md).
 *
 * The outcome itself counts the matches, because every local variable that lives across a switch
 * between packets costs time.
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
