/* godwit function token_bucket
summary = "Limits the rate of each source. Bursts above the limit are marked first, and then dropped."
spec    = "RFC 2697, RFC 8622"
reads   = 34
writes  = 26                     # the DSCP and the header checksum
[verdicts]
within = "The source is within its rate, or the table does not list it."
marked = "The source exceeds its burst. The packet gets the DSCP of the lower-effort class."
[drops]
truncated = "The frame ends before its IPv4 header."
exceeded  = "The source exceeds both bursts."
[counters]
exceeded_bytes = { unit = "bytes", text = "Bytes of the packets that exceed both bursts." }
[tables.rates]
text     = "Rates of sources in bit/s, with bursts in bytes."
shape    = "meter"
key      = { source = "ipv4" }
unit     = "bits"
capacity = 10_000
[test]
frames = "token_bucket.pcap"
tables = { rates = "rates.csv" }
*/

/* DSCP of the lower-effort class (RFC 8622), in the upper six bits of its byte. */
#define LOWER_EFFORT (1u << 2)

GW_LANE void gw_token_bucket_packet(const gw_lane *lane, gw_descriptor *descriptor,
                                    gw_outcome *outcome)
{
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    /* The worker has compared the packet with the rate of its source, in the order of arrival. */
    const gw_u32 color = gw_token_bucket_rates_color(lane);
    gw_u32 before;
    gw_u32 after;
    if (descriptor->length < GW_ETHERNET_BYTES) {
        gw_drop(outcome, GW_TOKEN_BUCKET_TRUNCATED);
        return;
    }
    if (gw_load_be16(frame + 12) != GW_ETHER_TYPE_IPV4) {
        gw_verdict(outcome, GW_TOKEN_BUCKET_WITHIN, 0, 0);
        return;
    }
    if (descriptor->length < GW_ETHERNET_BYTES + 20u) {
        gw_drop(outcome, GW_TOKEN_BUCKET_TRUNCATED);
        return;
    }
    if (color == GW_RED) {
        gw_token_bucket_count_exceeded_bytes(lane, descriptor->length);
        gw_drop(outcome, GW_TOKEN_BUCKET_EXCEEDED);
        return;
    }
    if (color != GW_YELLOW) {
        gw_verdict(outcome, GW_TOKEN_BUCKET_WITHIN, 0, 0);
        return;
    }
    /* The lower two bits of the byte are those of ECN. */
    before = gw_load_be16(frame + 14);
    after = (before & 0xff03u) | LOWER_EFFORT;
    gw_store_be16(frame + 24, gw_checksum_change16(gw_load_be16(frame + 24), before, after));
    gw_store_be16(frame + 14, after);
    gw_verdict(outcome, GW_TOKEN_BUCKET_MARKED, 0, 0);
}
