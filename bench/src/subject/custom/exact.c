/* godwit function stations
summary = "Looks up the source and the destination of frames as l2 does, for a comparison."
reads   = 14
[verdicts]
forward = { text = "The station is known.", port = true }
absent  = { text = "A station is unknown.", value = "0 for the source, 1 for the destination" }
[drops]
truncated = "The frame ends before its EtherType."
same_port = "The station is at the port of the source."
[tables.table]
shape    = "exact"
key      = { address = "mac" }
row      = { port = "port" }
capacity = 1_000_064
*/

GW_LANE void gw_stations_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    gw_stations_table_key key;
    gw_stations_table_row from;
    gw_stations_table_row to;
    if (descriptor->length < 14) {
        gw_drop(outcome, GW_STATIONS_TRUNCATED);
        return;
    }
    key.address = gw_load_be64(frame + 6) >> 16;
    if (!gw_stations_table_find(lane, &key, &from)) {
        gw_verdict(outcome, GW_STATIONS_ABSENT, 0, 0);
        return;
    }
    key.address = gw_load_be64(frame) >> 16;
    if (!gw_stations_table_find(lane, &key, &to)) {
        gw_verdict(outcome, GW_STATIONS_ABSENT, 0, 1);
        return;
    }
    if (to.port == from.port) {
        gw_drop(outcome, GW_STATIONS_SAME_PORT);
        return;
    }
    gw_verdict(outcome, GW_STATIONS_FORWARD, to.port, 0);
}
