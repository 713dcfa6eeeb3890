/* godwit function echo
summary = "Sends every frame back to its sender, on the port that a number in its payload selects."
spec    = """\
    Kalia et al., Raising the Bar for Using GPUs in Software Packet Processing, NSDI 2015, \
    section 4"""
number  = 1
magic   = "ECHO"
reads   = 46
writes  = 12
[verdicts]
forward = {
    text = """\
        The addresses are swapped. The port is the 32-bit number at byte 42 modulo the number of \
        ports.""",
    port = true,
}
[drops]
truncated = "The frame is shorter than 46 bytes."
[structs.image]
text = "Table image: the number of ports"
fields.magic = "u32: GW_ECHO_MAGIC"
fields.ports = "u32: number of ports, 1 to 65536"
*/
/*
 * echo: swaps the MAC addresses of each frame and sends the frame back, through the port that the
 * payload names.
 *
 * The port number is the big-endian word in bytes 42..46 of the frame. The payload starts there in
 * an untagged Ethernet/IPv4/UDP frame without IP options. The function does not parse the headers.
 *
 * The kernel reads 16 bytes and writes 12. No load depends on the result of another load.
 */
#ifndef GODWIT_ECHO_H
#define GODWIT_ECHO_H

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

#endif
