/* godwit function vxlan
summary = "Removes the outer headers of VXLAN packets."
spec    = "RFC 7348"
reads   = "all"
writes  = "all"                  # the start of the frame moves
[verdicts]
inner = { text = "The outer headers are removed.", port = true, value = "the VXLAN network identifier" }
other = "The packet is not VXLAN, and is not changed."
[drops]
truncated = "The frame ends before its headers, or before the inner Ethernet header."
fragment  = "The packet is a fragment. A tunnel endpoint must not create fragments."
invalid   = "The header has no valid network identifier: flag I is not set."
unknown   = "The table has no such network."
[counters]
inner_bytes = { unit = "bytes", text = "Bytes of the packets without their outer headers." }
[tables.networks]
text     = "Networks, each with the port that leads to it."
shape    = "exact"
key      = { vni = "u24" }
row      = { port = "port" }
capacity = 10_000
[test]
frames = "vxlan.pcap"
ports  = ["underlay", "red", "blue"]
tables = { networks = "networks.csv" }
*/

#define VXLAN_UDP_PORT 4789u
/* Size of the UDP header and the VXLAN header. */
#define VXLAN_BYTES 16u

GW_LANE void gw_vxlan_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 length = descriptor->length;
    const gw_l3 l3 = gw_l3_parse(frame, length);
    gw_vxlan_networks_key key;
    gw_vxlan_networks_row row;
    gw_u32 udp;
    gw_u32 udp_bytes;
    if (l3.offset == 0) {
        gw_drop(outcome, GW_VXLAN_TRUNCATED);
        return;
    }
    if (l3.ether_type != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_VXLAN_OTHER, 0, 0);
        return;
    }
    if (length < l3.offset + 20u) {
        gw_drop(outcome, GW_VXLAN_TRUNCATED);
        return;
    }
    if (frame[l3.offset + 9] != GW_PROTOCOL_UDP) {
        gw_verdict(outcome, GW_VXLAN_OTHER, 0, 0);
        return;
    }
    if ((gw_load_be16(frame + l3.offset + 6) & 0x3fff) != 0) {
        gw_drop(outcome, GW_VXLAN_FRAGMENT);
        return;
    }
    udp = l3.offset + 4u * (frame[l3.offset] & 15u);
    if (udp < l3.offset + 20u || length < udp + 8u) {
        gw_drop(outcome, GW_VXLAN_TRUNCATED);
        return;
    }
    if (gw_load_be16(frame + udp + 2) != VXLAN_UDP_PORT) {
        gw_verdict(outcome, GW_VXLAN_OTHER, 0, 0);
        return;
    }
    /* The frame may be longer than the datagram, because Ethernet pads short frames. */
    udp_bytes = gw_load_be16(frame + udp + 4);
    if (udp_bytes < VXLAN_BYTES + GW_ETHERNET_BYTES || length < udp + udp_bytes) {
        gw_drop(outcome, GW_VXLAN_TRUNCATED);
        return;
    }
    if ((frame[udp + 8] & 8u) == 0) {
        gw_drop(outcome, GW_VXLAN_INVALID);
        return;
    }
    key.vni = gw_load_be32(frame + udp + 12) >> 8;
    if (!gw_vxlan_networks_find(lane, &key, &row)) {
        gw_drop(outcome, GW_VXLAN_UNKNOWN);
        return;
    }
    descriptor->head = (gw_u16)(descriptor->head + udp + VXLAN_BYTES);
    descriptor->length = (gw_u16)(udp_bytes - VXLAN_BYTES);
    gw_vxlan_count_inner_bytes(lane, udp_bytes - VXLAN_BYTES);
    gw_verdict(outcome, GW_VXLAN_INNER, row.port, key.vni);
}
