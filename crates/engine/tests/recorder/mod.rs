//! A function that writes down which packets come to it: `template`, whose host half reads the number that every packet of a
//! synthetic port with `probe = true` has.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use godwit_abi::{Descriptor, Outcome};
use godwit_engine::config::Config;
use godwit_engine::synthetic::PROBE_BYTES;
use godwit_function::{Contract, Function, HostHalf, Work};
use godwit_packet::{ImageRef, Region};

/// Where the source port of an untagged IPv4 packet without options is.
const SOURCE_PORT_AT: usize = 34;
/// Where a probe has its number.
const NUMBER_AT: usize = 4;

/// What recorders and whoever changes the chain tell each other.
pub(crate) struct Record {
    packets: Vec<Packet>,
    /// Chains that were asked for.
    pub(crate) asked: AtomicU32,
    /// Chains that were asked for and answered.
    pub(crate) answered: AtomicU32,
    /// By recorder: packets that came.
    pub(crate) came: Vec<AtomicU64>,
}

/// Where a packet was.
#[derive(Default)]
struct Packet {
    /// The recorders, four bits each, the last in the lowest: their number plus 1.
    path: AtomicU32,
    /// What was answered and asked when it came to the first, 16 bits each.
    when: AtomicU32,
    source_port: AtomicU32,
}

/// What is known of a packet that came to any recorder.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "a measurement reads less than a test")]
pub(crate) struct Seen {
    pub(crate) path: u32,
    pub(crate) answered: u32,
    pub(crate) asked: u32,
    pub(crate) source_port: u16,
}

impl Record {
    fn new(packets: usize, recorders: usize) -> Self {
        Self {
            packets: (0..packets).map(|_| Packet::default()).collect(),
            asked: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            came: (0..recorders).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The packets that came to any recorder, by number.
    #[allow(dead_code, reason = "a measurement reads less than a test")]
    pub(crate) fn packets(&self) -> impl Iterator<Item = (usize, Seen)> {
        let seen = self.packets.iter().map(|Packet { path, when, source_port }| {
            let [path, when, source_port] = [path, when, source_port].map(|word| word.load(Ordering::Relaxed));
            Seen { path, answered: when >> 16, asked: when & 0xffff, source_port: source_port as u16 }
        });
        seen.enumerate().filter(|(_, seen)| seen.path != 0)
    }

    fn came(&self, recorder: usize, frame: &[u8]) {
        self.came[recorder].fetch_add(1, Ordering::Release);
        let at = frame.len() - PROBE_BYTES + NUMBER_AT;
        let number = u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
        // Packets beyond the table are counted only.
        let Some(packet) = self.packets.get(number as usize) else { return };
        let path = packet.path.load(Ordering::Relaxed);
        if path == 0 {
            let [answered, asked] = [&self.answered, &self.asked].map(|count| count.load(Ordering::Acquire));
            packet.when.store(answered << 16 | asked, Ordering::Relaxed);
            let port = u16::from_be_bytes([frame[SOURCE_PORT_AT], frame[SOURCE_PORT_AT + 1]]);
            packet.source_port.store(port.into(), Ordering::Relaxed);
        }
        packet.path.store(path << 4 | (recorder as u32 + 1), Ordering::Relaxed);
    }
}

/// Puts recorders in the places of the configured `template` functions with these names; those with `true` see packets in
/// order of arrival. There is room for `packets` packets.
pub(crate) fn put(config: &mut Config, names: &[(&str, bool)], packets: usize) -> Arc<Record> {
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

/// That of `template`, but in order.
static IN_ORDER: LazyLock<Contract> = LazyLock::new(|| {
    let template = godwit_function::KINDS.iter().find(|kind| kind.contract.kind == "template").unwrap();
    let Contract { kind, summary, kernel, verdicts, drops, variants, tailroom_saved, counters, spec, .. } =
        *template.contract;
    let Contract { reads_bytes, writes_bytes, headroom_bytes, tailroom_bytes, .. } = *template.contract;
    Contract {
        kind,
        summary,
        kernel,
        verdicts,
        drops,
        variants,
        in_order: true,
        reads_bytes,
        writes_bytes,
        headroom_bytes,
        tailroom_bytes,
        tailroom_saved,
        counters,
        spec,
    }
});

impl Function for Recorder {
    fn contract(&self) -> &'static Contract {
        if self.in_order { &IN_ORDER } else { self.inner.contract() }
    }

    fn image(&self) -> ImageRef<'_> {
        self.inner.image()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<Box<dyn HostHalf>> {
        Some(Box::new(RecorderHost { number: self.number, record: Arc::clone(&self.record) }))
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.inner.run_ref(buffer, descriptor, variant, parameter)
    }
}

struct RecorderHost {
    number: usize,
    record: Arc<Record>,
}

impl HostHalf for RecorderHost {
    fn prepare(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>) {
        for descriptor in descriptors {
            self.record.came(self.number, region.frame(descriptor));
            work.push(Work::Run { variant: 0, parameter: 0 });
        }
    }
}
