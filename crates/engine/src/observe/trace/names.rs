//! Returns the names of flows, verdicts and drop reasons in a packet trace.

use std::net::IpAddr;

use godwit_wire::{IpAddress, Parsed};

use super::record::Flow;
use crate::observe::counters;
use crate::plan::chain_plan::ChainPlan;

/// Returns the name of a variant, which is one kind of processing in a function's kernel.
pub(super) fn variant_name(plan: &ChainPlan, function: usize, variant: u8) -> String {
    let variants = plan.stages[function].function.contract().variants;
    variants.get(usize::from(variant)).map_or_else(|| variant.to_string(), |name| (*name).to_owned())
}

/// Returns the name of a function's verdict. For an undeclared verdict, returns the name of the
/// last declared one, as in the counters.
pub(super) fn verdict_name(plan: &ChainPlan, function: usize, verdict: u8) -> String {
    let verdicts = plan.stages[function].function.contract().verdicts;
    verdicts.get(usize::from(verdict)).or(verdicts.last()).map_or_else(String::new, |verdict| verdict.name.to_owned())
}

pub(super) fn drop_reason(plan: &ChainPlan, reason: usize) -> (String, &'static str) {
    let engine = counters::WORKER_COUNTERS.get(reason).map(|spec| spec.sentence);
    let function = || {
        let mut all = plan.stages.iter().flat_map(|stage| {
            let drops = stage.function.contract().drops.iter().enumerate();
            drops.map(|(number, drop)| (stage.counters.drop(number as u8), drop.sentence))
        });
        all.find(|(counter, _)| *counter == reason).map(|(_, sentence)| sentence)
    };
    (plan.layout.name(reason).to_owned(), engine.or_else(function).unwrap_or_default())
}

/// Returns the name and description of the counter for frames that ports refused.
pub(super) fn refusal() -> (String, &'static str) {
    let spec = &counters::WORKER_COUNTERS[counters::DROPPED_REFUSED];
    (spec.name.to_owned(), spec.sentence)
}

/// Returns the addresses, the protocol and the ports of a packet. Returns `None` if the packet has
/// no IP header.
pub(super) fn flow(parsed: &Parsed) -> Option<Flow> {
    let five_tuple = parsed.five_tuple.as_ref()?;
    let address = |address| match address {
        IpAddress::V4(bytes) => IpAddr::from(bytes),
        IpAddress::V6(bytes) => IpAddr::from(bytes),
    };
    Some(Flow {
        source: address(five_tuple.source),
        destination: address(five_tuple.destination),
        protocol: five_tuple.protocol,
        source_port: five_tuple.source_port,
        destination_port: five_tuple.destination_port,
    })
}
