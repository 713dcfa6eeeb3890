/* godwit function balancer
summary = "Distributes the flows to one address over several servers."
spec    = "Eisenbud et al., Maglev, NSDI 2016"
reads   = 82                     # Ethernet with a VLAN tag, the longest IPv4 header, ports
writes  = 6                      # the destination MAC address
[verdicts]
server = { text = "The frame goes to a server.", port = true, value = "the number of the server" }
other  = "The packet is not for the address of the service."
[drops]
truncated = "The frame ends before its headers."
no_server = "The service has no server."
[params]
address = { type = "ipv4", text = "Address of the service. Every server also has it." }
[tables.servers]
text     = "Servers, each with its MAC address, and the port that leads to it."
shape    = "maglev"
row      = { mac = "mac", port = "port", number = "u16" }
capacity = 100
[test]
frames = "balancer.pcap"
ports  = ["in", "rack"]
tables = { servers = "servers.csv" }
params = { address = "198.51.100.80" }
unreached = ["no_server"]        # the table of the test is not empty
*/

/* Header fields of a flow. All packets of a flow have the same values. */
typedef struct balancer_flow {
    gw_u32 source;
    gw_u32 protocol;
    gw_u32 ports; /* both ports, or 0 for a fragment and for a protocol without ports */
} balancer_flow;

/* Returns a hash of a flow. The last lines are the finalizer of MurmurHash3. */
GW_LANE gw_u32 balancer_hash(balancer_flow flow)
{
    gw_u32 hash = (flow.source * 0x9e3779b1u ^ flow.ports) + flow.protocol;
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    return hash ^ hash >> 16;
}

GW_LANE void gw_balancer_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_l3 l3 = gw_l3_parse(frame, descriptor->length);
    gw_balancer_servers_row row;
    balancer_flow flow;
    gw_u32 ip_bytes;
    if (l3.offset == 0) {
        gw_drop(outcome, GW_BALANCER_TRUNCATED);
        return;
    }
    if (l3.ether_type != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_BALANCER_OTHER, 0, 0);
        return;
    }
    if (descriptor->length < l3.offset + 20u) {
        gw_drop(outcome, GW_BALANCER_TRUNCATED);
        return;
    }
    if (gw_load_be32(frame + l3.offset + 16) != gw_balancer_params(lane)->address) {
        gw_verdict(outcome, GW_BALANCER_OTHER, 0, 0);
        return;
    }
    flow.source = gw_load_be32(frame + l3.offset + 12);
    flow.protocol = frame[l3.offset + 9];
    flow.ports = 0;
    /* A fragment may lack the ports, so all fragments of a source go to the same server. */
    if ((flow.protocol == GW_PROTOCOL_TCP || flow.protocol == GW_PROTOCOL_UDP) &&
        (gw_load_be16(frame + l3.offset + 6) & 0x3fff) == 0) {
        ip_bytes = 4u * (frame[l3.offset] & 15u);
        if (ip_bytes < 20 || descriptor->length < l3.offset + ip_bytes + 4u) {
            gw_drop(outcome, GW_BALANCER_TRUNCATED);
            return;
        }
        flow.ports = gw_load_be32(frame + l3.offset + ip_bytes);
    }
    if (!gw_balancer_servers_find(lane, balancer_hash(flow), &row)) {
        gw_drop(outcome, GW_BALANCER_NO_SERVER);
        return;
    }
    /* The IP header stays as it is, so the server answers the client directly. */
    gw_store_be32(frame, (gw_u32)(row.mac >> 16));
    gw_store_be16(frame + 4, (gw_u32)row.mac & 0xffffu);
    gw_verdict(outcome, GW_BALANCER_SERVER, row.port, row.number);
}
