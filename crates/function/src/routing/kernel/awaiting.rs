//! Reports neighbour addresses from the kernel to responders that hold packets for them.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_wire::MacAddress;

use super::netlink::Event;
use crate::Function;
use crate::neighbours::{Neighbours, SETTLE_NS, Station, Target};

/// Time between the report of an address and its first use by routes. The packets that wait for the
/// address leave first.
const SETTLE_TIME: Duration = Duration::from_nanos(SETTLE_NS);

/// Responders that hold packets of one function, and the addresses that they have just received.
#[derive(Debug, Default)]
pub(super) struct Awaiting {
    /// Number of the function.
    function: usize,
    responders: Vec<Arc<Neighbours>>,
    /// New neighbour addresses that routes do not use yet, each with its report time. No neighbour
    /// occurs twice.
    settling: VecDeque<(Instant, Event)>,
}

impl Awaiting {
    /// Finds the responders among `functions` for the function with number `own`.
    pub(super) fn new(functions: &[Arc<dyn Function>], own: usize) -> Self {
        let responders = functions.iter().filter_map(|function| function.station()?.neighbours()).cloned().collect();
        Self::of_responders(own, responders)
    }

    /// Creates the list from the neighbour tables of the responders.
    pub(super) fn of_responders(own: usize, responders: Vec<Arc<Neighbours>>) -> Self {
        Self { function: own, responders, settling: VecDeque::new() }
    }

    /// Registers a next hop of the function with the responders. `None` removes it.
    pub(super) fn register(&self, next_hop: u32, target: Option<Target>) {
        for responder in &self.responders {
            // A responder without an interface on the port cannot forward held packets.
            let target = target.filter(|target| responder.source(target.port).is_some());
            responder.kernel().register(self.function, next_hop, target);
        }
    }

    /// Reports the known addresses for which packets have begun to wait.
    pub(super) fn report_known(&self, address_of: impl Fn(Station) -> Option<MacAddress>) {
        for responder in &self.responders {
            for station in responder.kernel().take_new(self.function) {
                if let Some(address) = address_of(station) {
                    responder.kernel().learn(station, Some(address));
                }
            }
        }
    }

    /// Reports a neighbour's address on `port`. Returns whether packets wait for it.
    pub(super) fn report(&self, port: u16, neighbour: IpAddr, address: Option<MacAddress>) -> bool {
        let report = |responder: &Arc<Neighbours>| responder.kernel().learn((port, neighbour), address);
        // All responders receive the address.
        self.responders.iter().filter(|responder| report(responder)).count() > 0
    }

    /// Delays a new address until the packets that waited for it have left.
    pub(super) fn settle(&mut self, event: Event) {
        self.settling.push_back((Instant::now(), event));
    }

    /// Discards a delayed address that a later event replaces.
    pub(super) fn replace(&mut self, neighbour: (u32, IpAddr)) {
        self.settling.retain(|(_, event)| {
            !matches!(event, Event::Neighbour { interface, address, .. } if (*interface, *address) == neighbour)
        });
    }

    /// Discards all delayed addresses before the complete state is read again.
    pub(super) fn clear(&mut self) {
        self.settling.clear();
    }

    /// Returns an address that routes may use now.
    pub(super) fn settled(&mut self) -> Option<Event> {
        let (since, _) = self.settling.front()?;
        if since.elapsed() < SETTLE_TIME {
            return None;
        }
        self.settling.pop_front().map(|(_, event)| event)
    }
}
