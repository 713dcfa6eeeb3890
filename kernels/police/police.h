/* godwit function police
summary = "Drops IPv4 packets of senders that are on a list."
spec    = "local policy"
number  = 8
reads   = 38
[verdicts]
pass    = "The sender is not on the list, or the packet is not IPv4."
marked  = { text = "The sender is on the list with a mark up to the limit.", value = "the mark" }
[drops]
truncated = "The frame ends before its IPv4 header."
listed    = "The sender is on the list with mark 0, or with a mark above the limit."
[params]
limit = { type = "u32", default = 10, range = [0, 255], text = "Highest mark that passes." }
[tables.senders]
text     = "Prefixes of senders."
shape    = "lpm4"
row      = { mark = "u32" }
capacity = 100_000
rows     = 256
[test]
frames = "police.pcap"
tables = { senders = "senders.csv" }
params = { limit = 20 }
*/
/* police: a sender list. The kernel looks up the source address of IPv4 packets, with or without
 * VLAN tag. */
#ifndef GODWIT_POLICE_H
#define GODWIT_POLICE_H

GW_LANE void gw_police_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 length = descriptor->length;
    const gw_l3 l3 = gw_l3_parse(frame, length);
    gw_police_senders_row row;
    if (l3.offset == 0) {
        gw_drop(outcome, GW_POLICE_TRUNCATED);
        return;
    }
    if (l3.ether_type != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_POLICE_PASS, 0, 0);
        return;
    }
    if (length < l3.offset + 20u) {
        gw_drop(outcome, GW_POLICE_TRUNCATED);
        return;
    }
    if (!gw_police_senders_find(lane, gw_load_be32(frame + l3.offset + 12), &row)) {
        gw_verdict(outcome, GW_POLICE_PASS, 0, 0);
        return;
    }
    if (row.mark == 0 || row.mark > gw_police_params(lane)->limit) {
        gw_drop(outcome, GW_POLICE_LISTED);
        return;
    }
    gw_verdict(outcome, GW_POLICE_MARKED, 0, row.mark);
}

#endif
