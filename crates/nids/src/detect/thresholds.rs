//! Limits rule alerts with counters, and stores the named bits of hosts. Both tables have a bounded
//! number of entries.

use super::compile::BitOp;
use super::input::Input;
use crate::packet::Micros;
use crate::rules::state::{BitAction, Scope, Threshold, ThresholdKind, Track};
use std::collections::HashMap;
use std::net::IpAddr;

/// Maximum number of counters, and maximum number of bits.
const ENTRIES_MAX: usize = 1 << 18;

/// Rule options `gid` and `sid`, which identify a rule across reloads.
pub(super) type RuleKey = (u32, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CounterKey {
    rule: RuleKey,
    first: Option<IpAddr>,
    second: Option<IpAddr>,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    since: Micros,
    count: u32,
    next: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BitKey {
    name: u32,
    first: IpAddr,
    second: Option<IpAddr>,
}

/// Counters and bits.
#[derive(Debug, Default)]
pub(super) struct Thresholds {
    counters: HashMap<CounterKey, Counter>,
    bits: HashMap<BitKey, Micros>,
    /// Number of entries that were not stored because a table was full.
    pub refused: u64,
}

impl Thresholds {
    /// Counts a rule match, and returns whether the rule's threshold permits an alert.
    pub(super) fn pass(&mut self, rule: RuleKey, threshold: &Threshold, input: &mut Input<'_, '_>) -> bool {
        let now = input.packet.time;
        if threshold.track == Track::Flow {
            return pass_flow(rule, threshold, input);
        }
        let (source, destination) = (input.packet.source, input.packet.destination);
        let (first, second) = match threshold.track {
            Track::Source => (Some(source), None),
            Track::Destination => (Some(destination), None),
            Track::Both => (Some(source.min(destination)), Some(source.max(destination))),
            Track::Rule | Track::Flow => (None, None),
        };
        let key = CounterKey { rule, first, second };
        if self.counters.len() >= ENTRIES_MAX && !self.counters.contains_key(&key) {
            let limit = u64::from(threshold.seconds.max(60)) * 1_000_000;
            self.counters.retain(|_, counter| counter.since + limit > now);
            if self.counters.len() >= ENTRIES_MAX {
                self.refused += 1;
                return true;
            }
        }
        let fresh = Counter { since: now, count: 0, next: threshold.count };
        let counter = self.counters.entry(key).or_insert(fresh);
        count(threshold, counter, now)
    }

    /// Returns whether at least one of the named bits is set.
    pub(super) fn has_bit(&self, op: &BitOp, source: IpAddr, destination: IpAddr, now: Micros) -> bool {
        op.names
            .iter()
            .any(|name| self.bits.get(&bit_key(*name, op.scope, source, destination)).is_some_and(|until| *until > now))
    }

    /// Sets, clears or inverts named bits.
    pub(super) fn change_bits(&mut self, op: &BitOp, source: IpAddr, destination: IpAddr, now: Micros) {
        for name in &op.names {
            let key = bit_key(*name, op.scope, source, destination);
            let set = match op.action {
                BitAction::Set => true,
                BitAction::Toggle => self.bits.get(&key).is_none_or(|until| *until <= now),
                _ => false,
            };
            if !set {
                self.bits.remove(&key);
                continue;
            }
            if self.bits.len() >= ENTRIES_MAX {
                self.bits.retain(|_, until| *until > now);
                if self.bits.len() >= ENTRIES_MAX {
                    self.refused += 1;
                    continue;
                }
            }
            self.bits.insert(key, now + op.expire_micros.unwrap_or(30_000_000));
        }
    }
}

fn bit_key(name: u32, scope: Scope, source: IpAddr, destination: IpAddr) -> BitKey {
    match scope {
        Scope::Destination => BitKey { name, first: destination, second: None },
        Scope::Pair => BitKey { name, first: source.min(destination), second: Some(source.max(destination)) },
        _ => BitKey { name, first: source, second: None },
    }
}

/// Counts a match of a rule whose counter belongs to the flow.
fn pass_flow(rule: RuleKey, threshold: &Threshold, input: &mut Input<'_, '_>) -> bool {
    let Some(flow) = input.flow.as_deref_mut() else { return true };
    let at = match flow.thresholds.iter().position(|entry| entry.0 == rule) {
        Some(at) => at,
        None => {
            flow.thresholds.push((rule, 0));
            flow.thresholds.len() - 1
        }
    };
    let count = &mut flow.thresholds[at].1;
    *count += 1;
    match threshold.kind {
        ThresholdKind::Limit => *count <= threshold.count,
        ThresholdKind::Threshold => count.is_multiple_of(threshold.count),
        ThresholdKind::Both => *count == threshold.count,
        ThresholdKind::Filter => *count > threshold.count,
        ThresholdKind::Backoff => {
            let mut step = threshold.count;
            while step < *count && threshold.multiplier > 1 {
                step = step.saturating_mul(threshold.multiplier);
            }
            step == *count
        }
    }
}

fn count(threshold: &Threshold, counter: &mut Counter, now: Micros) -> bool {
    let expired = now >= counter.since + u64::from(threshold.seconds) * 1_000_000;
    if expired && threshold.kind != ThresholdKind::Backoff && counter.count > 0 {
        counter.since = now;
        counter.count = 0;
    }
    counter.count += 1;
    match threshold.kind {
        ThresholdKind::Limit => counter.count <= threshold.count,
        ThresholdKind::Threshold => {
            let full = counter.count >= threshold.count;
            if full {
                counter.count = 0;
                counter.since = now;
            }
            full
        }
        ThresholdKind::Both => counter.count == threshold.count,
        ThresholdKind::Filter => counter.count > threshold.count,
        ThresholdKind::Backoff => {
            let due = counter.count == counter.next;
            if due {
                counter.next = counter.next.saturating_mul(threshold.multiplier);
            }
            due
        }
    }
}
