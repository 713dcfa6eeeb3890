//! Transmits the packets of a worker on a separate thread (`io = "dual"`). This sender thread owns
//! the worker's transmit queues.
//!
//! ```text
//! worker   depart -> lend -> batch    ==> ring of 16 ==> accept -> transmit -> settled   sender
//!          count, take_back <- batch  <== ring of 16 <== returned <-'
//! ```
//! The worker gives the sender one batch per loop iteration. A batch contains the packets of all
//! ports, and lends their buffers to the sender. It also contains the sequence number below which
//! all packets have left after its transmission. The sender returns the same batch with the buffers
//! and the numbers of accepted and refused packets. The worker counts a packet as sent when its
//! buffer returns. Until then the packet counts as in flight, so every packet is accounted for at
//! any time.
//!
//! The number of batches equals the size of a ring, so neither thread ever waits for the other. A
//! worker without a free batch collects packets until a batch returns or its buffers are used up.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use godwit_packet::{Borrower, Loan, Region};

use crate::control::cores::pin_to;
use crate::error::Error;
use crate::path::egress::{Departing, Queues, Sent};

/// Number of packet batches that a worker and its sender thread exchange. The worker can be ahead
/// of its sender thread by this number of loop iterations.
const BATCHES: usize = 16;
const IDLE_LOOPS_BEFORE_YIELD: u32 = 64;

/// Configuration of a worker's sender thread.
pub(crate) struct SenderConfig {
    pub(crate) worker: usize,
    /// Cores to which the thread is pinned, or `None` if it is not pinned.
    pub(crate) cores: Option<Vec<usize>>,
}

/// Packets that leave in one loop iteration. The sender thread transmits this batch, and returns it
/// to the worker.
struct EgressBatch {
    departing: Departing,
    loan: Option<Loan>,
    /// Sequence number below which all packets have left once this batch is transmitted.
    settled: u64,
    sent: Sent,
}

/// The worker's end of the two ring buffers between the worker and its sender thread.
pub(crate) struct Sender {
    to_sender: Option<SyncSender<EgressBatch>>,
    from_sender: Receiver<EgressBatch>,
    thread: Option<JoinHandle<Result<Queues, Error>>>,
    free: Vec<EgressBatch>,
    settled: u64,
}

impl Sender {
    /// Starts the sender thread, which then owns the transmit `queues`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start(config: SenderConfig, ports: usize, queues: Queues, borrower: Borrower) -> Result<Self, Error> {
        let SenderConfig { worker, cores } = config;
        let (to_sender, from_worker) = sync_channel(BATCHES);
        let (to_worker, from_sender) = sync_channel(BATCHES);
        let body = move || {
            if let Some(cores) = cores {
                pin_to(&cores);
            }
            run(queues, borrower, &from_worker, &to_worker)
        };
        let thread = thread::Builder::new()
            .name(format!("sender-{worker}"))
            .spawn(body)
            .map_err(|error| Error::Setup(format!("cannot start the sender of worker {worker}: {error}")))?;
        let batch = |_| EgressBatch { departing: Departing::new(ports), loan: None, settled: 0, sent: Sent::default() };
        let free = (0..BATCHES).map(batch).collect();
        Ok(Self { to_sender: Some(to_sender), from_sender, thread: Some(thread), free, settled: 0 })
    }

    /// Passes the packets of `departing` to the sender thread, as described at
    /// [`Egress::send`](crate::path::egress::Egress::send).
    pub(crate) fn send(&mut self, region: &mut Region, departing: &mut Departing, settled: u64) -> Result<Sent, Error> {
        let mut sent = Sent::default();
        loop {
            match self.from_sender.try_recv() {
                Ok(mut batch) => {
                    if let Some(loan) = batch.loan.take() {
                        region.take_back(loan);
                    }
                    sent.add(std::mem::take(&mut batch.sent));
                    self.free.push(batch);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(self.failure()),
            }
        }
        if departing.is_empty() && settled <= self.settled {
            return Ok(sent);
        }
        let (Some(mut batch), Some(to_sender)) = (self.free.pop(), &self.to_sender) else {
            return Ok(sent);
        };
        std::mem::swap(departing, &mut batch.departing);
        let leaving = batch.departing.outs.iter().flatten();
        batch.loan = Some(region.lend(leaving.map(|departure| &departure.descriptor)));
        batch.settled = settled;
        self.settled = settled;
        match to_sender.try_send(batch) {
            Ok(()) => Ok(sent),
            // There is room for all batches, so an error means that the sender thread has ended.
            Err(_) => Err(self.failure()),
        }
    }

    /// Returns whether the sender has returned all batches.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == BATCHES
    }

    /// Waits until the sender thread has transmitted all batches. Returns the transmit queues.
    pub(crate) fn finish(mut self) -> Result<Queues, Error> {
        self.to_sender = None;
        self.join()
    }

    /// Returns the error that ended the sender thread early.
    fn failure(&mut self) -> Error {
        match self.join() {
            Err(error) => error,
            Ok(_) => unreachable!("the sender runs until its ring is closed"),
        }
    }

    fn join(&mut self) -> Result<Queues, Error> {
        let thread = self.thread.take().expect("a worker stops at its sender's first failure");
        // If the sender panicked, continue the panic on the worker.
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Sender {
    /// Ends the sender thread, which must not continue after its worker has failed.
    fn drop(&mut self) {
        self.to_sender = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Transmits batches until the ring is closed and empty.
fn run(
    mut queues: Queues,
    mut borrower: Borrower,
    from_worker: &Receiver<EgressBatch>,
    to_worker: &SyncSender<EgressBatch>,
) -> Result<Queues, Error> {
    let mut idle_loops = 0;
    loop {
        match from_worker.try_recv() {
            Ok(mut batch) => {
                idle_loops = 0;
                if let Some(loan) = batch.loan.take() {
                    borrower.accept(loan);
                }
                batch.sent = queues.transmit((&mut borrower).into(), &mut batch.departing)?;
                queues.settle(batch.settled)?;
                batch.loan = Some(borrower.returned());
                if to_worker.send(batch).is_err() {
                    return Ok(queues);
                }
            }
            Err(TryRecvError::Empty) => {
                queues.service((&mut borrower).into())?;
                idle_loops += 1;
                if idle_loops < IDLE_LOOPS_BEFORE_YIELD {
                    std::hint::spin_loop();
                } else {
                    thread::yield_now();
                }
            }
            Err(TryRecvError::Disconnected) => return Ok(queues),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use godwit_io::{Departure, PortCounters, Transmit};
    use godwit_packet::{Arena, ArenaConfig, Layout, Outgoing, Stamp};
    use proptest::prelude::*;

    use super::*;
    use crate::observe::histogram::{Figures as _, Histogram};

    /// Event at the test port: an accepted packet with its sequence number, or a sequence number
    /// below which all packets have left.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Event {
        Packet(u64),
        Settled(u64),
    }

    /// Fault that the test port causes at the packet with the given sequence number.
    #[derive(Clone, Copy)]
    enum Fault {
        None,
        Fail(u64),
        Panic(u64),
    }

    struct Port {
        refuses: u64,
        fault: Fault,
        events: Arc<Mutex<Vec<Event>>>,
        counters: PortCounters,
    }

    impl Transmit for Port {
        fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, godwit_io::Error> {
            let mut accepted = 0;
            for Departure { descriptor, stamp } in packets {
                match self.fault {
                    Fault::Fail(at) if at == stamp.sequence => {
                        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
                        return Err(godwit_io::Error::Write { path: "out.pcap".into(), source: full });
                    }
                    Fault::Panic(at) if at == stamp.sequence => panic!("a bug of the port"),
                    _ => {}
                }
                let frame = buffers.frame(descriptor);
                assert!(frame.iter().all(|&byte| byte == stamp.sequence as u8), "packet {}", stamp.sequence);
                buffers.release(descriptor);
                if stamp.sequence % self.refuses == 0 {
                    self.counters.refused += 1;
                } else {
                    self.events.lock().unwrap().push(Event::Packet(stamp.sequence));
                    self.counters.sent_packets += 1;
                    accepted += 1;
                }
            }
            Ok(accepted)
        }

        fn settled(&mut self, sequence: u64) -> Result<(), godwit_io::Error> {
            self.events.lock().unwrap().push(Event::Settled(sequence));
            Ok(())
        }

        fn counters(&self) -> PortCounters {
            self.counters
        }
    }

    /// Worker of the test, reduced to its transmit side.
    struct Worker {
        region: Region,
        departing: Departing,
        sender: Sender,
        sequence: u64,
        sent: Sent,
    }

    impl Worker {
        fn new(layout: Layout, refuses: u64, fault: Fault) -> (Self, Arc<Mutex<Vec<Event>>>) {
            let arena = ArenaConfig { layout, packets: 64, ..ArenaConfig::default() };
            let region = Arena::new(arena, 1).unwrap().split().remove(0);
            let events = Arc::new(Mutex::new(Vec::new()));
            let port = Port { refuses, fault, events: Arc::clone(&events), counters: PortCounters::default() };
            let port: Box<dyn Transmit> = Box::new(port);
            let queues = Queues::new(vec![("receives".into(), None), ("sends".into(), Some(port))], Instant::now());
            let sender = Sender::start(SenderConfig { worker: 0, cores: None }, 2, queues, region.borrower()).unwrap();
            let (departing, sent) = (Departing::new(2), Sent::default());
            (Self { region, departing, sender, sequence: 0, sent }, events)
        }

        fn run_iteration(&mut self, packets: usize) -> Result<(), Error> {
            for _ in 0..packets {
                let Some(descriptor) = self.region.allocate(60 + self.sequence as usize % 1000) else { break };
                self.region.buffer_mut(&descriptor).fill(self.sequence as u8);
                let stamp = Stamp { sequence: self.sequence, time_ns: 0 };
                self.departing.outs[1].push(Departure { descriptor, stamp });
                self.departing.arrived(0, 1);
                self.sequence += 1;
            }
            let sent = self.sender.send(&mut self.region, &mut self.departing, self.sequence)?;
            self.sent.add(sent);
            Ok(())
        }

        fn flush(&mut self) -> Result<(), Error> {
            while !(self.departing.is_empty() && self.sender.is_idle()) {
                self.run_iteration(0)?;
                thread::yield_now();
            }
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn packets_are_conserved_and_in_order(
            dense: bool,
            refuses in 2u64..9,
            turns in prop::collection::vec((0usize..40, any::<bool>()), 1..300),
        ) {
            let layout = if dense { Layout::Dense } else { Layout::Slots };
            let (mut worker, events) = Worker::new(layout, refuses, Fault::None);
            for (packets, pause) in turns {
                worker.run_iteration(packets).unwrap();
                let accounted = worker.sent.accepted + worker.sent.refused + worker.region.allocated();
                prop_assert_eq!(accounted as u64, worker.sequence);
                if pause {
                    thread::yield_now();
                }
            }
            worker.flush().unwrap();
            prop_assert_eq!(worker.region.allocated(), 0);
            let queues = worker.sender.finish().unwrap();
            let mut latency = Histogram::default();
            queues.latency().add_to(&mut latency);
            queues.publish();
            let counters: Vec<_> = queues.published().iter().map(|counters| counters.read()).collect();
            prop_assert_eq!(counters[1].sent_packets, worker.sent.accepted as u64);
            prop_assert_eq!(counters[1].refused, worker.sent.refused as u64);
            prop_assert_eq!(worker.sent.refused as u64, worker.sequence.div_ceil(refuses));
            prop_assert_eq!(latency.latency().is_some(), worker.sequence > 0);
            let mut next = 0;
            for events in events.lock().unwrap().iter() {
                match *events {
                    Event::Packet(sequence) => {
                        prop_assert!(sequence >= next);
                        next = sequence + 1;
                    }
                    Event::Settled(sequence) => {
                        // Only refused packets are missing below the sequence number that the
                        // worker has reported as settled.
                        prop_assert!((next..sequence).all(|missing| missing % refuses == 0), "{sequence} after {next}");
                        next = sequence;
                    }
                }
            }
            prop_assert_eq!(next, worker.sequence);
        }
    }

    #[test]
    fn failed_port_stops_the_worker_with_its_error() {
        let (mut worker, _saw) = Worker::new(Layout::Slots, 1000, Fault::Fail(100));
        let error = loop {
            if let Err(error) = worker.run_iteration(10) {
                break error;
            }
        };
        assert!(error.to_string().starts_with("port `sends`: cannot write"), "{error}");
        assert!(worker.sequence > 100);
    }

    #[test]
    fn panic_of_the_sender_continues_on_the_worker() {
        let (mut worker, _saw) = Worker::new(Layout::Slots, 1000, Fault::Panic(100));
        let panic = catch_unwind(AssertUnwindSafe(|| {
            loop {
                worker.run_iteration(10).unwrap();
            }
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"a bug of the port"));
    }

    #[test]
    fn failed_worker_ends_its_sender() {
        let (mut worker, events) = Worker::new(Layout::Slots, 1000, Fault::None);
        worker.run_iteration(10).unwrap();
        drop(worker);
        // The sender held the second reference to the events.
        assert_eq!(Arc::strong_count(&events), 1);
    }
}
