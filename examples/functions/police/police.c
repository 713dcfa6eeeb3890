/* godwit function my_police
summary = "Drops packets of senders that are on a list."
spec    = "local policy"
reads   = 34                     # bytes; `writes` is 0
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
rows     = 256                   # different rows
[test]
frames = "police.pcap"           # `police.expect` has the outcome of each frame
expect = "police.expect"
tables = { senders = "senders.csv" }
params = { limit = 20 }
*/

/* The source address of an IPv4 header without a VLAN tag begins at byte 26 of the frame. */
#define POLICE_SOURCE (GW_ETHERNET_BYTES + 12u)

GW_LANE void gw_my_police_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    gw_my_police_senders_row row;
    if (descriptor->length < GW_ETHERNET_BYTES) {
        gw_drop(outcome, GW_MY_POLICE_TRUNCATED);
        return;
    }
    if (gw_load_be16(frame + 12) != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_MY_POLICE_PASS, 0, 0);
        return;
    }
    if (descriptor->length < POLICE_SOURCE + 8u) {
        gw_drop(outcome, GW_MY_POLICE_TRUNCATED);
        return;
    }
    /* The lookup contains GW_EXPENSIVE, so the CPU processes other packets meanwhile. */
    if (!gw_my_police_senders_find(lane, gw_load_be32(frame + POLICE_SOURCE), &row)) {
        gw_verdict(outcome, GW_MY_POLICE_PASS, 0, 0);
        return;
    }
    if (row.mark == 0 || row.mark > gw_my_police_params(lane)->limit) {
        gw_drop(outcome, GW_MY_POLICE_LISTED);
        return;
    }
    gw_verdict(outcome, GW_MY_POLICE_MARKED, 0, row.mark);
}
