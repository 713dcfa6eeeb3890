//! Several workers on a port outside the engine that does not know SAs. Packets arrive at any
//! worker, and each SA belongs to one worker. The other side of the port is this test.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use godwit_engine::config::PortKind;
use godwit_engine::{Engine, Options, Report};
use godwit_io::live::{ArenaNeeds, Arrivals, Live, LiveContext, LivePort};
use godwit_io::{Departure, Error, PortCounters, QueueContext, Receive, Received, Transmit};
use godwit_packet::{Batch, Outgoing, Region};
use godwit_test_support::ConfigText;

use crate::common::{LIMIT, config, count};

const SAS: u32 = 8;
const FLOWS_PER_SA: u32 = 3;
/// Number of packets of each flow. All packets of a queue fit into one ring.
const PACKETS_PER_FLOW: u32 = 40;
/// Length of the Ethernet header, an IPv4 header, and the ESP header of the cipher `null`.
const OUTER_BYTES: usize = 14 + 20 + 8;

/// Sent frame, with the worker that sent it.
type Sent = (usize, Vec<u8>);

/// Port whose queues contain the given frames, and end after them.
#[derive(Clone, Debug)]
struct Nic {
    queues: Arc<Vec<Vec<Vec<u8>>>>,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Nic {
    fn new(queues: Vec<Vec<Vec<u8>>>) -> Self {
        Self { queues: Arc::new(queues), sent: Arc::default() }
    }

    /// Runs an engine on this port. Returns the report and the sent frames.
    fn run(&self, text: &str) -> (Report, Vec<Sent>) {
        let mut config = config(text);
        config.ports[0].kind = PortKind::Live("nic", Arc::new(self.clone()));
        config.apply_port_needs().unwrap();
        let engine = Engine::new(config, &Options::default()).unwrap();
        let report = engine.run(&Arc::new(AtomicBool::new(false)), Some(LIMIT), &mut |_| {}).unwrap();
        let conservation = report.conservation;
        assert!(conservation.holds() && conservation.in_flight == 0, "{conservation}");
        let sent = std::mem::take(&mut *self.sent.lock().unwrap());
        assert_eq!(conservation.sent, sent.len() as u64);
        (report, sent)
    }
}

impl Live for Nic {
    fn needs(&self) -> ArenaNeeds {
        ArenaNeeds { headroom_bytes: 256, slot_bytes: Some((2048, 4096)), ..ArenaNeeds::default() }
    }

    fn open(&self, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error> {
        assert_eq!(context.workers, self.queues.len());
        Ok(Arc::new(self.clone()))
    }
}

impl LivePort for Nic {
    fn receiver(&self, context: QueueContext, _region: &mut Region) -> Result<Box<dyn Receive>, Error> {
        let frames = self.queues[context.worker].clone().into_iter();
        Ok(Box::new(Queue { frames, arrivals: Arrivals::new(context), counters: PortCounters::default() }))
    }

    fn transmitter(&self, worker: usize) -> Result<Box<dyn Transmit>, Error> {
        Ok(Box::new(Out { nic: self.clone(), worker, counters: PortCounters::default() }))
    }

    fn stop(&self) {}

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

struct Queue {
    frames: std::vec::IntoIter<Vec<u8>>,
    arrivals: Arrivals,
    counters: PortCounters,
}

impl Receive for Queue {
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error> {
        self.arrivals.read_clock();
        while batch.len() < packets_max.min(7)
            && let Some(frame) = self.frames.as_slice().first()
            && let Some(buffer) = region.post()
        {
            let offset = buffer as usize * 64 + 256 + 32;
            let descriptor = region.arrived(offset, frame.len()).expect("the buffer was posted");
            region.frame_mut(&descriptor).copy_from_slice(frame);
            self.arrivals.push(region, descriptor, batch);
            self.counters.received_packets += 1;
            self.frames.next();
        }
        Ok(if self.frames.as_slice().is_empty() { Received::Ended } else { Received::Open })
    }

    fn sequence_next(&self) -> u64 {
        self.arrivals.sequence_next()
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn is_live(&self) -> bool {
        true
    }
}

struct Out {
    nic: Nic,
    worker: usize,
    counters: PortCounters,
}

impl Transmit for Out {
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        let mut sent = self.nic.sent.lock().unwrap();
        for Departure { descriptor, .. } in packets {
            sent.push((self.worker, buffers.frame(descriptor).to_vec()));
            buffers.release(descriptor);
        }
        self.counters.sent_packets += packets.len() as u64;
        Ok(packets.len())
    }

    fn settled(&mut self, _sequence: u64) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Returns a UDP packet of a flow. The flow number is the source port, and the payload begins with
/// the number of the packet.
fn packet(flow: u32, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 14];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let payload_bytes = 32 + number as usize % 16 * 80;
    let total = (20 + 8 + payload_bytes) as u16;
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, (flow % SAS) as u8, 9];
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(&ip);
    frame.extend_from_slice(&(flow as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 53]);
    frame.extend_from_slice(&(total - 20).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(&number.to_be_bytes());
    frame.resize(14 + usize::from(total), flow as u8);
    frame
}

/// Returns the flow and the number of a packet from [`packet`]. `headers_bytes` is the length of
/// the headers before the IPv4 header.
fn identity(frame: &[u8], headers_bytes: usize) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    (word(headers_bytes + 20) >> 16, word(headers_bytes + 28))
}

fn spi_and_sequence(frame: &[u8]) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    (word(34), word(38))
}

fn tunnel(workers: usize, idle: &str, direction: &str) -> String {
    let mut text = ConfigText::new()
        .engine(&format!("workers = {workers}\nidle = \"{idle}\"\nburst_packets = 32\nin_flight_packets = 256"))
        .port("nic", "synthetic", "")
        .function("tunnel", "ipsec", "");
    for sa in 0..SAS {
        let key: String =
            (0..20).map(|byte| format!("{:02x}", (byte * 37 + byte * byte * 11 + sa * 29) % 256)).collect();
        let window = if direction == "in" { "replay_window = 64\n" } else { "" };
        let sa = format!(
            "name = \"sa-{sa}\"\nspi = {}\ndirection = \"{direction}\"\nsource = \"192.0.2.1\"\ndestination = \"192.0.2.2\"\n\
             encryption = \"null\"\nauthentication = \"hmac-sha1-96\"\nauthentication_key = \"{key}\"\n{window}",
            4096 + sa
        );
        text = text.nested("sa", &sa);
    }
    if direction == "out" {
        for sa in 0..SAS {
            let policy = format!("action = \"protect\"\ndestination = \"10.2.{sa}.0/24\"\nsa = \"sa-{sa}\"");
            text = text.nested("policy", &policy);
        }
    }
    let verdict = if direction == "out" { "encrypted" } else { "decrypted" };
    text.edge("nic", "tunnel").verdict_edge("tunnel", verdict, "nic").to_string()
}

/// Returns the packets of all flows. Each flow has one queue, and each SA has flows in several
/// queues.
fn flows(queues: usize) -> Vec<Vec<Vec<u8>>> {
    let mut packets = vec![Vec::new(); queues];
    for number in 0..PACKETS_PER_FLOW {
        for flow in 0..SAS * FLOWS_PER_SA {
            packets[(flow / SAS) as usize % queues].push(packet(flow, number));
        }
    }
    packets
}

/// Checks that all packets of all flows were sent once, and in order.
#[track_caller]
fn all_in_order(sent: &[Sent], headers_bytes: usize) {
    let mut next: HashMap<u32, u32> = HashMap::new();
    for (_, frame) in sent {
        let (flow, number) = identity(frame, headers_bytes);
        let next = next.entry(flow).or_default();
        assert_eq!(number, *next, "flow {flow}");
        assert_eq!(frame[headers_bytes..][..packet(flow, number).len() - 14][20..], packet(flow, number)[34..]);
        *next += 1;
    }
    assert_eq!(next.len() as u32, SAS * FLOWS_PER_SA);
    assert!(next.values().all(|count| *count == PACKETS_PER_FLOW), "{next:?}");
}

#[test]
fn each_sa_has_one_worker_in_both_directions() {
    for (workers, idle) in [(2, "spin"), (3, "sleep")] {
        let (report, sent) = Nic::new(flows(workers)).run(&tunnel(workers, idle, "out"));
        all_in_order(&sent, OUTER_BYTES);
        let exchanged = count(&report, "engine_exchanged");
        assert!(exchanged > 0 && exchanged < sent.len() as u64, "{exchanged} of {}", sent.len());
        // Each sequence number is used once, and only by the worker of its SA.
        let mut owners: HashMap<u32, (usize, u32)> = HashMap::new();
        for (worker, frame) in &sent {
            let (spi, sequence) = spi_and_sequence(frame);
            let (owner, last) = owners.entry(spi).or_insert((*worker, 0));
            assert_eq!((*worker, sequence), (*owner, *last + 1), "SPI {spi}");
            *last = sequence;
        }
        assert_eq!(owners.len() as u32, SAS);
        let used: HashSet<usize> = owners.values().map(|(worker, _)| *worker).collect();
        assert_eq!(used.len(), workers, "every worker owns SAs");

        // The packets of all SAs have the same addresses, so a NIC puts them into one queue. Here
        // the queue even changes with each SA.
        let mut queues = vec![Vec::new(); workers];
        for (_, frame) in &sent {
            queues[spi_and_sequence(frame).0 as usize / 2 % workers].push(frame.clone());
        }
        let all = sent.len() as u64;
        let twice: Vec<_> = queues.iter().map(|queue| [&queue[..], &queue[..]].concat()).collect();
        let (report, sent) = Nic::new(queues).run(&tunnel(workers, idle, "in"));
        all_in_order(&sent, 14);
        assert_eq!(count(&report, "engine_dropped"), 0);
        // The second copy of each packet is a replay.
        let (report, sent) = Nic::new(twice).run(&tunnel(workers, idle, "in"));
        all_in_order(&sent, 14);
        let replayed = count(&report, "ipsec_dropped_replayed{function=\"tunnel\"}");
        let full = count(&report, "engine_dropped_exchange");
        assert_eq!(replayed + full, all, "{:?}", report.counters);
    }
}

/// A generator can spread packets as a NIC does. The result is that of one worker.
#[test]
fn spread_packets_give_the_result_of_one_worker() {
    let destinations: Vec<String> = (0..SAS).map(|sa| format!("\"10.2.{sa}.9\"")).collect();
    let run = |workers: usize, spread: &str, layout: &str| {
        // Each SA has one flow, so the order within an SA does not depend on the workers.
        let port = format!(
            "packets = 20000\nflows = {SAS}\nspread = \"{spread}\"\ndigest = true\nsource = \"10.1.0.1/32\"\nsource_port = 5000\n\
             destination_port = 53\nsize = \"imix\"\ntime = \"schedule\"\ndestinations = [{}]",
            destinations.join(", ")
        );
        let text = tunnel(workers, "spin", "out").replacen(
            "kind = \"synthetic\"",
            &format!("kind = \"synthetic\"\n{port}"),
            1,
        );
        let text = format!("{text}\n[arena]\nlayout = \"{layout}\"\n");
        let engine = Engine::new(config(&text), &Options::default()).unwrap();
        let report = engine.run(&Arc::new(AtomicBool::new(false)), Some(LIMIT), &mut |_| {}).unwrap();
        assert!(report.conservation.holds(), "{}", report.conservation);
        assert_eq!((report.conservation.sent, report.conservation.dropped), (20_000, 0));
        (report.ports[0].digest, count(&report, "engine_exchanged"))
    };
    assert_eq!(run(4, "owner", "slots"), run(1, "owner", "slots"));
    let (expected, exchanged) = run(1, "flow", "slots");
    assert!(expected.is_some() && exchanged == 0);
    for layout in ["slots", "dense"] {
        for workers in [1, 2, 4] {
            let (digest, exchanged) = run(workers, "flow", layout);
            assert_eq!(digest, expected, "{workers} workers");
            assert_eq!(exchanged > 0, workers > 1);
        }
    }
}

/// A stopped run empties the rings.
#[test]
fn a_stop_conserves_packets_in_rings() {
    let port = "spread = \"flow\"\ndestination = \"10.2.0.0/21\"\nsource = \"10.1.0.0/16\"\nflows = 500";
    for idle in ["spin", "sleep"] {
        let text = tunnel(3, idle, "out").replacen("kind = \"synthetic\"", &format!("kind = \"synthetic\"\n{port}"), 1);
        let engine = Engine::new(config(&text), &Options::default()).unwrap();
        let time = Some(Duration::from_millis(200));
        let report = engine.run(&Arc::new(AtomicBool::new(false)), time, &mut |_| {}).unwrap();
        let conservation = report.conservation;
        assert!(conservation.holds() && conservation.in_flight == 0, "{conservation}");
        assert!(count(&report, "engine_exchanged") > 0 && conservation.dropped == 0, "{conservation}");
    }
}
