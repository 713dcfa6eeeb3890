//! The way out of a worker: its transmit queues, in its own hands or in those of a sender.

use std::time::Instant;

use godwit_io::{Departure, PortCounters};
use godwit_packet::{Outgoing, Region};

use crate::Error;
use crate::histogram::Histogram;
use crate::ports::NamedTransmit;
use crate::sender::Sender;

/// Packets that are to leave, gathered until they are sent or handed over.
#[derive(Debug)]
pub(crate) struct Departing {
    /// For each port, in order of arrival.
    pub(crate) outs: Vec<Vec<Departure>>,
    /// Times of arrival, and how many packets had each.
    pub(crate) arrivals: Vec<(u64, u64)>,
}

impl Departing {
    pub(crate) fn new(ports: usize) -> Self {
        Self { outs: (0..ports).map(|_| Vec::new()).collect(), arrivals: Vec::new() }
    }

    /// Notes that `packets` of those that are to leave arrived at this time.
    #[inline]
    pub(crate) fn arrived(&mut self, arrival_ns: u64, packets: u64) {
        if packets > 0 {
            self.arrivals.push((arrival_ns, packets));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.outs.iter().all(Vec::is_empty)
    }
}

/// What became of packets that were to leave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) accepted: usize,
    pub(crate) refused: usize,
}

impl Sent {
    pub(crate) fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
    }
}

/// A worker's transmit queues, and how long packets took from arrival to departure.
pub(crate) struct Queues {
    ports: Vec<NamedTransmit>,
    latency: Histogram,
    /// The highest number that ports were told to be settled.
    settled: u64,
    clock: Instant,
}

impl Queues {
    pub(crate) fn new(ports: Vec<NamedTransmit>, clock: Instant) -> Self {
        Self { ports, latency: Histogram::default(), settled: 0, clock }
    }

    /// Sends what is to leave; none is left.
    pub(crate) fn transmit(&mut self, mut buffers: Outgoing<'_>, departing: &mut Departing) -> Result<Sent, Error> {
        let now_ns = self.clock.elapsed().as_nanos() as u64;
        for (arrival_ns, packets) in departing.arrivals.drain(..) {
            self.latency.record(now_ns.saturating_sub(arrival_ns), packets);
        }
        let mut sent = Sent::default();
        for ((port, queue), out) in self.ports.iter_mut().zip(&mut departing.outs) {
            let Some(queue) = queue else { continue };
            let fault = |source| Error::Port { port: port.clone(), source };
            queue.service(&mut buffers).map_err(fault)?;
            if out.is_empty() {
                continue;
            }
            let accepted = queue.transmit(&mut buffers, out).map_err(fault)?;
            sent.add(Sent { accepted, refused: out.len() - accepted });
            out.clear();
        }
        Ok(sent)
    }

    /// What ports have to do where nothing is to leave.
    pub(crate) fn service(&mut self, mut buffers: Outgoing<'_>) -> Result<(), Error> {
        for (port, queue) in &mut self.ports {
            if let Some(queue) = queue {
                queue.service(&mut buffers).map_err(|source| Error::Port { port: port.clone(), source })?;
            }
        }
        Ok(())
    }

    /// Tells the ports that all packets of this worker with a lower sequence number are gone.
    pub(crate) fn settle(&mut self, sequence: u64) -> Result<(), Error> {
        if sequence <= self.settled {
            return Ok(());
        }
        self.settled = sequence;
        for (port, queue) in &mut self.ports {
            if let Some(queue) = queue {
                queue.settled(sequence).map_err(|source| Error::Port { port: port.clone(), source })?;
            }
        }
        Ok(())
    }

    /// What the ports counted, and the latencies.
    pub(crate) fn finish(self) -> (Vec<PortCounters>, Histogram) {
        let counters = |(_, queue): &NamedTransmit| queue.as_ref().map(|queue| queue.counters()).unwrap_or_default();
        (self.ports.iter().map(counters).collect(), self.latency)
    }
}

/// Who sends a worker's packets.
pub(crate) enum Egress {
    /// The worker.
    Own(Queues),
    /// A thread beside it.
    Sender(Sender),
}

impl Egress {
    /// Sends what is to leave, or hands it over; what a sender has no room for stays. All packets of this worker with a sequence number below
    /// `settled` are gone, or among these, or with the sender. Returns what became of packets since the last call.
    pub(crate) fn send(&mut self, region: &mut Region, departing: &mut Departing, settled: u64) -> Result<Sent, Error> {
        match self {
            Self::Own(queues) => {
                let sent = queues.transmit(region.into(), departing)?;
                queues.settle(settled)?;
                Ok(sent)
            }
            Self::Sender(sender) => sender.send(region, departing, settled),
        }
    }

    /// Whether every packet that was handed over is out.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Sender(sender) => sender.is_idle(),
        }
    }

    /// Nothing will ever leave again.
    pub(crate) fn finish(self) -> Result<(Vec<PortCounters>, Histogram), Error> {
        let mut queues = match self {
            Self::Own(queues) => queues,
            Self::Sender(sender) => sender.finish()?,
        };
        queues.settle(u64::MAX)?;
        Ok(queues.finish())
    }
}
