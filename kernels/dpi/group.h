/*
 * Searches the payload of each packet with several work-items, which the drawing calls lanes. Each
 * work-item runs the automaton over one segment of the payload. Before the segment, it reads the
 * run-up, which consists of the preceding bytes:
 *
 *   payload   |-------- 0 --------|-------- 1 --------|-------- 2 --------|- 3 -|
 *   lane 0    |===================|
 *   lane 1               . . . . .|===================|
 *   lane 2                                   . . . . .|===================|
 *                         run-up         segment
 *
 * Each byte costs one load that depends on the previous load. With n segments, a packet takes about
 * 1/n of the time, and fewer packets keep a device busy.
 *
 * The result is the same as with a single work-item. After a text, the state of the automaton is
 * the longest suffix of the text that is a prefix of a pattern (Aho, Corasick, lemma 1). Its length
 * is at most longest_bytes, so the state depends only on the last longest_bytes bytes of the text.
 * A work-item starts longest_bytes - 1 bytes before its segment, or at the start of the payload.
 * After each byte of its segment, it has read the last longest_bytes bytes, or the whole text. Its
 * states and matches in the segment are therefore the same as if it had started at the payload's
 * first byte.
 *
 * A match belongs to the segment that contains its last byte, so it is counted once. Matches during
 * the run-up are not counted, because the states there may be too short.
 */
#ifndef GODWIT_DPI_GROUP_H
#define GODWIT_DPI_GROUP_H

#include "dpi.h"

/* Maximum number of work-items that search packets. Other work-items only wait at barriers. */
#define GW_DPI_GROUP_LANES 256u
/* Maximum number of work-items per packet. Several work-items search the same packet if the
 * work-group has more work-items than packets. */
#define GW_DPI_PACKET_LANES_MAX 32u
/* Typical size of the Ethernet, IPv4 and UDP headers in bytes, to estimate payload lengths. */
#define GW_DPI_HEADER_BYTES 42u

/* Matches that one work-item found in its segment of a payload. */
typedef struct gw_dpi_part {
    gw_u32 count; /* number of matches, at most 65535 */
    gw_u32 first; /* pattern that ends first; 0 without a match */
} gw_dpi_part;

typedef struct gw_dpi_scratch {
    gw_u8 class_map[256];
    gw_dpi_part parts[2][GW_DPI_GROUP_LANES]; /* of even and of odd rounds */
} gw_dpi_scratch;

/* Assignment of work-items to the packets of a batch. All work-items of the work-group compute the
 * same values. */
typedef struct gw_dpi_shares {
    gw_u32 run_up_bytes;  /* bytes that a work-item reads before its segment */
    gw_u32 segment_bytes; /* minimum length of a segment */
    gw_u32 lanes_log2;    /* binary logarithm of the work-items per packet */
    gw_u32 packets;       /* packets per round */
} gw_dpi_shares;

/* State of one work-item while it runs through the automaton. */
typedef struct gw_dpi_walk {
    const GW_GLOBAL gw_u32 *transitions;
    const GW_GLOBAL gw_dpi_match *matches;
    const GW_LOCAL gw_u8 *class_map;
    gw_u32 classes;
    gw_u32 match_limit;
    gw_u32 row;
    gw_dpi_part found;
} gw_dpi_walk;

GW_GROUP void gw_dpi_prepare(const GW_GLOBAL gw_u8 *image, GW_LOCAL gw_dpi_scratch *scratch)
{
    const GW_GLOBAL gw_u8 *class_map = image + GW_DPI_CLASS_MAP_OFFSET;
    for (gw_u32 i = gw_lane_id(); i < 256; i += gw_lane_count()) {
        scratch->class_map[i] = class_map[i];
    }
    gw_barrier();
}

/* Returns the binary logarithm of the number of payload segments, at most lanes_log2. Each segment
 * has at least min_bytes bytes. */
GW_LANE gw_u32 gw_dpi_segments_log2(gw_u32 bytes, gw_u32 min_bytes, gw_u32 lanes_log2)
{
    gw_u32 log2 = lanes_log2;
    while (log2 > 0 && bytes >> log2 < min_bytes) {
        log2--;
    }
    return log2;
}

/* Assigns the work-items of the work-group to packets. If several work-items share a packet, each
 * one searches one segment of the payload. First, a work-item reads some bytes before its segment,
 * so that its automaton reaches the correct state. These bytes are normally at most half a segment,
 * so they cause at most a third of all loads. They may be as long as the segment if work-items
 * would otherwise be idle. */
GW_LANE gw_dpi_shares gw_dpi_share(const gw_work *work)
{
    const gw_u32 longest_bytes = ((const GW_GLOBAL gw_dpi_image *)work->image)->longest_bytes;
    const gw_u32 lanes =
        gw_lane_count() < GW_DPI_GROUP_LANES ? gw_lane_count() : GW_DPI_GROUP_LANES;
    gw_dpi_shares shares;
    shares.run_up_bytes = longest_bytes < 0xffff ? longest_bytes : 0xffff;
    shares.run_up_bytes -= shares.run_up_bytes != 0;
    gw_u32 lanes_max = GW_PACKET_LANES;
    gw_u32 run_ups = 2;
    while (lanes_max > 1 && lanes_max < GW_DPI_PACKET_LANES_MAX &&
           work->count * lanes_max * 2 <= lanes) {
        lanes_max *= 2;
        run_ups = 1;
    }
    gw_u32 lanes_log2 = 0;
    while (lanes_log2 < 5 && 2u << lanes_log2 <= lanes_max && 2u << lanes_log2 <= lanes) {
        lanes_log2++;
    }
    const gw_u32 min_bytes = shares.run_up_bytes * run_ups;
    shares.segment_bytes = min_bytes < 16 ? 16 : min_bytes;
    const gw_u32 bytes =
        work->length_bytes < GW_DPI_HEADER_BYTES ? 0 : work->length_bytes - GW_DPI_HEADER_BYTES;
    shares.lanes_log2 = gw_dpi_segments_log2(bytes, shares.segment_bytes, lanes_log2);
    shares.packets = lanes >> shares.lanes_log2;
    return shares;
}

/* Adds a state's matches to the matches that the work-item has found so far. */
GW_LANE void gw_dpi_count(gw_dpi_walk *walk, gw_u32 row)
{
    if (row < walk->match_limit) {
        const gw_dpi_match match = walk->matches[row / walk->classes];
        walk->found.first = walk->found.count == 0 ? match.pattern : walk->found.first;
        walk->found.count += match.count < 0xffff ? match.count : 0xffff;
        walk->found.count = walk->found.count < 0xffff ? walk->found.count : 0xffff;
    }
}

/* Runs the automaton over the four bytes of `word`, lowest bits first. All byte classes load while
 * the transitions load one after another. */
GW_LANE void gw_dpi_walk_word(gw_dpi_walk *walk, gw_u32 word, gw_u32 counts)
{
    const gw_u32 class0 = walk->class_map[word & 0xff];
    const gw_u32 class1 = walk->class_map[word >> 8 & 0xff];
    const gw_u32 class2 = walk->class_map[word >> 16 & 0xff];
    const gw_u32 class3 = walk->class_map[word >> 24];
    const gw_u32 row0 = walk->transitions[walk->row + class0];
    const gw_u32 row1 = walk->transitions[row0 + class1];
    const gw_u32 row2 = walk->transitions[row1 + class2];
    const gw_u32 row3 = walk->transitions[row2 + class3];
    const gw_u32 low01 = row0 < row1 ? row0 : row1;
    const gw_u32 low23 = row2 < row3 ? row2 : row3;
    walk->row = row3;
    if (counts && (low01 < low23 ? low01 : low23) < walk->match_limit) {
        gw_dpi_count(walk, row0);
        gw_dpi_count(walk, row1);
        gw_dpi_count(walk, row2);
        gw_dpi_count(walk, row3);
    }
}

/*
 * Runs the automaton over a buffer's bytes from..to, where from < to. Only matches that end at or
 * after `counted` are counted. `counted` equals `from` or is a multiple of 4.
 *
 * The function loads aligned blocks of 16 bytes in advance. These loads are always valid, because a
 * buffer consists of whole blocks.
 */
GW_LANE void gw_dpi_walk_bytes(gw_dpi_walk *walk, const GW_GLOBAL gw_u8 *buffer, gw_u32 from,
                               gw_u32 counted, gw_u32 to)
{
    gw_block next = gw_load_block(buffer + (from & ~15u));
    gw_block block = next;
    for (gw_u32 at = from & ~15u; at < to; at += 4) {
        if ((at & 15) == 0) {
            block = next;
            if (at + 16 < to) {
                next = gw_load_block(buffer + at + 16);
            }
        }
        gw_u32 word = block.word0;
        block.word0 = block.word1;
        block.word1 = block.word2;
        block.word2 = block.word3;
        if (at >= from && at + 4 <= to) {
            gw_dpi_walk_word(walk, word, at >= counted);
            continue;
        }
        for (gw_u32 i = at; i < at + 4 && i < to; i++) {
            if (i >= from) {
                walk->row = walk->transitions[walk->row + walk->class_map[word & 0xff]];
                if (i >= counted) {
                    gw_dpi_count(walk, walk->row);
                }
            }
            word >>= 8;
        }
    }
}

/* Searches one segment of the payload in a buffer's bytes start..end. Returns no matches if the
 * payload has fewer segments. */
GW_LANE gw_dpi_part gw_dpi_segment(const gw_work *work, const GW_LOCAL gw_dpi_scratch *scratch,
                                   const gw_dpi_shares *shares, const GW_GLOBAL gw_u8 *buffer,
                                   gw_u32 start, gw_u32 end, gw_u32 segment)
{
    const GW_GLOBAL gw_dpi_image *image = (const GW_GLOBAL gw_dpi_image *)work->image;
    gw_dpi_walk walk;
    walk.transitions = (const GW_GLOBAL gw_u32 *)(work->image + GW_DPI_TRANSITIONS_OFFSET);
    walk.matches = (const GW_GLOBAL gw_dpi_match *)(work->image + image->matches_offset);
    walk.class_map = scratch->class_map;
    walk.classes = image->classes;
    walk.match_limit = image->match_limit;
    walk.row = image->start;
    walk.found.count = 0;
    walk.found.first = 0;

    const gw_u32 origin = start & ~3u;
    const gw_u32 segments_log2 =
        gw_dpi_segments_log2(end - start, shares->segment_bytes, shares->lanes_log2);
    const gw_u32 bytes = (((end - origin + (1u << segments_log2) - 1) >> segments_log2) + 3) & ~3u;
    const gw_u32 begin = origin + segment * bytes;
    if (segment >> segments_log2 != 0 || begin >= end) {
        return walk.found;
    }
    const gw_u32 counted = begin < start ? start : begin;
    const gw_u32 to = begin + bytes < end ? begin + bytes : end;
    const gw_u32 run_up = (shares->run_up_bytes + 3) & ~3u;
    const gw_u32 from = counted - start <= run_up ? start : counted - run_up;
    gw_dpi_walk_bytes(&walk, buffer, from, counted, to);
    return walk.found;
}

/* Combines the results of a packet's segments into the packet's outcome. */
GW_LANE void gw_dpi_merge(const GW_LOCAL gw_dpi_part *parts, gw_u32 lanes, gw_outcome *outcome)
{
    gw_u32 count = 0;
    gw_u32 first = 0;
    for (gw_u32 i = 0; i < lanes; i++) {
        first = count == 0 ? parts[i].first : first;
        count += parts[i].count;
    }
    count = count < 0xffff ? count : 0xffff;
    gw_verdict(outcome, count == 0 ? GW_DPI_CLEAN : GW_DPI_MATCH, count, first);
}

/* Searches all packets of a batch in several rounds. All work-items of the work-group take part in
 * every round. Even and odd rounds use separate result arrays, so one barrier per round is
 * enough. */
GW_GROUP void gw_dpi_bin(const gw_work *work, GW_LOCAL gw_dpi_scratch *scratch)
{
    const gw_dpi_shares shares = gw_dpi_share(work);
    const gw_u32 lane = gw_lane_id();
    const gw_u32 packet = lane >> shares.lanes_log2;
    const gw_u32 segment = lane & ((1u << shares.lanes_log2) - 1);
    gw_u32 side = 0;
    for (gw_u32 first = 0; first < work->count; first += shares.packets) {
        const gw_u32 index = first + packet;
        const gw_u32 works = packet < shares.packets && index < work->count;
        gw_u32 truncated = 0;
        if (works) {
            const gw_descriptor descriptor = work->descriptors[index];
            const GW_GLOBAL gw_u8 *buffer =
                work->arena + (gw_u64)descriptor.buffer * GW_BUFFER_UNIT;
            const gw_u32 head = descriptor.head;
            const gw_payload payload = gw_payload_parse(buffer + head, descriptor.length);
            truncated = payload.start > payload.end;
            if (!truncated) {
                scratch->parts[side][lane] =
                    gw_dpi_segment(work, scratch, &shares, buffer, head + payload.start,
                                   head + payload.end, segment);
            }
        }
        gw_barrier();
        if (works && segment == 0) {
            gw_outcome outcome = {0, 0, 0, 0};
            if (truncated) {
                gw_drop(&outcome, GW_DPI_TRUNCATED);
            } else {
                gw_dpi_merge(&scratch->parts[side][lane], 1u << shares.lanes_log2, &outcome);
            }
            work->outcomes[index] = outcome;
        }
        side ^= 1;
    }
}

#endif
