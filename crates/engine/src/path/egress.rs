//! Transmits packets. The transmit queues belong to the worker or to its sender thread.

use std::sync::Arc;
use std::time::Instant;

use godwit_io::live::SharedCounters;
use godwit_io::{Departure, Transmit};
use godwit_packet::{Outgoing, Region};

use crate::error::Error;
use crate::observe::histogram::SharedHistogram;
use crate::path::publisher::Publisher;
use crate::path::sender::Sender;

/// Name of a port, with its transmit queue. The queue is `None` if the port does not transmit.
pub(crate) type NamedTransmit = (String, Option<Box<dyn Transmit>>);

/// Packets in arrival order that are ready to leave.
#[derive(Debug)]
pub(crate) struct Departing {
    /// Packets for each egress port, in arrival order.
    pub(crate) outs: Vec<Vec<Departure>>,
    /// Arrival times in nanoseconds, each with the number of packets that arrived then.
    pub(crate) arrivals: Vec<(u64, u64)>,
}

impl Departing {
    pub(crate) fn new(ports: usize) -> Self {
        Self { outs: (0..ports).map(|_| Vec::new()).collect(), arrivals: Vec::new() }
    }

    /// Records that `packets` departing packets arrived at the time `arrival_ns`.
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

/// Numbers of packets that the ports accepted and refused.
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

/// Transmit queues of a worker, with a histogram of the time from a packet's arrival to its
/// departure.
pub(crate) struct Queues {
    ports: Vec<NamedTransmit>,
    latency: Arc<SharedHistogram>,
    publisher: Publisher,
    /// Sequence number that was last reported to the ports. All packets of this worker with a lower
    /// number have left or are dropped.
    settled: u64,
    clock: Instant,
}

impl Queues {
    pub(crate) fn new(ports: Vec<NamedTransmit>, clock: Instant) -> Self {
        let publisher = Publisher::new(ports.len());
        Self { ports, latency: Arc::default(), publisher, settled: 0, clock }
    }

    /// Moves the queues out, for the sender thread.
    pub(crate) fn take(&mut self) -> Self {
        let emptied = Self::new(Vec::new(), self.clock);
        std::mem::replace(self, emptied)
    }

    /// Returns the shared histogram of the time from arrival to departure. The worker continues to
    /// update it.
    pub(crate) fn latency(&self) -> Arc<SharedHistogram> {
        Arc::clone(&self.latency)
    }

    /// Transmits all packets of `departing`. Releases the buffers of refused packets.
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
        self.publish_at(now_ns);
        Ok(sent)
    }

    /// Returns the copies of the queue counters that other threads read.
    pub(crate) fn published(&self) -> Vec<Arc<SharedCounters>> {
        self.publisher.shared()
    }

    #[inline]
    fn publish_at(&mut self, now_ns: u64) {
        if self.publisher.is_due(now_ns) {
            self.publish();
        }
    }

    /// Publishes the counters of the queues.
    pub(crate) fn publish(&self) {
        self.publisher.publish(self.ports.iter().map(|(_, queue)| Some(queue.as_ref()?.counters())));
    }

    /// Runs the periodic work of the ports when no packet departs.
    pub(crate) fn service(&mut self, mut buffers: Outgoing<'_>) -> Result<(), Error> {
        for (port, queue) in &mut self.ports {
            if let Some(queue) = queue {
                queue.service(&mut buffers).map_err(|source| Error::Port { port: port.clone(), source })?;
            }
        }
        self.publish_at(self.clock.elapsed().as_nanos() as u64);
        Ok(())
    }

    /// Tells the ports that all packets of this worker below the number `sequence` have left or are
    /// dropped.
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
}

/// Transmit queues of a worker, or the thread that owns them.
pub(crate) enum Egress {
    /// The worker owns the queues and transmits.
    Own(Queues),
    /// A separate sender thread owns the queues and transmits.
    Sender(Sender),
}

impl Egress {
    /// Transmits the packets of `departing`, or passes them to the sender thread. Packets stay in
    /// `departing` if the sender thread has no room for them. Returns the number of packets that
    /// the ports accepted and refused since the last call.
    ///
    /// Every packet of this worker below the sequence number `settled` has left or is dropped,
    /// unless it waits in `departing` or with the sender thread.
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

    /// Returns whether the sender thread has returned all packets.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Sender(sender) => sender.is_idle(),
        }
    }

    /// Transmits the remaining packets, and publishes the final counters of the ports. No packet
    /// may follow.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let mut queues = match self {
            Self::Own(queues) => queues,
            Self::Sender(sender) => sender.finish()?,
        };
        queues.settle(u64::MAX)?;
        queues.publish();
        Ok(())
    }
}
