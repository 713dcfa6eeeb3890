//! All counters of an inspector, in one array.

use super::core::Core;
use crate::packet::FragmentCounters;
use crate::stats::*;

/// Collects the counters.
pub(super) fn collect(core: &Core, fragments: FragmentCounters) -> Stats {
    let (counters, detection, flows) = (&core.counters, core.detector.counters(), core.flows.counters());
    let mut stats = [0; NAMES.len()];
    stats[PACKETS] = counters.frames;
    stats[BYTES] = counters.bytes;
    stats[DECODED] = counters.packets;
    stats[WITHOUT_FLOW] = counters.without_flow;
    stats[FRAGMENTS] = fragments.fragments;
    stats[REASSEMBLED] = fragments.completed;
    stats[FRAGMENTS_EVICTED] = fragments.evicted;
    stats[FRAGMENTS_EXPIRED] = fragments.expired;
    stats[FRAGMENT_OVERLAPS] = fragments.overlaps;
    stats[FLOWS] = flows.created;
    stats[FLOWS_EXPIRED] = flows.expired;
    stats[EVICTED_NEW] = flows.evicted_new;
    stats[EVICTED_ESTABLISHED] = flows.evicted_established;
    stats[GAPS] = counters.gaps;
    stats[OVERLAPS] = counters.overlaps;
    stats[CHECKSUM] = counters.checksum;
    stats[INVALID] = counters.invalid;
    stats[MEMCAP] = counters.refused;
    stats[MEMORY] = core.stream_memory_bytes;
    stats[ALERTS] = detection.alerts;
    stats[ALERT_OVERFLOW] = detection.overflow;
    stats[SUPPRESSED] = detection.suppressed;
    stats[PCRE_LIMITS] = core.detector.pcre_limits();
    stats[ACCEPTED] = counters.frames - counters.blocked;
    stats[BLOCKED] = counters.blocked;
    stats[DROPPED_RULES] = counters.dropped_rules;
    stats[DROPPED_FLOW] = counters.dropped_flow;
    stats[DROPPED_INVALID] = counters.dropped_invalid;
    stats[DROPPED_MEMCAP] = counters.dropped_memory;
    stats
}
