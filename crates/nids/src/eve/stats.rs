//! Writes the log record of counters.

use super::Json;
use super::record::timestamp;
use crate::packet::Micros;
use crate::stats::{NAMES, Stats};

/// Appends the record of these counters to `lines`.
pub fn stats_record(stats: &Stats, now: Micros, lines: &mut Vec<u8>) {
    let mut json = Json::object();
    json.string("timestamp", &timestamp(now));
    json.string("event_type", "stats");
    let counters: Vec<(&str, u64)> = NAMES.iter().copied().zip(stats.iter().copied()).collect();
    json.nested("stats", |json| members(&counters, json));
    json.finish(lines);
}

/// Writes counters as JSON. Adjacent counters with the same name prefix form a nested object.
fn members(mut counters: &[(&str, u64)], json: &mut Json) {
    while let Some(&(name, value)) = counters.first() {
        let Some((prefix, _)) = name.split_once('.') else {
            json.number(name, value);
            counters = &counters[1..];
            continue;
        };
        let inner = |name: &&str| -> bool { name.split_once('.').is_some_and(|parts| parts.0 == prefix) };
        let count = counters.iter().take_while(|counter| inner(&counter.0)).count();
        let (group, others) = counters.split_at(count);
        let stripped: Vec<(&str, u64)> =
            group.iter().map(|(name, value)| (&name[prefix.len() + 1..], *value)).collect();
        json.nested(prefix, |json| members(&stripped, json));
        counters = others;
    }
}
