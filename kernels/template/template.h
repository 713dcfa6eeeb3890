/* godwit function template
summary = """\
    Swaps the source and destination MAC address of every frame. The function to copy for a new \
    one."""
spec    = "IEEE 802.3, clause 3.2"
number  = 0
reads   = 12
writes  = 12
variants = ["swap"]
[verdicts]
forward = "The addresses are swapped."
[drops]
truncated = "The frame is shorter than an Ethernet header."
*/
/*
 * template: a minimal function, as a starting point for new ones. It sends each frame back to its
 * source address.
 *
 * The kernel reads 12 bytes and writes 12. No load depends on the result of another load.
 */
#ifndef GODWIT_TEMPLATE_H
#define GODWIT_TEMPLATE_H

GW_LANE void gw_template_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    if (descriptor->length < GW_ETHERNET_BYTES) {
        gw_drop(outcome, GW_TEMPLATE_TRUNCATED);
        return;
    }
    gw_swap_macs(gw_frame(lane, descriptor));
    gw_verdict(outcome, GW_TEMPLATE_FORWARD, 0, 0);
}

#endif
