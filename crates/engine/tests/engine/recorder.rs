//! Function that records its packets: `template`, whose host half reads the number that a synthetic
//! port with `probe = true` writes to each packet.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use godwit_abi::{Descriptor, Outcome};
use godwit_engine::config::Config;
use godwit_engine::synthetic::PROBE_BYTES;
use godwit_function::{Complete, Contract, Function, HostHalf, Prepare, Work};
use godwit_packet::{ImageRef, Region};

/// Offset of the source port in an untagged IPv4 packet without options.
const SOURCE_PORT_AT: usize = 34;
/// Offset of the number in a probe.
const NUMBER_AT: usize = 4;

/// State that recorders share with the client that changes the chain.
pub(crate) struct Record {
    /// Packets by number.
    pub(crate) packets: Vec<Packet>,
    /// Number of requested changes of the chain.
    pub(crate) requested: AtomicU32,
    /// Number of changes with a reply.
    pub(crate) replied: AtomicU32,
    /// Number of packets that each recorder received.
    pub(crate) received: Vec<AtomicU64>,
}

/// Record of a packet.
#[derive(Default)]
pub(crate) struct Packet {
    /// Recorders that received the packet, four bits each, the last one in the lowest bits: their
    /// number plus 1. The value is 0 before the first.
    pub(crate) path: AtomicU32,
    /// Changes with a reply (upper 16 bits) and requested changes (lower 16 bits) when the packet
    /// reached the first recorder.
    pub(crate) changes: AtomicU32,
    pub(crate) source_port: AtomicU32,
}

impl Record {
    fn new(packets: usize, recorders: usize) -> Self {
        Self {
            packets: (0..packets).map(|_| Packet::default()).collect(),
            requested: AtomicU32::new(0),
            replied: AtomicU32::new(0),
            received: (0..recorders).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn add(&self, recorder: usize, frame: &[u8]) {
        self.received[recorder].fetch_add(1, Ordering::Release);
        let at = frame.len() - PROBE_BYTES + NUMBER_AT;
        let number = u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
        // Packets beyond the table are only counted.
        let Some(packet) = self.packets.get(number as usize) else { return };
        let path = packet.path.load(Ordering::Relaxed);
        if path == 0 {
            let [replied, requested] = [&self.replied, &self.requested].map(|count| count.load(Ordering::Acquire));
            packet.changes.store(replied << 16 | requested, Ordering::Relaxed);
            let port = u16::from_be_bytes([frame[SOURCE_PORT_AT], frame[SOURCE_PORT_AT + 1]]);
            packet.source_port.store(port.into(), Ordering::Relaxed);
        }
        packet.path.store(path << 4 | (recorder as u32 + 1), Ordering::Relaxed);
    }
}

/// Replaces the `template` functions with these names by recorders. A recorder with `true` gets
/// packets in order of arrival. The record has room for `packets` packets.
pub(crate) fn install(config: &mut Config, names: &[(&str, bool)], packets: usize) -> Arc<Record> {
    let record = Arc::new(Record::new(packets, names.len()));
    for (number, &(name, in_order)) in names.iter().enumerate() {
        let function = config.functions.iter_mut().find(|function| function.name == name).unwrap();
        let (inner, record) = (Arc::clone(&function.function), Arc::clone(&record));
        function.function = Arc::new(Recorder { inner, number, in_order, record });
    }
    record
}

struct Recorder {
    inner: Arc<dyn Function>,
    number: usize,
    in_order: bool,
    record: Arc<Record>,
}

/// Contract of `template`, but with packets in order.
static IN_ORDER: LazyLock<Contract> = LazyLock::new(|| {
    let template = godwit_function::KINDS.iter().find(|kind| kind.contract.kind == "template").unwrap();
    Contract { in_order: true, ..*template.contract }
});

impl Function for Recorder {
    fn contract(&self) -> &'static Contract {
        if self.in_order { &IN_ORDER } else { self.inner.contract() }
    }

    fn image(&self) -> ImageRef<'_> {
        self.inner.image()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<HostHalf> {
        let host = RecorderHost { number: self.number, record: Arc::clone(&self.record) };
        Some(HostHalf::Prepare(Box::new(host)))
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.inner.run_ref(buffer, descriptor, variant, parameter)
    }
}

struct RecorderHost {
    number: usize,
    record: Arc<Record>,
}

impl Complete for RecorderHost {}

impl Prepare for RecorderHost {
    fn prepare(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>) {
        for descriptor in descriptors {
            self.record.add(self.number, region.frame(descriptor));
            work.push(Work::Run { variant: 0, parameter: 0 });
        }
    }
}
