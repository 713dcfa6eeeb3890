//! Determines the stations whose frames a port accepts.
//!
//! A router accepts only frames that are sent to itself (RFC 1812, section 5.3.4). Otherwise, its
//! ports would forward traffic between other stations of a link, and two such routers would
//! multiply it. A switch, an inspector and a port with `promiscuous = true` accept every frame.
//!
//! Frames of live ports are checked, because other machines address them. Captured and generated
//! frames are not checked, because they were made for another purpose.

use std::sync::Arc;

use godwit_chain::{Decider, Next};
use godwit_function::Function;
use godwit_wire::MacAddress;

use crate::config::{Config, PortKind};

/// Kind of the function that forwards frames between other stations.
const SWITCH: &str = "l2";

/// Frames and packets that a port of a router accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortStations {
    /// Whether the port also accepts frames to other stations.
    pub(crate) is_promiscuous: bool,
    /// MAC addresses of the router on this port, except the interface's own address.
    pub(crate) own: Vec<MacAddress>,
}

/// Returns which frames each port accepts. An entry is `None` if the port is not live, or if its
/// packets reach no router.
pub(crate) fn port_stations(config: &Config, decider: &Decider) -> Vec<Option<PortStations>> {
    let functions: Vec<&Arc<dyn Function>> = config.functions.iter().map(|entry| &entry.function).collect();
    let of_port = |(index, port): (usize, &crate::config::PortConfig)| {
        let PortKind::Live(_, live) = &port.kind else { return None };
        let reached = reached_from(decider, index as u8, &functions);
        let router =
            reached.iter().any(|&function| functions[function].station().is_some_and(|part| part.routing().is_some()));
        let switch = reached.iter().any(|&function| functions[function].contract().kind == SWITCH);
        let is_promiscuous = live.promiscuous().unwrap_or(switch);
        let addresses = functions.iter().filter_map(|function| Some(function.station()?.own_addresses()));
        let own = addresses.flat_map(|addresses| addresses.stations(index as u16)).collect();
        router.then_some(PortStations { is_promiscuous, own })
    };
    config.ports.iter().enumerate().map(of_port).collect()
}

/// Returns the functions that packets from a port can reach.
fn reached_from(decider: &Decider, port: u8, functions: &[&Arc<dyn Function>]) -> Vec<usize> {
    let classes = 0..decider.classes() as u8;
    let mut reached = Vec::new();
    let mut next: Vec<Next> = classes.clone().map(|class| decider.entry(port, class)).collect();
    while let Some(stage) = next.pop() {
        let Next::Function(function) = stage else { continue };
        if reached.contains(&usize::from(function)) {
            continue;
        }
        reached.push(usize::from(function));
        let verdicts = functions[usize::from(function)].contract().verdicts.len() as u8;
        for class in classes.clone() {
            next.extend((0..verdicts).map(|verdict| decider.next(function, class, verdict)));
        }
    }
    reached
}
