//! The record of counters.

use super::Json;
use super::record::timestamp;
use crate::inspector::Inspector;
use crate::packet::Micros;

/// Writes the record of counters.
pub(crate) fn stats(inspector: &Inspector, now: Micros, lines: &mut Vec<u8>) {
    let counters = inspector.counters();
    let detection = inspector.detector().counters();
    let flows = inspector.flow_counters();
    let fragments = inspector.fragment_counters();
    let mut json = Json::object();
    json.string("timestamp", &timestamp(now));
    json.string("event_type", "stats");
    json.nested("stats", |json| {
        json.nested("decoder", |json| {
            json.number("pkts", counters.frames);
            json.number("bytes", counters.bytes);
            json.number("packets_decoded", counters.packets);
            json.number("without_flow", counters.without_flow);
        });
        json.nested("defrag", |json| {
            json.number("fragments", fragments.fragments);
            json.number("reassembled", fragments.completed);
            json.number("evicted", fragments.evicted);
            json.number("timeouts", fragments.expired);
            json.number("overlaps", fragments.overlaps);
        });
        json.nested("flow", |json| {
            json.number("total", flows.created);
            json.number("expired", flows.expired);
            json.number("evicted_new", flows.evicted_new);
            json.number("evicted_established", flows.evicted_established);
        });
        json.nested("tcp", |json| {
            json.number("reassembly_gap", counters.gaps);
            json.number("overlap_diff_data", counters.overlaps);
            json.number("invalid_checksum", counters.checksum);
            json.number("invalid", counters.invalid);
        });
        json.nested("detect", |json| {
            json.number("alert", detection.alerts);
            json.number("alert_queue_overflow", detection.overflow);
            json.number("alerts_suppressed", detection.suppressed);
        });
        json.nested("ips", |json| {
            json.number("accepted", counters.frames - counters.blocked);
            json.number("blocked", counters.blocked);
            json.nested("drop_reason", |json| {
                json.number("rules", counters.dropped_rules);
                json.number("flow_drop", counters.dropped_flow);
                json.number("stream_error", counters.dropped_invalid);
            });
        });
    });
    json.finish(lines);
}
