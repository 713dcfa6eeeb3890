/*
 * template: a minimal function to copy. Sends a frame back to its source address.
 *
 * Reads    bytes 0..12 of the frame
 * Writes   bytes 0..12 of the frame: source and destination addresses swapped
 * Next     forward (0)
 * Drops    truncated (0): shorter than an Ethernet header
 * Tables   none
 * Cost     12 bytes read, 12 written; no dependent loads
 * Spec     IEEE 802.3 clause 3.2 (address fields)
 */
#ifndef GODWIT_TEMPLATE_H
#define GODWIT_TEMPLATE_H

#define GW_TEMPLATE_FORWARD   0u
#define GW_TEMPLATE_TRUNCATED 0u

GW_LANE void gw_template_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    if (descriptor->length < GW_ETHERNET_BYTES) {
        gw_drop(outcome, GW_TEMPLATE_TRUNCATED);
        return;
    }
    gw_swap_macs(gw_frame(lane, descriptor));
    gw_verdict(outcome, GW_TEMPLATE_FORWARD, 0, 0);
}

/* Does nothing, because template reads only the frame, which the loop prefetches. */
GW_LANE void gw_template_touch(const gw_lane *lane, const gw_descriptor *descriptor)
{
    (void)lane;
    (void)descriptor;
}

#endif
