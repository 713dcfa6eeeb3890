//! The sender of a worker (`io = "dual"`): a thread that owns the worker's transmit queues.
//!
//! ```text
//! worker   depart -> lend -> parcel ==>  ring of 16  ==> accept -> transmit -> settled   sender
//!          count, take_back <- parcel <==  ring of 16  <== returned <-'
//! ```
//! What a turn of the worker sends travels as one parcel: the packets of all ports, the loan of their buffers, and the sequence number
//! that is settled behind them. The same parcel comes back with the buffers and with what became of the packets, so that the worker counts a
//! packet as sent in the moment in which it takes its buffer back: until then it is in flight, and conservation holds at any time.
//! There are as many parcels as places in a ring, so neither side ever waits for the other: a worker without a parcel gathers on,
//! until its buffers are used up.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use godwit_packet::{Borrower, Loan, Region};

use crate::Error;
use crate::egress::{Departing, Queues, Sent};

/// Parcels of a worker: turns that it may be ahead of its sender.
const PARCELS: usize = 16;
/// Looks at an empty ring before the sender lets others have the core.
const IDLE_LOOPS_BEFORE_YIELD: u32 = 64;

/// A turn's departures, there and back.
struct Parcel {
    departing: Departing,
    loan: Option<Loan>,
    /// All packets with a lower sequence number are gone once these are.
    settled: u64,
    sent: Sent,
}

/// A worker's end.
pub(crate) struct Sender {
    /// `None` once finished.
    there: Option<SyncSender<Parcel>>,
    back: Receiver<Parcel>,
    /// `None` once it has ended.
    thread: Option<JoinHandle<Result<Queues, Error>>>,
    spare: Vec<Parcel>,
    settled: u64,
}

impl Sender {
    /// Starts the sender of worker `worker`, on these cores if given.
    pub(crate) fn start(
        worker: usize,
        cores: Option<Vec<usize>>,
        ports: usize,
        queues: Queues,
        borrower: Borrower,
    ) -> Result<Self, Error> {
        let (there, arrived) = sync_channel(PARCELS);
        let (home, back) = sync_channel(PARCELS);
        let body = move || {
            if let Some(cores) = cores {
                crate::control::pin_to(&cores);
            }
            run(queues, borrower, &arrived, &home)
        };
        let thread = thread::Builder::new()
            .name(format!("sender-{worker}"))
            .spawn(body)
            .map_err(|error| Error::Setup(format!("cannot start the sender of worker {worker}: {error}")))?;
        let parcel = |_| Parcel { departing: Departing::new(ports), loan: None, settled: 0, sent: Sent::default() };
        let spare = (0..PARCELS).map(parcel).collect();
        Ok(Self { there: Some(there), back, thread: Some(thread), spare, settled: 0 })
    }

    /// See [`Egress::send`](crate::egress::Egress::send).
    pub(crate) fn send(&mut self, region: &mut Region, departing: &mut Departing, settled: u64) -> Result<Sent, Error> {
        let mut sent = Sent::default();
        loop {
            match self.back.try_recv() {
                Ok(mut parcel) => {
                    if let Some(loan) = parcel.loan.take() {
                        region.take_back(loan);
                    }
                    sent.add(std::mem::take(&mut parcel.sent));
                    self.spare.push(parcel);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(self.failure()),
            }
        }
        if departing.is_empty() && settled <= self.settled {
            return Ok(sent);
        }
        let (Some(mut parcel), Some(there)) = (self.spare.pop(), &self.there) else {
            return Ok(sent);
        };
        std::mem::swap(departing, &mut parcel.departing);
        let leaving = parcel.departing.outs.iter().flatten();
        parcel.loan = Some(region.lend(leaving.map(|departure| &departure.descriptor)));
        parcel.settled = settled;
        self.settled = settled;
        match there.try_send(parcel) {
            Ok(()) => Ok(sent),
            // Never full: the ring has a place for every parcel.
            Err(_) => Err(self.failure()),
        }
    }

    /// Whether all parcels are back.
    pub(crate) fn is_idle(&self) -> bool {
        self.spare.len() == PARCELS
    }

    /// Ends the sender, once it has sent what it has.
    pub(crate) fn finish(mut self) -> Result<Queues, Error> {
        self.there = None;
        self.join()
    }

    /// Why the sender has ended before it was told to.
    fn failure(&mut self) -> Error {
        match self.join() {
            Err(error) => error,
            Ok(_) => unreachable!("a sender goes on until its ring is closed"),
        }
    }

    fn join(&mut self) -> Result<Queues, Error> {
        let thread = self.thread.take().expect("a worker stops at its sender's first failure");
        // A bug of the sender stops its worker as one of its own.
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Sender {
    /// No thread outlives a worker that failed.
    fn drop(&mut self) {
        self.there = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Sends until the ring is closed and empty.
fn run(
    mut queues: Queues,
    mut borrower: Borrower,
    arrived: &Receiver<Parcel>,
    home: &SyncSender<Parcel>,
) -> Result<Queues, Error> {
    let mut idle_loops = 0;
    loop {
        match arrived.try_recv() {
            Ok(mut parcel) => {
                idle_loops = 0;
                if let Some(loan) = parcel.loan.take() {
                    borrower.accept(loan);
                }
                parcel.sent = queues.transmit((&mut borrower).into(), &mut parcel.departing)?;
                queues.settle(parcel.settled)?;
                parcel.loan = Some(borrower.returned());
                if home.send(parcel).is_err() {
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
    use crate::histogram::Figures as _;

    /// What a port saw: sequence numbers of packets that it accepted, or a number below which all is settled.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Saw {
        Packet(u64),
        Settled(u64),
    }

    /// What a port does when it sees a packet of this sequence number.
    #[derive(Clone, Copy)]
    enum Trouble {
        None,
        Fail(u64),
        Panic(u64),
    }

    /// A port that refuses every packet whose number is a multiple of `refuses`.
    struct Port {
        refuses: u64,
        trouble: Trouble,
        saw: Arc<Mutex<Vec<Saw>>>,
        counters: PortCounters,
    }

    impl Transmit for Port {
        fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, godwit_io::Error> {
            let mut accepted = 0;
            for Departure { descriptor, stamp } in packets {
                match self.trouble {
                    Trouble::Fail(at) if at == stamp.sequence => {
                        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
                        return Err(godwit_io::Error::Write { path: "out.pcap".into(), source: full });
                    }
                    Trouble::Panic(at) if at == stamp.sequence => panic!("a bug of the port"),
                    _ => {}
                }
                let frame = buffers.frame(descriptor);
                assert!(frame.iter().all(|&byte| byte == stamp.sequence as u8), "packet {}", stamp.sequence);
                buffers.release(descriptor);
                if stamp.sequence % self.refuses == 0 {
                    self.counters.refused += 1;
                } else {
                    self.saw.lock().unwrap().push(Saw::Packet(stamp.sequence));
                    self.counters.sent_packets += 1;
                    accepted += 1;
                }
            }
            Ok(accepted)
        }

        fn settled(&mut self, sequence: u64) -> Result<(), godwit_io::Error> {
            self.saw.lock().unwrap().push(Saw::Settled(sequence));
            Ok(())
        }

        fn counters(&self) -> PortCounters {
            self.counters
        }
    }

    /// A worker of which only the way out is left.
    struct Worker {
        region: Region,
        departing: Departing,
        sender: Sender,
        sequence: u64,
        sent: Sent,
    }

    impl Worker {
        fn new(layout: Layout, refuses: u64, trouble: Trouble) -> (Self, Arc<Mutex<Vec<Saw>>>) {
            let arena = ArenaConfig { layout, packets: 64, ..ArenaConfig::default() };
            let region = Arena::new(arena, 1).unwrap().split().remove(0);
            let saw = Arc::new(Mutex::new(Vec::new()));
            let port = Port { refuses, trouble, saw: Arc::clone(&saw), counters: PortCounters::default() };
            let port: Box<dyn Transmit> = Box::new(port);
            let queues = Queues::new(vec![("receives".into(), None), ("sends".into(), Some(port))], Instant::now());
            let sender = Sender::start(0, None, 2, queues, region.borrower()).unwrap();
            let (departing, sent) = (Departing::new(2), Sent::default());
            (Self { region, departing, sender, sequence: 0, sent }, saw)
        }

        /// A turn in which up to `packets` packets are to leave.
        fn turn(&mut self, packets: usize) -> Result<(), Error> {
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
                self.turn(0)?;
                thread::yield_now();
            }
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// At any time every packet is sent, refused or has its buffer; packets and what is settled come in order; all is flushed.
        #[test]
        fn packets_are_conserved_and_in_order(
            dense: bool,
            refuses in 2u64..9,
            turns in prop::collection::vec((0usize..40, any::<bool>()), 1..300),
        ) {
            let layout = if dense { Layout::Dense } else { Layout::Slots };
            let (mut worker, saw) = Worker::new(layout, refuses, Trouble::None);
            for (packets, pause) in turns {
                worker.turn(packets).unwrap();
                let accounted = worker.sent.accepted + worker.sent.refused + worker.region.allocated();
                prop_assert_eq!(accounted as u64, worker.sequence);
                if pause {
                    thread::yield_now();
                }
            }
            worker.flush().unwrap();
            prop_assert_eq!(worker.region.allocated(), 0);
            let (counters, latency) = worker.sender.finish().unwrap().finish();
            prop_assert_eq!(counters[1].sent_packets, worker.sent.accepted as u64);
            prop_assert_eq!(counters[1].refused, worker.sent.refused as u64);
            prop_assert_eq!(worker.sent.refused as u64, worker.sequence.div_ceil(refuses));
            prop_assert_eq!(latency.latency().is_some(), worker.sequence > 0);
            let mut next = 0;
            for saw in saw.lock().unwrap().iter() {
                match *saw {
                    Saw::Packet(sequence) => {
                        prop_assert!(sequence >= next);
                        next = sequence + 1;
                    }
                    Saw::Settled(sequence) => {
                        // Only refused packets are missing below it.
                        prop_assert!((next..sequence).all(|missing| missing % refuses == 0), "{sequence} after {next}");
                        next = sequence;
                    }
                }
            }
            prop_assert_eq!(next, worker.sequence);
        }
    }

    #[test]
    fn a_port_that_fails_stops_the_worker_with_its_error() {
        let (mut worker, _saw) = Worker::new(Layout::Slots, 1000, Trouble::Fail(100));
        let error = loop {
            if let Err(error) = worker.turn(10) {
                break error;
            }
        };
        assert!(error.to_string().starts_with("port `sends`: cannot write"), "{error}");
        assert!(worker.sequence > 100);
    }

    #[test]
    fn a_bug_in_the_sender_stops_the_worker_as_one_of_its_own() {
        let (mut worker, _saw) = Worker::new(Layout::Slots, 1000, Trouble::Panic(100));
        let panic = catch_unwind(AssertUnwindSafe(|| {
            loop {
                worker.turn(10).unwrap();
            }
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"a bug of the port"));
    }

    #[test]
    fn a_worker_that_fails_leaves_no_thread_behind() {
        let (mut worker, saw) = Worker::new(Layout::Slots, 1000, Trouble::None);
        worker.turn(10).unwrap();
        drop(worker);
        // The sender held the other one.
        assert_eq!(Arc::strong_count(&saw), 1);
    }
}
