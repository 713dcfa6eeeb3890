//! Builds functions from stanzas, and runs packets through every form of the kernel.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use godwit_abi::Outcome;
use godwit_function::{BuildContext, Function, HostHalf, Work};
use godwit_kernels::{BinCall, Level, Native};
use godwit_packet::{Arena, ArenaConfig, Descriptor, Region};
use godwit_test_support::frame::set_ipv4_checksum;
use godwit_test_support::hex::hex;
use godwit_test_support::{Random, skip};
use toml::de::DeTable;

/// Implementation that runs the packets.
#[derive(Clone, Copy)]
pub enum Form {
    /// Reference implementation.
    Ref,
    /// Kernel at a CPU level.
    Cpu(&'static Level),
    /// The native kernel. Variants that it does not cover run at the highest supported level, as on
    /// the CPU device.
    Native(&'static Native),
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ref => f.write_str("ref"),
            Self::Cpu(level) => f.write_str(level.name),
            Self::Native(native) => write!(f, "native {}", native.name),
        }
    }
}

/// Returns every form that this machine can run, starting with `ref`.
pub fn forms() -> Vec<Form> {
    let levels = godwit_kernels::levels().iter();
    for level in levels.clone().filter(|level| !level.supported()) {
        skip(format_args!("this CPU cannot run {}", level.name));
    }
    let natives = godwit_kernels::natives().iter().filter(|native| native.covers(godwit_kernels::IPSEC, 2));
    for native in natives.clone().filter(|native| !native.supported()) {
        skip(format_args!("this CPU cannot run native {}", native.name));
    }
    let levels = levels.filter(|level| level.supported()).map(Form::Cpu);
    let natives = natives.filter(|native| native.supported()).map(Form::Native);
    let forms: Vec<Form> = std::iter::once(Form::Ref).chain(levels).chain(natives).collect();
    assert!(forms.len() > 1, "the CPU supports no level");
    forms
}

/// Builds the function of a stanza.
pub fn build(stanza: &str) -> Arc<dyn Function> {
    let context = BuildContext { name: "ipsec under test", ports: &[], directory: Path::new(".") };
    let kind = godwit_function::kind("ipsec").unwrap();
    (kind.build)(DeTable::parse(stanza).unwrap(), &context).unwrap_or_else(|error| panic!("{error}"))
}

/// SA with AES-128-CBC and HMAC-SHA1-96.
#[derive(Clone)]
pub struct Sa {
    /// Name in the configuration.
    pub name: String,
    /// Security parameters index.
    pub spi: u32,
    /// `in` or `out`.
    pub direction: &'static str,
    /// Source address of the encapsulated packets.
    pub source: [u8; 4],
    /// Destination address of the encapsulated packets.
    pub destination: [u8; 4],
    /// Key of AES-128-CBC.
    pub encryption_key: [u8; 16],
    /// Key of HMAC-SHA1-96.
    pub authentication_key: [u8; 20],
    /// Further lines of the stanza.
    pub more: String,
}

impl Sa {
    /// Creates an SA from 192.0.2.1 to 192.0.2.2 with keys derived from `seed`.
    pub fn new(name: &str, spi: u32, direction: &'static str, seed: u8) -> Self {
        Self {
            name: name.to_owned(),
            spi,
            direction,
            source: [192, 0, 2, 1],
            destination: [192, 0, 2, 2],
            encryption_key: std::array::from_fn(|i| seed.wrapping_mul(29).wrapping_add(7 * i as u8)),
            authentication_key: std::array::from_fn(|i| seed.wrapping_mul(53).wrapping_add(11 * i as u8)),
            more: String::new(),
        }
    }

    /// Returns the stanza of the SA.
    pub fn stanza(&self) -> String {
        format!(
            "[[sa]]\nname = \"{}\"\nspi = {}\ndirection = \"{}\"\nsource = \"{}\"\ndestination = \"{}\"\n\
             encryption = \"aes-128-cbc\"\nencryption_key = \"{}\"\n\
             authentication = \"hmac-sha1-96\"\nauthentication_key = \"{}\"\n{}\n",
            self.name,
            self.spi,
            self.direction,
            std::net::Ipv4Addr::from(self.source),
            std::net::Ipv4Addr::from(self.destination),
            hex(&self.encryption_key),
            hex(&self.authentication_key),
            self.more,
        )
    }
}

/// Returns a policy that protects all packets with the SA called `name`.
pub fn protect_all(name: &str) -> String {
    format!("[[policy]]\naction = \"protect\"\nsa = \"{name}\"\n")
}

/// Processed packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Outcome of the function.
    pub outcome: Outcome,
    /// Frame after processing.
    pub frame: Vec<u8>,
    /// Offset of the frame in its buffer.
    pub head: u16,
    /// Contents of the whole buffer, including the frame.
    pub buffer: Vec<u8>,
    /// Range of the buffer that the packet occupied before or occupies now. A kernel may write
    /// these bytes, and leaves arbitrary values where the packet no longer is. It must not write
    /// any other bytes.
    pub used: Range<usize>,
}

impl Packet {
    /// Returns the bytes of the buffer that a kernel must not write.
    fn untouched(&self) -> [&[u8]; 2] {
        [&self.buffer[..self.used.start], &self.buffer[self.used.end..]]
    }
}

/// Asserts that the outcomes are equal, that the frames of packets that are not dropped are equal,
/// and that all other bytes of the buffers are unchanged.
#[track_caller]
pub fn assert_same(at: impl fmt::Display, expected: &[Packet], found: &[Packet]) {
    assert_eq!(expected.len(), found.len());
    for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
        assert_eq!(expected.outcome, found.outcome, "{at}: packet {index}");
        if expected.outcome.verdict != godwit_abi::VERDICT_DROP {
            assert_eq!(expected.head, found.head, "{at}: packet {index}");
            assert!(
                expected.frame == found.frame,
                "{at}: packet {index}: {:02x?} {:02x?}",
                expected.frame,
                found.frame
            );
        }
        assert!(expected.untouched() == found.untouched(), "{at}: packet {index}: written outside the frame");
    }
}

/// Packets in their own arena.
pub struct Batch {
    region: Region,
    descriptors: Vec<Descriptor>,
}

impl Batch {
    /// Copies frames to an arena with the default layout.
    pub fn new(frames: &[Vec<u8>]) -> Self {
        Self::with(frames, ArenaConfig::default())
    }

    /// Copies frames to an arena.
    pub fn with(frames: &[Vec<u8>], config: ArenaConfig) -> Self {
        let config = ArenaConfig { packets: frames.len().max(1), frame_bytes_max: 2048, ..config };
        let mut region = Arena::new(config, 1).unwrap().split().remove(0);
        let mut descriptors = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            let mut descriptor = region.allocate(frame.len()).unwrap();
            descriptor.order = index as u16;
            region.buffer_mut(&descriptor).fill(0xa5);
            region.frame_mut(&descriptor).copy_from_slice(frame);
            descriptors.push(descriptor);
        }
        Self { region, descriptors }
    }

    /// Prepares the packets with the host half of a single worker.
    pub fn prepare(&self, function: &dyn Function) -> Vec<Work> {
        let mut work = Vec::new();
        function.host_half(0, 1).unwrap().preparing().unwrap().prepare(&self.region, &self.descriptors, &mut work);
        work
    }

    /// Runs the kernel on the packets that need it, in bins of at most `bin_packets`.
    pub fn run(mut self, function: &dyn Function, form: Form, work: &[Work], bin_packets: usize) -> Vec<Packet> {
        let settled = |work: &Work| match work {
            Work::Done(outcome) => *outcome,
            Work::Run { .. } => Outcome::default(),
        };
        let mut outcomes: Vec<Outcome> = work.iter().map(settled).collect();
        let before = self.descriptors.clone();
        let variants: BTreeSet<u8> = work
            .iter()
            .filter_map(|work| match work {
                Work::Run { variant, .. } => Some(*variant),
                Work::Done(_) => None,
            })
            .collect();
        for variant in variants {
            let mut mine = Vec::new();
            for (index, work) in work.iter().enumerate() {
                match *work {
                    Work::Run { variant: other, parameter } if other == variant => mine.push((index, parameter)),
                    Work::Run { .. } | Work::Done(_) => {}
                }
            }
            for bin in mine.chunks(bin_packets) {
                let mut descriptors: Vec<Descriptor> = bin.iter().map(|(index, _)| self.descriptors[*index]).collect();
                let parameters: Vec<u64> = bin.iter().map(|(_, parameter)| *parameter).collect();
                let results = self.run_bin(function, form, variant, &mut descriptors, &parameters);
                for (((index, _), descriptor), outcome) in bin.iter().zip(descriptors).zip(results) {
                    self.descriptors[*index] = descriptor;
                    outcomes[*index] = outcome;
                }
            }
        }
        let Self { mut region, descriptors } = self;
        let packet = |((outcome, descriptor), before): ((Outcome, Descriptor), &Descriptor)| {
            let [old, new] = [before, &descriptor].map(|descriptor| {
                let head = usize::from(descriptor.head);
                head..head + usize::from(descriptor.length)
            });
            Packet {
                outcome,
                frame: region.frame(&descriptor).to_vec(),
                head: descriptor.head,
                buffer: region.buffer_mut(&descriptor).to_vec(),
                used: old.start.min(new.start)..old.end.max(new.end),
            }
        };
        outcomes.into_iter().zip(descriptors).zip(&before).map(packet).collect()
    }

    /// Runs the only packet through the host half, one form, and the host half again.
    pub fn through(mut self, function: &dyn Function, host_half: &mut HostHalf, form: Form) -> (Outcome, Vec<u8>) {
        let mut work = Vec::new();
        host_half.preparing().unwrap().prepare(&self.region, &self.descriptors, &mut work);
        let outcome = match work[0] {
            Work::Done(outcome) => outcome,
            Work::Run { variant, parameter } => {
                let mut descriptors = std::mem::take(&mut self.descriptors);
                let mut outcomes = self.run_bin(function, form, variant, &mut descriptors, &[parameter]);
                host_half.completing().complete(variant, &descriptors, &[parameter], &mut outcomes);
                self.descriptors = descriptors;
                outcomes[0]
            }
        };
        (outcome, self.region.frame(&self.descriptors[0]).to_vec())
    }

    fn run_bin(
        &mut self,
        function: &dyn Function,
        form: Form,
        variant: u8,
        descriptors: &mut [Descriptor],
        parameters: &[u64],
    ) -> Vec<Outcome> {
        // Initialized with invalid values, so that an outcome that the kernel does not write is
        // detected.
        let mut outcomes = vec![Outcome { verdict: 77, reason: 77, port: 77, value: 77 }; descriptors.len()];
        run_bin(&mut self.region, function, form, variant, descriptors, parameters, &mut outcomes);
        outcomes
    }
}

/// Runs one bin. The packets must be in buffers of `region`.
pub fn run_bin(
    region: &mut Region,
    function: &dyn Function,
    form: Form,
    variant: u8,
    descriptors: &mut [Descriptor],
    parameters: &[u64],
    outcomes: &mut [Outcome],
) {
    assert_eq!(descriptors.len(), parameters.len());
    assert_eq!(descriptors.len(), outcomes.len());
    assert!(descriptors.iter().all(|descriptor| region.contains(descriptor)));
    match form {
        Form::Ref => {
            for ((descriptor, parameter), outcome) in descriptors.iter_mut().zip(parameters).zip(outcomes) {
                *outcome = function.run_ref(region.buffer_mut(descriptor), descriptor, variant, *parameter);
            }
        }
        Form::Cpu(_) | Form::Native(_) => {
            let call = BinCall {
                arena: region.arena_base(),
                image: function.image().as_ptr(),
                descriptors: descriptors.as_mut_ptr(),
                parameters: parameters.as_ptr(),
                outcomes: outcomes.as_mut_ptr(),
                count: descriptors.len() as u32,
                variant: u32::from(variant),
                group: 0,
                counters: std::ptr::null_mut(),
            };
            let kernel = function.contract().bin_kernel();
            let level = match form {
                Form::Cpu(level) => level,
                _ => godwit_kernels::levels().iter().rfind(|level| level.supported()).unwrap(),
            };
            // SAFETY: the CPU supports the level and the native form. The arrays have `count`
            // elements. The descriptors refer to this region, which is borrowed exclusively. The
            // image belongs to the function.
            unsafe {
                match form {
                    Form::Native(native) if native.covers(kernel, variant) => native.run_bin(kernel, &call),
                    _ => level.run_bin(kernel, &call),
                }
            }
        }
    }
}

/// Runs frames through the host half and one form.
pub fn process(function: &dyn Function, form: Form, frames: &[Vec<u8>]) -> Vec<Packet> {
    let batch = Batch::new(frames);
    let work = batch.prepare(function);
    batch.run(function, form, &work, 32)
}

/// Sets the sequence numbers of the packets that go to the kernel.
pub fn set_sequences(work: &mut [Work], sequence: impl Fn(usize) -> u64) {
    const MASK: u64 = (1 << 44) - 1;
    for (index, work) in work.iter_mut().enumerate() {
        if let Work::Run { parameter, .. } = work {
            *parameter = *parameter & !MASK | sequence(index) & MASK;
        }
    }
}

/// Returns the name of a verdict or drop reason.
pub fn name(function: &dyn Function, outcome: Outcome) -> &'static str {
    let contract = function.contract();
    match outcome.verdict {
        godwit_abi::VERDICT_DROP => contract.drops[usize::from(outcome.reason)].name,
        verdict => contract.verdicts[usize::from(verdict)].name,
    }
}

/// Returns a valid IPv4 packet of `total` bytes, at least 20, with random contents.
pub fn packet(random: &mut Random, total: usize) -> Vec<u8> {
    let header_bytes = (20 + 4 * random.below(11)).min(total & !3);
    let mut packet = random.bytes(total);
    packet[0] = 0x40 | (header_bytes / 4) as u8;
    packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    set_ipv4_checksum(&mut packet);
    packet
}
