/* godwit function copy_of_ipv4
summary = "Forwards IPv4 packets as the built-in function ipv4 does, for a comparison."
spec    = "RFC 791, RFC 1624"
reads   = 78
writes  = 30
[verdicts]
forward      = { text = "A route was found.", port = true, value = "the next hop" }
ttl_exceeded = "A route was found, but the TTL is 0 or 1."
not_ipv4     = "The frame does not carry IPv4."
no_route     = "No route covers the destination."
[drops]
truncated = "The frame ends within a header."
malformed = "The version, header length or total length is inconsistent."
checksum  = "The header checksum is wrong."
[tables.routes]
shape    = "lpm4"
row      = { destination = "mac", source = "mac", port = "port", hop = "u32" }
capacity = 1_200_000
rows     = 256
*/

GW_LANE void gw_copy_of_ipv4_packet(const gw_lane *lane, gw_descriptor *descriptor,
                                    gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 length = descriptor->length;
    const gw_l3 l3 = gw_l3_parse(frame, length);
    GW_GLOBAL gw_u8 *ip = frame + l3.offset;
    gw_copy_of_ipv4_routes_row row;
    gw_u32 header;
    gw_u32 total;
    gw_u32 ttl;
    if (l3.offset == 0) {
        gw_drop(outcome, GW_COPY_OF_IPV4_TRUNCATED);
        return;
    }
    if (l3.ether_type != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_COPY_OF_IPV4_NOT_IPV4, 0, 0);
        return;
    }
    if (length < l3.offset + 20u) {
        gw_drop(outcome, GW_COPY_OF_IPV4_TRUNCATED);
        return;
    }
    header = 4u * (ip[0] & 15u);
    total = gw_load_be16(ip + 2);
    if (ip[0] >> 4 != 4 || header < 20u || total < header) {
        gw_drop(outcome, GW_COPY_OF_IPV4_MALFORMED);
        return;
    }
    if (length < l3.offset + total) {
        gw_drop(outcome, GW_COPY_OF_IPV4_TRUNCATED);
        return;
    }
    if (gw_ones_sum(ip, header) != 0xffffu) {
        gw_drop(outcome, GW_COPY_OF_IPV4_CHECKSUM);
        return;
    }
    if (!gw_copy_of_ipv4_routes_find(lane, gw_load_be32(ip + 16), &row)) {
        gw_verdict(outcome, GW_COPY_OF_IPV4_NO_ROUTE, 0, 0);
        return;
    }
    ttl = gw_load_be16(ip + 8);
    if (ttl < 0x0200u) {
        gw_verdict(outcome, GW_COPY_OF_IPV4_TTL_EXCEEDED, 0, 0);
        return;
    }
    gw_store_be16(ip + 10, gw_checksum_change16(gw_load_be16(ip + 10), ttl, ttl - 0x0100u));
    gw_store_be16(ip + 8, ttl - 0x0100u);
    gw_store_be64(frame, row.destination << 16 | row.source >> 32);
    gw_store_be32(frame + 8, (gw_u32)row.source);
    gw_verdict(outcome, GW_COPY_OF_IPV4_FORWARD, row.port, row.hop);
}
