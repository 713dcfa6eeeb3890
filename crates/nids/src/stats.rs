//! Counters of an inspector, named as in Suricata's `stats` record. A dot in a name separates
//! nested JSON objects.

macro_rules! counters {
    ($($name:ident = $path:literal;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Index { $($name),* }

        $(#[doc = concat!("Index of `", $path, "`.")]
        pub(crate) const $name: usize = Index::$name as usize;)*

        /// Names of the counters, in the order of [`Stats`].
        pub const NAMES: &[&str] = &[$($path),*];
    };
}

counters! {
    PACKETS = "decoder.pkts";
    BYTES = "decoder.bytes";
    DECODED = "decoder.packets_decoded";
    WITHOUT_FLOW = "decoder.without_flow";
    FRAGMENTS = "defrag.fragments";
    REASSEMBLED = "defrag.reassembled";
    FRAGMENTS_EVICTED = "defrag.evicted";
    FRAGMENTS_EXPIRED = "defrag.timeouts";
    FRAGMENT_OVERLAPS = "defrag.overlaps";
    FLOWS = "flow.total";
    FLOWS_EXPIRED = "flow.expired";
    EVICTED_NEW = "flow.evicted_new";
    EVICTED_ESTABLISHED = "flow.evicted_established";
    GAPS = "tcp.reassembly_gap";
    OVERLAPS = "tcp.overlap_diff_data";
    CHECKSUM = "tcp.invalid_checksum";
    INVALID = "tcp.invalid";
    MEMCAP = "tcp.segment_memcap_drop";
    MEMORY = "tcp.reassembly_memuse";
    ALERTS = "detect.alert";
    ALERT_OVERFLOW = "detect.alert_queue_overflow";
    SUPPRESSED = "detect.alerts_suppressed";
    PCRE_LIMITS = "detect.pcre_match_limit";
    ACCEPTED = "ips.accepted";
    BLOCKED = "ips.blocked";
    DROPPED_RULES = "ips.drop_reason.rules";
    DROPPED_FLOW = "ips.drop_reason.flow_drop";
    DROPPED_INVALID = "ips.drop_reason.stream_error";
    DROPPED_MEMCAP = "ips.drop_reason.stream_memcap";
}

/// Values of all counters, in the order of [`NAMES`]. The counters of several inspectors can be
/// added.
pub type Stats = [u64; NAMES.len()];

/// Returns the value of the counter with this name, or `None` if there is no such counter.
pub fn value(stats: &Stats, name: &str) -> Option<u64> {
    NAMES.iter().position(|known| *known == name).map(|index| stats[index])
}
