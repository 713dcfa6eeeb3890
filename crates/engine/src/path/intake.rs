//! Receives packets from the ports, and records their arrival order.

use std::sync::Arc;

use godwit_io::live::SharedCounters;
use godwit_io::{Receive, Received};
use godwit_packet::Batch;
use nix::poll::{PollFd, PollFlags, poll};

use crate::error::Error;
use crate::observe::counters::RECEIVED;
use crate::path::core::Core;
use crate::path::exchange::Exchange;
use crate::path::guard::Guard;
use crate::path::publisher::Publisher;

/// Maximum sleep of an idle worker, in milliseconds. Only packets wake the worker, so it polls for
/// other events at this interval.
const SLEEP_MS: u8 = 1;

/// Name of a port, with its receive queue.
pub(crate) type NamedReceive = (String, Box<dyn Receive>);

/// Receive queues of a worker.
pub(crate) struct Intake {
    receivers: Vec<Receiver>,
    guard: Guard,
    /// Rings to and from other workers, or `None` if every packet arrives at its worker. They are
    /// the last source.
    exchange: Option<Exchange>,
    publisher: Publisher,
    batch: Batch,
    burst_packets: usize,
    /// Latest timestamp of all received packets, in nanoseconds. It is the clock of functions in a
    /// replay. It is `None` in a live run, which uses the machine's clock.
    packet_clock_ns: Option<u64>,
}

struct Receiver {
    port: String,
    queue: Box<dyn Receive>,
    ended: bool,
}

impl Receiver {
    /// Returns whether the queue delivers no more packets. After a stop, a live port still delivers
    /// the packets in its queue.
    fn has_no_more(&self, stopping: bool) -> bool {
        self.ended || (stopping && !self.queue.is_live())
    }
}

impl Intake {
    /// Creates the input stage of a worker from one receive queue per source. If `has_packet_clock`
    /// is set, functions use the timestamps of packets as their clock.
    pub(crate) fn new(
        queues: Vec<NamedReceive>,
        guard: Guard,
        exchange: Option<Exchange>,
        burst_packets: usize,
        has_packet_clock: bool,
    ) -> Self {
        Self {
            guard,
            exchange,
            publisher: Publisher::new(queues.len()),
            receivers: queues.into_iter().map(|(port, queue)| Receiver { port, queue, ended: false }).collect(),
            batch: Batch::with_capacity(burst_packets),
            burst_packets,
            packet_clock_ns: has_packet_clock.then_some(0),
        }
    }

    /// Returns the number of sources.
    pub(crate) fn sources(&self) -> usize {
        self.receivers.len() + usize::from(self.exchange.is_some())
    }

    /// Receives one burst of packets from a source, and records their arrival order. [`Guard`]
    /// drops packets that a router must not accept. The result is empty if the source has ended or
    /// too many packets are in flight.
    ///
    /// # Errors
    /// Returns an error if the port failed.
    pub(crate) fn receive(
        &mut self,
        core: &mut Core,
        source: usize,
        now_ns: u64,
        stopping: bool,
    ) -> Result<&Batch, Error> {
        if source == self.receivers.len() {
            return Ok(self.receive_from_workers(core, stopping));
        }
        let Self { receivers, guard, exchange, batch, burst_packets, packet_clock_ns, .. } = self;
        batch.clear();
        let mut room = core.order.room().min(*burst_packets).min(core.region.free_for_arrivals());
        let receiver = &mut receivers[source];
        let mut exchange = exchange.as_mut().filter(|_| !receiver.queue.is_steered());
        if let Some(exchange) = &exchange
            && !receiver.queue.is_live()
        {
            // Files and generators can wait until the other workers have taken their packets.
            room = room.min(exchange.room());
        }
        if receiver.has_no_more(stopping) || room == 0 {
            return Ok(batch);
        }
        let result = receiver.queue.receive(&mut core.region, batch, room);
        let result = result.map_err(|source| Error::Port { port: receiver.port.clone(), source })?;
        receiver.ended = result == Received::Ended;
        if let (Some(latest_ns), Some(stamp)) = (packet_clock_ns, batch.stamps.last()) {
            *latest_ns = stamp.time_ns.max(*latest_ns);
        }
        core.counts.add(RECEIVED, batch.len() as u64);
        if let (Some(interface), Some(first)) = (receiver.queue.station(), batch.descriptors.first())
            && let Some(port) = &core.plan.stations[usize::from(first.port)]
        {
            guard.check(port, interface, &mut core.region, &mut core.counts, batch);
        }
        if let Some(exchange) = &mut exchange {
            exchange.pass(&mut core.region, &mut core.counts, batch, now_ns);
        }
        core.order.arrive(&mut batch.descriptors, &batch.stamps, now_ns);
        Ok(batch)
    }

    /// Passes the packets of other workers to them, and receives packets from them.
    fn receive_from_workers(&mut self, core: &mut Core, stopping: bool) -> &Batch {
        let (has_no_more, sequence_next) = (self.queues_have_no_more(stopping), self.queues_sequence_next());
        let Self { exchange, batch, burst_packets, .. } = self;
        batch.clear();
        if let Some(exchange) = exchange {
            exchange.publish(&mut core.region, &mut core.counts, sequence_next, has_no_more);
            let room = core.order.room().min(core.region.free_for_arrivals());
            exchange.take(core, batch, room.min(*burst_packets));
        }
        batch
    }

    /// Returns the current time for functions, in nanoseconds. It is the latest timestamp of all
    /// packets in a replay, and `now_ns` in a live run.
    pub(crate) fn packets_ns(&self, now_ns: u64) -> u64 {
        self.packet_clock_ns.unwrap_or(now_ns)
    }

    /// Returns whether functions use the timestamps of packets as their clock.
    pub(crate) fn has_packet_clock(&self) -> bool {
        self.packet_clock_ns.is_some()
    }

    /// Returns whether no packet can arrive any more.
    pub(crate) fn has_no_more(&self, stopping: bool) -> bool {
        self.queues_have_no_more(stopping) && self.exchange.as_ref().is_none_or(Exchange::has_ended)
    }

    fn queues_have_no_more(&self, stopping: bool) -> bool {
        self.receivers.iter().all(|receiver| receiver.has_no_more(stopping))
    }

    /// Returns whether the other workers have taken all packets that this worker has passed to
    /// them.
    pub(crate) fn is_settled(&self) -> bool {
        self.exchange.as_ref().is_none_or(Exchange::is_settled)
    }

    /// Returns whether all sources have ended by themselves.
    pub(crate) fn has_ended(&self) -> bool {
        self.receivers.iter().all(|receiver| receiver.ended)
    }

    /// Returns a lower bound for the sequence numbers of all later packets.
    pub(crate) fn sequence_next(&self) -> u64 {
        let from_workers = self.exchange.as_ref().map_or(u64::MAX, Exchange::sequence_next);
        self.queues_sequence_next().min(from_workers)
    }

    fn queues_sequence_next(&self) -> u64 {
        self.receivers.iter().map(|receiver| receiver.queue.sequence_next()).min().unwrap_or(u64::MAX)
    }

    /// Sleeps until a port or another worker has packets or [`SLEEP_MS`] has passed. If a port
    /// cannot wake the worker, only yields the core to other threads.
    pub(crate) fn sleep(&self) {
        let open = self.receivers.iter().filter(|receiver| !receiver.ended);
        let wakes = open.map(|receiver| Some(PollFd::new(receiver.queue.wakes()?, PollFlags::POLLIN)));
        let Some(mut wakes) = wakes.collect::<Option<Vec<_>>>() else { return std::thread::yield_now() };
        if let Some(exchange) = &self.exchange {
            let Some(event) = exchange.begin_sleep() else { return };
            wakes.push(PollFd::new(event, PollFlags::POLLIN));
        }
        // The next receive call reports any error of the port.
        let _ = poll(&mut wakes, SLEEP_MS);
        if let Some(exchange) = &self.exchange {
            exchange.end_sleep();
        }
    }

    /// Returns the copies of the queue counters that other threads read.
    pub(crate) fn published(&self) -> Vec<Arc<SharedCounters>> {
        self.publisher.shared()
    }

    /// Publishes the counters of the queues if the time has come.
    #[inline]
    pub(crate) fn publish_at(&mut self, now_ns: u64) {
        if self.publisher.is_due(now_ns) {
            self.publish();
        }
    }

    /// Publishes the counters of the queues.
    pub(crate) fn publish(&self) {
        self.publisher.publish(self.receivers.iter().map(|receiver| Some(receiver.queue.counters())));
    }
}

#[cfg(test)]
mod tests {
    use godwit_packet::Descriptor;

    use super::*;
    use crate::path::testing::{Surroundings, TWO_FUNCTIONS};

    /// Creates an intake with the receive queues of a configuration.
    fn intake(configuration: &str, has_packet_clock: bool) -> (Core, Intake) {
        let mut surroundings = Surroundings::new(configuration);
        let guard = Guard::new(surroundings.core.plan.stages.iter().map(|stage| &stage.function));
        let intake = Intake::new(surroundings.receivers(), guard, None, 64, has_packet_clock);
        (surroundings.core, intake)
    }

    fn receive(intake: &mut Intake, core: &mut Core) -> Vec<Descriptor> {
        intake.receive(core, 0, 0, false).unwrap().descriptors.clone()
    }

    #[test]
    fn packets_get_consecutive_slots_until_the_source_ends() {
        let (mut core, mut intake) = intake(TWO_FUNCTIONS, false);
        let packets = receive(&mut intake, &mut core);
        assert_eq!(packets.len(), 64);
        assert!((0..).zip(&packets).all(|(order, packet)| packet.order == order && packet.port == 0));
        assert_eq!((core.order.in_flight(), core.counts.value(RECEIVED)), (64, 64));
        assert!(receive(&mut intake, &mut core).is_empty() && intake.has_ended());
        assert_eq!(intake.sequence_next(), u64::MAX);
        intake.publish();
        assert_eq!(intake.published()[0].read().received_packets, 64);
    }

    #[test]
    fn nothing_is_received_while_the_order_ring_is_full_or_after_a_stop() {
        let (mut core, mut intake) = intake(&TWO_FUNCTIONS.replace(" packets = 64", " packets = 4096"), false);
        while !receive(&mut intake, &mut core).is_empty() {}
        assert_eq!((core.order.room(), core.order.in_flight()), (0, 1024));
        assert!(!intake.has_no_more(false) && intake.has_no_more(true));
    }

    #[test]
    fn replay_uses_the_time_of_its_packets() {
        assert_eq!(intake(TWO_FUNCTIONS, false).1.packets_ns(7), 7);
        let (mut core, mut intake) = intake(TWO_FUNCTIONS, true);
        receive(&mut intake, &mut core);
        let latest_ns = intake.batch.stamps.iter().map(|stamp| stamp.time_ns).max();
        assert_eq!(Some(intake.packets_ns(7)), latest_ns);
    }
}
