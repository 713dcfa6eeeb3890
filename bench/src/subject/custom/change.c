/* godwit function change
summary = "Looks up two tables whose rows change, for a measurement."
reads   = 18
[verdicts]
found  = { text = "Both tables have a row.", value = "the sum of both values" }
absent = "A table has no row."
[tables.stations]
shape    = "exact"
key      = { address = "mac" }
row      = { value = "u16" }
capacity = 1_000_001
[tables.prefixes]
shape    = "lpm4"
row      = { value = "u16" }
capacity = 1_000_001
rows     = 70_000
*/

GW_LANE void gw_change_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    gw_change_stations_key key;
    gw_change_stations_row station;
    gw_change_prefixes_row prefix;
    if (descriptor->length < 18) {
        gw_verdict(outcome, GW_CHANGE_ABSENT, 0, 0);
        return;
    }
    key.address = gw_load_be64(frame) >> 16;
    if (!gw_change_stations_find(lane, &key, &station) ||
        !gw_change_prefixes_find(lane, gw_load_be32(frame + 14), &prefix)) {
        gw_verdict(outcome, GW_CHANGE_ABSENT, 0, 0);
        return;
    }
    gw_verdict(outcome, GW_CHANGE_FOUND, 0, (gw_u32)station.value + prefix.value);
}
