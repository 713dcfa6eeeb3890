//! Restores the arrival order of processed packets, and transmits them through their ports.

use std::sync::Arc;
use std::time::Instant;

use godwit_abi::{Outcome, PORT_FLOOD};
use godwit_io::Departure;
use godwit_io::live::SharedCounters;
use godwit_packet::Descriptor;

use crate::error::Error;
use crate::observe::counters::{DROPPED, DROPPED_PORT, DROPPED_REFUSED, SENT};
use crate::observe::histogram::SharedHistogram;
use crate::path::core::Core;
use crate::path::egress::{Departing, Egress, NamedTransmit, Queues};
use crate::path::flood::Flooder;
use crate::path::order::Flood;
use crate::path::sender::{Sender, SenderConfig};

/// Departing packets and transmit queues of a worker.
pub(crate) struct Exit {
    /// Whether each port can transmit.
    exits: Vec<bool>,
    departing: Departing,
    egress: Egress,
    latency: Arc<SharedHistogram>,
    published: Vec<Arc<SharedCounters>>,
    /// Sequence number below which all packets have departed or were dropped.
    settled: u64,
    settled_at: usize,
    /// Whether packets that leave through several ports wait for buffers for their copies. They
    /// wait if no port is live, because files and generators can wait.
    waits: bool,
}

impl Exit {
    /// Creates the output stage of a worker. `queues` contains the transmit queue of each port.
    /// `waits` states whether packets for several ports wait for free buffers.
    pub(crate) fn new(queues: Vec<NamedTransmit>, waits: bool, clock: Instant) -> Self {
        let exits = queues.iter().map(|(_, queue)| queue.is_some()).collect();
        let departing = Departing::new(queues.len());
        let queues = Queues::new(queues, clock);
        Self {
            exits,
            departing,
            latency: queues.latency(),
            published: queues.published(),
            egress: Egress::Own(queues),
            settled: 0,
            settled_at: 0,
            waits,
        }
    }

    /// Starts the sender thread, which then transmits the packets of this worker.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start_sender(&mut self, core: &Core, config: SenderConfig) -> Result<(), Error> {
        if let Egress::Own(queues) = &mut self.egress {
            let sender = Sender::start(config, self.exits.len(), queues.take(), core.region.borrower())?;
            self.egress = Egress::Sender(sender);
        }
        Ok(())
    }

    /// Sends packets through `port` in arrival order. Packets are dropped if the port cannot
    /// transmit.
    #[inline]
    pub(crate) fn send(&mut self, core: &mut Core, packets: &[Descriptor], port: u16) {
        match self.exits.get(usize::from(port)) {
            Some(true) if core.plan.ordered[usize::from(port)] => {
                let Departing { outs, arrivals } = &mut self.departing;
                let arrived = |arrival_ns, packets| arrivals.push((arrival_ns, packets));
                if !core.order.pass_exit(packets, &mut outs[usize::from(port)], arrived) {
                    core.order.wait_exit(packets, port as u8);
                }
            }
            Some(true) => packets.iter().for_each(|packet| self.send_at_once(core, packet, usize::from(port))),
            _ => packets.iter().for_each(|packet| core.drop_packet(packet, DROPPED_PORT)),
        }
    }

    /// Sends packets to the egress ports that `function` chose. The outcome of each packet contains
    /// its port number.
    #[inline]
    pub(crate) fn send_chosen(
        &mut self,
        core: &mut Core,
        function: usize,
        packets: &[Descriptor],
        outcomes: &[Outcome],
    ) {
        let Some(&Outcome { port, .. }) = outcomes.first() else { return };
        let differences = outcomes.iter().fold(0, |differences, outcome| differences | (outcome.port ^ port));
        if differences == 0 && port != PORT_FLOOD {
            self.send(core, packets, port);
            return;
        }
        for (packet, &Outcome { port, value: set, .. }) in packets.iter().zip(outcomes) {
            match port {
                PORT_FLOOD => core.order.wait_flood(packet, Flood { function, set }),
                port => self.send(core, std::slice::from_ref(packet), port),
            }
        }
    }

    fn send_at_once(&mut self, core: &mut Core, packet: &Descriptor, port: usize) {
        let (stamp, arrival_ns) = core.order.stamp_and_arrival(packet);
        core.order.leave(packet);
        self.departing.outs[port].push(Departure { descriptor: *packet, stamp });
        self.departing.arrived(arrival_ns, 1);
    }

    /// Lets packets no longer wait for buffers.
    pub(crate) fn stop_waiting(&mut self) {
        self.waits = false;
    }

    /// Transmits the packets that are next in arrival order. Returns the number of packets sent or
    /// refused.
    ///
    /// `sequence_next` returns a lower bound for the sequence numbers of all later packets.
    /// `has_one_source` states that all packets of the worker come from one source.
    pub(crate) fn depart(
        &mut self,
        core: &mut Core,
        sequence_next: impl Fn() -> u64,
        has_one_source: bool,
    ) -> Result<usize, Error> {
        let mut total = 0;
        loop {
            let (moved, waits) = self.depart_once(core, &sequence_next, has_one_source)?;
            total += moved;
            // Sent packets have freed their buffers, so a waiting packet may now continue.
            if !waits || moved == 0 {
                return Ok(total);
            }
        }
    }

    /// Transmits the packets that are next in arrival order. Returns the number of packets sent or
    /// refused, and whether the next packet waits for buffers.
    fn depart_once(
        &mut self,
        core: &mut Core,
        sequence_next: &impl Fn() -> u64,
        has_one_source: bool,
    ) -> Result<(usize, bool), Error> {
        let waits = self.waits;
        let Departing { outs, arrivals } = &mut self.departing;
        let Core { plan, region, order, counts, observer, .. } = core;
        let mut flooder = Flooder { plan, region, exits: &self.exits, counts, observer, waits };
        let waits = order.open_exit(outs, |arrival_ns, packets| arrivals.push((arrival_ns, packets)), &mut flooder);
        // A capture file merges the packets of all workers by the number `settled`. Dropped packets
        // also advance this number. Otherwise, the file would wait for a worker that drops all
        // packets.
        let passed = core.order.passed();
        if passed != self.settled_at || core.order.in_flight() == 0 {
            self.settled_at = passed;
            self.settled = sequence_next().min(core.order.sequence_min(!has_one_source));
        }
        core.observer.departing(&core.region, &self.departing.outs);
        let sent = self.egress.send(&mut core.region, &mut self.departing, self.settled)?;
        if core.observer.has_departing() && self.departing.is_empty() {
            let to_sender = matches!(self.egress, Egress::Sender(_));
            core.observer.departed(to_sender, sent.accepted, sent.refused);
        }
        core.counts.add(SENT, sent.accepted as u64);
        core.counts.add(DROPPED, sent.refused as u64);
        core.counts.add(DROPPED_REFUSED, sent.refused as u64);
        Ok((sent.accepted + sent.refused, waits))
    }

    /// Returns whether all packets that were ready to leave were given to the ports.
    pub(crate) fn is_idle(&self) -> bool {
        self.departing.is_empty() && self.egress.is_idle()
    }

    /// Returns the shared histogram of the time from arrival to departure. The worker continues to
    /// update it.
    pub(crate) fn latency(&self) -> Arc<SharedHistogram> {
        Arc::clone(&self.latency)
    }

    /// Returns the copies of the queue counters that other threads read.
    pub(crate) fn published(&self) -> Vec<Arc<SharedCounters>> {
        self.published.clone()
    }

    /// Transmits the remaining packets, and publishes the final counters of the ports.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.egress.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::testing::{FIRST, Surroundings, TWO_FUNCTIONS};

    const LEFT: u16 = 0;
    const RIGHT: u16 = 1;

    /// Creates an exit, and one burst of packets.
    fn exit() -> (Core, Exit, Vec<Descriptor>) {
        let mut surroundings = Surroundings::new(TWO_FUNCTIONS);
        let packets = surroundings.arrive();
        let exit = Exit::new(surroundings.transmitters(), false, Instant::now());
        (surroundings.core, exit, packets)
    }

    #[test]
    fn packets_leave_in_arrival_order_by_the_chosen_ports() {
        let (mut core, mut exit, packets) = exit();
        let core = &mut core;
        exit.send(core, &packets[32..], LEFT);
        assert_eq!(exit.depart(core, || 64, true).unwrap(), 0, "earlier packets are missing");
        let outcomes: Vec<Outcome> = (0..32).map(|packet| Outcome { port: packet % 2, ..Outcome::default() }).collect();
        exit.send_chosen(core, FIRST, &packets[..32], &outcomes);
        let Core { order, .. } = core;
        order.open_exit(&mut exit.departing.outs, |_, _| {}, &mut ());
        let sequences = |port: u16| {
            exit.departing.outs[usize::from(port)].iter().map(|departure| departure.stamp.sequence).collect::<Vec<_>>()
        };
        assert_eq!(sequences(LEFT), (0..32).step_by(2).chain(32..64).collect::<Vec<_>>());
        assert_eq!(sequences(RIGHT), (1..32).step_by(2).collect::<Vec<_>>());
        assert_eq!(exit.depart(core, || 64, true).unwrap(), 64);
        assert!(exit.is_idle() && core.region.allocated() == 0);
        assert_eq!((core.counts.value(SENT), exit.settled), (64, 64));
    }

    #[test]
    fn packets_to_a_missing_port_are_dropped() {
        let (mut core, mut exit, packets) = exit();
        exit.send(&mut core, &packets, 9);
        assert_eq!(core.counts.value(DROPPED_PORT), 64);
        assert_eq!(exit.depart(&mut core, || 64, true).unwrap(), 0);
        assert_eq!((core.region.allocated(), core.order.in_flight()), (0, 0));
    }
}
