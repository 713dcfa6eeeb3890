//! Port outside the program, whose other side is this test. Buffers change their owner, packets are
//! conserved, and packets that are queued when the run stops are still received.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use godwit_engine::config::PortKind;
use godwit_engine::{Engine, Options};
use godwit_io::live::{ArenaNeeds, Arrivals, Live, LiveContext, LivePort, SharedCounters};
use godwit_io::{Departure, Error, PortCounters, QueueContext, Receive, Received, Transmit};
use godwit_packet::{Batch, Outgoing, Region};
use godwit_test_support::ConfigText;

use crate::common::config;

const BUFFERS: usize = 64;

/// Other side of one worker's queues: numbers of packets.
#[derive(Debug, Default)]
struct Peer {
    sent: u64,
    received: u64,
}

/// Port. The peer sends frames until the port is stopped, and 100 more after that.
#[derive(Clone, Debug)]
struct Wire {
    peers: Arc<Mutex<Vec<Peer>>>,
    stopped: Arc<AtomicBool>,
}

impl Live for Wire {
    fn needs(&self) -> ArenaNeeds {
        ArenaNeeds {
            headroom_bytes: 256,
            slot_bytes: Some((2048, 4096)),
            buffers: 2 * BUFFERS,
            ..ArenaNeeds::default()
        }
    }

    fn open(&self, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error> {
        assert_eq!((context.slot_bytes, context.headroom_bytes), (Some(2048), 256));
        assert!(context.regions.iter().all(|region| region.start % 4096 == 0));
        self.peers.lock().unwrap().resize_with(context.workers, Peer::default);
        Ok(Arc::new(self.clone()))
    }
}

impl LivePort for Wire {
    fn receiver(&self, context: QueueContext, region: &mut Region) -> Result<Box<dyn Receive>, Error> {
        let posted: VecDeque<u32> = (0..BUFFERS).map(|_| region.post().unwrap()).collect();
        assert_eq!((region.in_ports(), region.allocated()), (BUFFERS, 0));
        let (worker, arrivals) = (context.worker, Arrivals::new(context));
        let shared = SharedCounters::default();
        Ok(Box::new(Queue { wire: self.clone(), worker, arrivals, buffers: posted, rest: 100, shared }))
    }

    fn transmitter(&self, worker: usize) -> Result<Box<dyn Transmit>, Error> {
        let counters = PortCounters::default();
        Ok(Box::new(Out { wire: self.clone(), worker, buffers: VecDeque::new(), counters }))
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

struct Queue {
    wire: Wire,
    worker: usize,
    arrivals: Arrivals,
    /// Buffers that are posted to the peer.
    buffers: VecDeque<u32>,
    rest: u64,
    shared: SharedCounters,
}

impl Receive for Queue {
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error> {
        let stopped = self.wire.stopped.load(Ordering::Relaxed);
        if stopped && self.rest == 0 {
            return Ok(Received::Ended);
        }
        self.arrivals.read_clock();
        let mut counters = self.shared.read();
        for _ in 0..packets_max.min(7) {
            if stopped && self.rest == 0 {
                break;
            }
            let Some(buffer) = self.buffers.pop_front() else { break };
            let offset = buffer as usize * 64 + 256;
            assert_eq!(region.buffer_at(offset), Some(buffer));
            // The region rejects frames that do not fit a posted buffer.
            assert!(region.arrived(offset + (64 << 20), 60).is_none() && region.arrived(offset, 2000).is_none());
            let descriptor = region.arrived(offset, 60).unwrap();
            assert!(region.arrived(offset, 60).is_none());
            region.frame_mut(&descriptor).fill(self.worker as u8);
            self.arrivals.push(region, descriptor, batch);
            self.wire.peers.lock().unwrap()[self.worker].sent += 1;
            self.rest -= u64::from(stopped);
            counters.received_packets += 1;
            counters.received_bytes += 60;
        }
        while self.buffers.len() < BUFFERS {
            match region.post() {
                Some(buffer) => self.buffers.push_back(buffer),
                None => break,
            }
        }
        self.shared.publish(&counters);
        Ok(Received::Open)
    }

    fn sequence_next(&self) -> u64 {
        self.arrivals.sequence_next()
    }

    fn counters(&self) -> PortCounters {
        self.shared.read()
    }

    fn is_live(&self) -> bool {
        true
    }
}

struct Out {
    wire: Wire,
    worker: usize,
    buffers: VecDeque<u32>,
    counters: PortCounters,
}

impl Transmit for Out {
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        let mut accepted = 0;
        for Departure { descriptor, .. } in packets {
            if self.buffers.len() == BUFFERS {
                buffers.release(descriptor);
                self.counters.refused += 1;
                continue;
            }
            assert!(buffers.frame(descriptor).iter().all(|&byte| usize::from(byte) == self.worker));
            buffers.hand_over(descriptor);
            self.buffers.push_back(descriptor.buffer);
            self.counters.sent_packets += 1;
            accepted += 1;
        }
        self.wire.peers.lock().unwrap()[self.worker].received += accepted as u64;
        Ok(accepted)
    }

    /// Returns the older half of the peer's buffers.
    fn service(&mut self, buffers: &mut Outgoing<'_>) -> Result<(), Error> {
        self.buffers.drain(..self.buffers.len().div_ceil(2)).for_each(|buffer| buffers.reclaim(buffer));
        Ok(())
    }

    fn settled(&mut self, _sequence: u64) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

fn run(workers: usize, io: &str) {
    let text = ConfigText::new()
        .engine(&format!("workers = {workers}\nio = \"{io}\"\nburst_packets = 32\nin_flight_packets = 64"))
        .port("wire", "synthetic", "")
        .function("echo", "echo", "")
        .path(&["wire", "echo", "wire"]);
    // Replace the port before the layout of the arena is computed.
    let wire = Wire { peers: Arc::default(), stopped: Arc::default() };
    let mut config = config(&text.to_string());
    config.ports[0].kind = PortKind::Live("wire", Arc::new(wire.clone()));
    config.apply_port_needs().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let engine = Engine::new(config, &Options::default()).unwrap();
    let report = engine.run(&stop, Some(Duration::from_millis(300)), &mut |_| {}).unwrap();
    assert!(report.conservation.holds(), "{}", report.conservation);
    assert_eq!(report.conservation.in_flight, 0);
    let peers = wire.peers.lock().unwrap();
    let sum = |count: fn(&Peer) -> u64| peers.iter().map(count).sum::<u64>();
    assert_eq!(report.conservation.received, sum(|peer| peer.sent));
    assert_eq!(report.conservation.sent, sum(|peer| peer.received));
    assert!(peers.iter().all(|peer| peer.sent > 100), "{peers:?}");
    assert_eq!(report.ports[0].sent_packets, report.conservation.sent);
}

#[test]
fn packets_are_conserved_and_queues_are_drained() {
    run(1, "single");
    run(3, "single");
}

#[test]
fn a_sender_thread_hands_over_and_reclaims_buffers() {
    run(1, "dual");
    run(2, "dual");
}
