/* godwit function NAME
summary = "Sorts IPv4 packets by their source address."
reads   = 34                     # bytes of the frame that the kernel reads; `writes` is 0
[verdicts]
other = "The source address is not in the table, or the packet is not IPv4."
known = { text = "The source address is in the table.", value = "the mark" }
[drops]
truncated = "The frame ends before its IPv4 header."
[tables.sources]
text     = "Source addresses."
shape    = "exact"
key      = { address = "ipv4" }
row      = { mark = "u16" }
capacity = 1000
*/

GW_LANE void gw_NAME_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    gw_NAME_sources_key key;
    gw_NAME_sources_row row;
    if (descriptor->length < GW_ETHERNET_BYTES) {
        gw_drop(outcome, GW_UPPER_TRUNCATED);
        return;
    }
    if (gw_load_be16(frame + 12) != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_UPPER_OTHER, 0, 0);
        return;
    }
    if (descriptor->length < GW_ETHERNET_BYTES + 20u) {
        gw_drop(outcome, GW_UPPER_TRUNCATED);
        return;
    }
    key.address = gw_load_be32(frame + GW_ETHERNET_BYTES + 12u);
    if (gw_NAME_sources_find(lane, &key, &row)) {
        gw_verdict(outcome, GW_UPPER_KNOWN, 0, row.mark);
    } else {
        gw_verdict(outcome, GW_UPPER_OTHER, 0, 0);
    }
}
