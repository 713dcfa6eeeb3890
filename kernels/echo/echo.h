/*
 * echo: sends each frame back, through the port given in the payload.
 *
 * The port number is the big-endian word in bytes 42..46 of the frame. This is the start of the
 * payload in an untagged Ethernet/IPv4/UDP frame without IP options. The headers are not parsed.
 *
 * Reads    bytes 0..12 and 42..46 of the frame
 * Writes   bytes 0..12 of the frame: source and destination addresses swapped
 * Next     forward (0), port = number mod ports
 * Drops    truncated (0): shorter than 46 bytes
 * Tables   image.h
 * Cost     16 bytes read, 12 written; no dependent loads
 * Spec     Kalia et al., Raising the Bar for Using GPUs in Software Packet
 *          Processing, NSDI 2015, section 5.1
 */
#ifndef GODWIT_ECHO_H
#define GODWIT_ECHO_H

#include "image.h"

#define GW_ECHO_FORWARD       0u
#define GW_ECHO_TRUNCATED     0u
#define GW_ECHO_NUMBER_OFFSET 42u

GW_LANE void gw_echo_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_echo_image *image = (const GW_GLOBAL gw_echo_image *)lane->image;
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    if (descriptor->length < GW_ECHO_NUMBER_OFFSET + 4) {
        gw_drop(outcome, GW_ECHO_TRUNCATED);
        return;
    }
    const gw_u32 number = gw_load_be32(frame + GW_ECHO_NUMBER_OFFSET);
    gw_swap_macs(frame);
    gw_verdict(outcome, GW_ECHO_FORWARD, number % image->ports, 0);
}

/* Does nothing, because echo reads only the frame, which the loop prefetches. */
GW_LANE void gw_echo_touch(const gw_lane *lane, const gw_descriptor *descriptor)
{
    (void)lane;
    (void)descriptor;
}

#endif
