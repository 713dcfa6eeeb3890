//! Fuzz targets for packet functions and their kernels. A target panics if an invariant is
//! violated.

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use godwit_abi::{Bin, Descriptor, Outcome, PORT_FLOOD, VERDICT_DROP};
use godwit_device::cpu::CpuDevice;
use godwit_device::{Device, Implementation, Lane};
use godwit_function::dpi::{Case, Dpi};
use godwit_function::{
    Arrangement, BuildContext, Error, Function, HostHalf, PreviousOutcome, Running, Step, Work, ipsec, ipv4, ipv6, l2,
    ndn, nids,
};
use godwit_packet::{Arena, ArenaConfig, Region, Stamp};
use godwit_sched::Chunk;
use toml::de::DeTable;

use crate::control::program::FunctionProgram;
use crate::control::wiped::WipedValue;

/// A packet function, with the CPU device and the packet buffers that it needs.
struct Gateway {
    function: Arc<dyn Function>,
    host_half: Option<HostHalf>,
    lane: Box<dyn Lane>,
    region: Region,
    chunk: Option<Chunk>,
    /// Number of packets that were arranged.
    arranged: u64,
}

/// Time between two arranged packets, in nanoseconds.
const INTERVAL_NS: u64 = 1_000_000;
/// Maximum length of a frame, in bytes. Longer inputs are ignored.
const FRAME_BYTES_MAX: usize = 2048;
const PACKETS: usize = 80;

impl Gateway {
    fn new(function: Arc<dyn Function>) -> Self {
        let program = Arc::new(FunctionProgram::new("fuzzed".to_owned(), Arc::clone(&function)));
        let device = Arc::new(CpuDevice::new(vec![(program, Implementation::Scalar)]).expect("there is memory"));
        let config = ArenaConfig { packets: PACKETS, frame_bytes_max: FRAME_BYTES_MAX, ..Default::default() };
        Self {
            host_half: function.host_half(0, 1),
            function,
            lane: device.lane().expect("the CPU has a lane"),
            region: Arena::new(config, 1).expect("there is memory").split().remove(0),
            chunk: Some(Chunk::new(1, 1)),
            arranged: 0,
        }
    }

    fn pass(&mut self, port: u8, frame: &[u8]) {
        let mut original = self.region.allocate(frame.len()).expect("there is a buffer");
        original.port = port;
        self.region.buffer_mut(&original).fill(0x5a);
        self.region.frame_mut(&original).copy_from_slice(frame);
        let mut work = Vec::new();
        match self.host_half.as_mut().and_then(HostHalf::preparing) {
            Some(host_half) => host_half.prepare(&self.region, &[original], &mut work),
            None => work.push(Work::Run { variant: self.function.properties().variant, parameter: 0 }),
        }
        match work[..] {
            [Work::Done(outcome)] => self.check_outcome(outcome),
            [Work::Run { variant, parameter }] => self.run(original, variant, parameter),
            _ => panic!("{} work items for one packet", work.len()),
        }
        self.region.release(&original);
        assert_eq!(self.region.allocated(), 0);
    }

    fn arrange(&mut self, port: u8, frame: &[u8], previous: PreviousOutcome) {
        let mut original = self.region.allocate(frame.len()).expect("there is a buffer");
        original.port = port;
        self.region.frame_mut(&original).copy_from_slice(frame);
        let mut steps = Vec::new();
        let Some(host_half) = self.host_half.as_mut().and_then(HostHalf::arranging) else { return };
        let stamp = Stamp { sequence: self.arranged, time_ns: self.arranged * INTERVAL_NS };
        self.arranged += 1;
        host_half.arrange(&mut Arrangement {
            region: &mut self.region,
            now_ns: stamp.time_ns,
            live: false,
            ending: false,
            arrived: &[original],
            previous: &[previous],
            stamps: &[stamp],
            steps: &mut steps,
        });
        for step in steps {
            match step {
                Step::Keep { packet, work }
                | Step::Split { packet, work }
                | Step::Resume { packet, work, .. }
                | Step::Create { packet, work } => self.work(packet, work),
                Step::Join { packet, whole, work, .. } => {
                    if whole.buffer != packet.buffer {
                        self.region.release(&packet);
                    }
                    self.work(whole, work);
                }
                Step::Hold { packet } => self.region.release(&packet),
                Step::Drop { packet, reason } => {
                    self.check_outcome(Outcome::drop(reason));
                    self.region.release(&packet);
                }
                Step::Expire { reason, .. } => self.check_outcome(Outcome::drop(reason)),
            }
        }
        assert_eq!(self.region.allocated(), 0);
    }

    fn work(&mut self, packet: Descriptor, work: Work) {
        assert!(self.region.contains(&packet));
        match work {
            Work::Done(outcome) => self.check_outcome(outcome),
            Work::Run { variant, parameter } => self.run(packet, variant, parameter),
        }
        self.region.release(&packet);
    }

    /// Compares the result of the kernel with the result of the reference implementation.
    fn run(&mut self, original: Descriptor, variant: u8, parameter: u64) {
        let mut buffer = self.region.buffer_mut(&original).to_vec();
        let mut expected = original;
        let outcome = self.function.run_ref(&mut buffer, &mut expected, variant, parameter);
        let mut chunk = self.chunk.take().expect("every run returns the chunk");
        chunk.bins.clear();
        let kernel = self.function.contract().bin_kernel();
        chunk.bins.push(Bin { count: 1, kernel, variant, length_bytes: original.length, ..Bin::default() });
        chunk.packets = 1;
        (chunk.descriptors[0], chunk.parameters[0]) = (original, parameter);
        self.lane.submit(&mut self.region, chunk).expect("the chunk is sound");
        let mut chunk =
            self.lane.poll(&mut self.region).expect("the CPU does not fail").expect("the chunk is finished");
        let mut after = chunk.descriptors[0];
        assert_eq!(chunk.outcomes[0], outcome, "the kernel and ref do not agree");
        if outcome.verdict != VERDICT_DROP {
            assert_eq!(after, expected);
            let head = usize::from(expected.head);
            let frame = &buffer[head..head + usize::from(expected.length)];
            assert!(self.region.frame(&after) == frame, "the kernel and ref make different packets");
        }
        if let Some(host_half) = self.host_half.as_mut().map(HostHalf::completing) {
            host_half.complete(variant, &[after], &[parameter], &mut chunk.outcomes[..1]);
            host_half.finish(&mut self.region, std::slice::from_mut(&mut after), &mut chunk.outcomes[..1]);
        }
        assert!(self.region.contains(&after));
        self.check_outcome(chunk.outcomes[0]);
        self.flood(&after, chunk.outcomes[0]);
        self.chunk = Some(chunk);
    }

    /// Checks that all copies of a flooded packet stay within their buffers.
    fn flood(&mut self, packet: &Descriptor, outcome: Outcome) {
        if outcome.verdict == VERDICT_DROP || outcome.port != PORT_FLOOD {
            return;
        }
        let Some(part) = self.function.flood() else { return };
        for &port in part.ports(outcome.value) {
            let mut copy = self.region.duplicate(packet).expect("there is a buffer");
            let buffer = copy;
            part.prepare_copy(self.region.buffer_mut(&buffer), &mut copy, port, outcome.value);
            assert!(self.region.contains(&copy));
            self.region.release(&copy);
        }
    }

    /// Checks that the function declares the verdict or drop reason that its kernel returned.
    fn check_outcome(&self, outcome: Outcome) {
        let contract = self.function.contract();
        match outcome.verdict {
            VERDICT_DROP => assert!(usize::from(outcome.reason) < contract.drops.len()),
            verdict => assert!(usize::from(verdict) < contract.verdicts.len()),
        }
    }
}

/// Builds a function from its stanza, with three ports.
fn build(kind: &str, stanza: &str) -> Arc<dyn Function> {
    let ports = ["a", "b", "c"].map(str::to_owned);
    let context = BuildContext { name: "fuzzed", ports: &ports, directory: Path::new(".") };
    let stanza = DeTable::parse(stanza).expect("the stanza is TOML");
    godwit_function::build(kind, stanza, &context).expect("the stanza is valid")
}

const ROUTES: &str = r#"
[[next_hop]]
name = "east"
port = "b"
destination_mac = "02:00:00:00:00:0a"
source_mac = "02:00:00:00:00:0b"
mtu = 600
[[next_hop]]
name = "here"
local = true
[[next_hop]]
name = "nowhere"
blackhole = true
[[route]]
prefix = "10.0.0.0/8"
next_hop = "east"
[[route]]
prefix = "10.1.0.0/16"
next_hop = "here"
[[route]]
prefix = "10.1.2.128/25"
next_hop = "nowhere"
"#;

const TUNNELS: &str = r#"
[[sa]]
name = "cbc"
spi = 0x1001
direction = "out"
source = "192.0.2.1"
destination = "192.0.2.2"
encryption = "aes-128-cbc"
encryption_key = "000102030405060708090a0b0c0d0e0f"
authentication = "hmac-sha1-96"
authentication_key = "000102030405060708090a0b0c0d0e0f10111213"
path_mtu = 600
[[policy]]
action = "bypass"
protocol = "icmp"
[[policy]]
action = "protect"
destination = "10.0.0.0/8"
sa = "cbc"
"#;

const RESPONDER: &str = r#"
[[interface]]
port = "a"
mac = "02:00:00:00:00:01"
addresses = ["10.1.0.1/24", "2001:db8::1/64"]
[[interface]]
port = "b"
mac = "02:00:00:00:00:02"
addresses = ["192.0.2.1/24"]
"#;

/// Fuzzes IPv4 forwarding. `data` is a frame. The kernel and the reference implementation must
/// agree.
pub fn ipv4_frame(data: &[u8]) {
    thread_local! {
        static ROUTER: RefCell<Gateway> = RefCell::new(Gateway::new(build("ipv4", ROUTES)));
    }
    if data.len() <= FRAME_BYTES_MAX {
        ROUTER.with_borrow_mut(|router| router.pass(0, data));
    }
}

/// Fuzzes the function `template`. `data` is a frame. The kernel and the reference implementation
/// must agree.
pub fn template_frame(data: &[u8]) {
    thread_local! {
        static FUNCTION: RefCell<Gateway> = RefCell::new(Gateway::new(build("template", "")));
    }
    if data.len() <= FRAME_BYTES_MAX {
        FUNCTION.with_borrow_mut(|function| function.pass(0, data));
    }
}

/// Fuzzes the function `echo`. `data` is a frame. The kernel and the reference implementation must
/// agree.
pub fn echo_frame(data: &[u8]) {
    thread_local! {
        static FUNCTION: RefCell<Gateway> = RefCell::new(Gateway::new(build("echo", "")));
    }
    if data.len() <= FRAME_BYTES_MAX {
        FUNCTION.with_borrow_mut(|function| function.pass(0, data));
    }
}

/// Fuzzes the payload search. `data` is a frame. The kernel and the reference implementation must
/// agree.
pub fn dpi_frame(data: &[u8]) {
    thread_local! {
        static SEARCHES: RefCell<[Gateway; 2]> = RefCell::new([Case::Sensitive, Case::Insensitive].map(|case| {
            let patterns = ["GET /", "/etc/passwd", "aab", "abab", "\u{0}\u{0}\u{0}\u{1}", "a"];
            let patterns = patterns.map(|pattern| pattern.as_bytes().to_vec()).to_vec();
            Gateway::new(Arc::new(Dpi::new(patterns, case).expect("a few patterns fit")))
        }));
    }
    if data.len() <= FRAME_BYTES_MAX {
        SEARCHES.with_borrow_mut(|searches| searches.iter_mut().for_each(|search| search.pass(0, data)));
    }
}

/// Fuzzes the digests of packets. `data` is a frame. The kernel and the reference implementation
/// must agree.
pub fn hash_frame(data: &[u8]) {
    thread_local! {
        static HASHES: RefCell<[Gateway; 3]> = RefCell::new(
            [("md5", "frame"), ("sha1", "payload"), ("sha256", "payload")].map(|(algorithm, over)| {
                Gateway::new(build("hash", &format!("algorithm = '{algorithm}'\nover = '{over}'")))
            }),
        );
    }
    if data.len() <= FRAME_BYTES_MAX {
        HASHES.with_borrow_mut(|hashes| hashes.iter_mut().for_each(|hash| hash.pass(0, data)));
    }
}

/// Fuzzes the function `aes`. `data` is a frame. The kernel and the reference implementation must
/// agree.
pub fn aes_frame(data: &[u8]) {
    thread_local! {
        static CIPHERS: RefCell<Vec<Gateway>> = RefCell::new(
            [("aes-128-cbc", 16), ("chacha20-poly1305", 32)]
                .into_iter()
                .flat_map(|(cipher, key_bytes)| {
                    let key: String = (0..key_bytes).map(|byte| format!("{byte:02x}")).collect();
                    ["encrypt", "decrypt"].map(|direction| {
                        let stanza = format!("cipher = '{cipher}'\ndirection = '{direction}'\nkey = '{key}'");
                        Gateway::new(build("aes", &stanza))
                    })
                })
                .collect(),
        );
    }
    if data.len() <= FRAME_BYTES_MAX {
        CIPHERS.with_borrow_mut(|ciphers| ciphers.iter_mut().for_each(|cipher| cipher.pass(0, data)));
    }
}

/// Fuzzes the outbound path of IPsec, which splits packets that are too long. `data` is a frame.
/// The kernel and the reference implementation must agree.
pub fn ipsec_outbound(data: &[u8]) {
    thread_local! {
        static GATEWAY: RefCell<Gateway> = RefCell::new(Gateway::new(build("ipsec", TUNNELS)));
    }
    if data.len() <= FRAME_BYTES_MAX {
        let previous = PreviousOutcome { contract: None, function: 0, outcome: Outcome::default() };
        GATEWAY.with_borrow_mut(|gateway| gateway.arrange(0, data, previous));
    }
}

/// Passes a frame to the intrusion detection. Its flows consist of this frame and earlier ones.
pub fn nids_frame(data: &[u8]) {
    thread_local! {
        static SENSOR: RefCell<Gateway> = RefCell::new(Gateway::new(nids::fuzz::function()));
    }
    if data.len() <= FRAME_BYTES_MAX {
        let previous = PreviousOutcome { contract: None, function: 0, outcome: Outcome::default() };
        SENSOR.with_borrow_mut(|sensor| sensor.arrange(0, data, previous));
    }
}

/// Fuzzes the responder. The first byte of `data` selects the verdict of the previous function. The
/// second byte determines the value of that verdict. The rest is a frame.
pub fn responder_frame(data: &[u8]) {
    thread_local! {
        static RESPONDER_HOST: RefCell<Gateway> = RefCell::new(Gateway::new(build("responder", RESPONDER)));
    }
    let [verdict, value, frame @ ..] = data else { return };
    if frame.len() > FRAME_BYTES_MAX {
        return;
    }
    let contract = match verdict >> 6 {
        0 => None,
        1 => Some(&ipv6::CONTRACT),
        _ => Some(&ipv4::CONTRACT),
    };
    let outcome = Outcome { port: 1, value: 68 + 6 * u32::from(*value), ..Outcome::verdict(verdict & 15) };
    let previous = PreviousOutcome { contract, function: 0, outcome };
    RESPONDER_HOST.with_borrow_mut(|host| host.arrange(0, frame, previous));
}

/// Engine without packets and devices.
struct Idle;

impl Running for Idle {
    fn image_changed(&self, _range: Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Fuzzes requests of the control socket. The first byte of `data` selects a function, and the rest
/// is the request. An error must be one sentence.
pub fn control_request(data: &[u8]) {
    thread_local! {
        static FUNCTIONS: [Arc<dyn Function>; 5] = [
            build("ipv4", ROUTES),
            ipv6::fuzz::function(ipv6::Form::Trie),
            l2::fuzz::function(),
            ndn::fuzz::function(),
            build("ipsec", TUNNELS),
        ];
    }
    let Some((&function, request)) = data.split_first() else { return };
    let Ok(request) = serde_json::from_slice::<WipedValue>(request) else { return };
    FUNCTIONS.with(|functions| {
        let Some(part) = functions[usize::from(function) % functions.len()].operate() else { return };
        if let Err(error) = part.command(&request.0, &Idle) {
            let sentence = error.to_string();
            assert!(!sentence.is_empty() && !sentence.contains('\n'), "{sentence:?}");
        }
    });
}

/// Fuzzes the inbound path of IPsec. `data` becomes either a frame for an inbound SA, or the
/// content of a packet with valid authentication ([`ipsec::fuzz::frame`]).
pub fn ipsec_inbound(data: &[u8]) {
    thread_local! {
        static GATEWAY: RefCell<Gateway> = RefCell::new(Gateway::new(ipsec::fuzz::function()));
    }
    let frame = ipsec::fuzz::frame(data);
    if frame.len() <= FRAME_BYTES_MAX {
        GATEWAY.with_borrow_mut(|gateway| gateway.pass(0, &frame));
    }
}

/// Fuzzes the switch. `data` contains the ingress port and a frame. The kernel and the reference
/// implementation must agree.
pub fn l2_frame(data: &[u8]) {
    thread_local! {
        static SWITCH: RefCell<Gateway> = RefCell::new(Gateway::new(l2::fuzz::function()));
    }
    let Some((&port, frame)) = data.split_first() else { return };
    if frame.len() <= FRAME_BYTES_MAX {
        SWITCH.with_borrow_mut(|switch| switch.pass(port, frame));
    }
}

/// Fuzzes the parser of static MAC address files. `data` is such a file. An error must name an
/// existing line.
pub fn l2_macs(data: &[u8]) {
    let lines = 1 + data.iter().filter(|&&byte| byte == b'\n').count();
    let port = |vid: u16, name: &str| match name.len() {
        0..9 => Ok(vid as u8),
        _ => Err(godwit_function::Error::Command { message: "no such port".to_owned() }),
    };
    match l2::parse_macs(data, port) {
        Ok(macs) => assert!(macs.len() <= lines),
        Err((line, message)) => assert!((1..=lines).contains(&line) && !message.is_empty()),
    }
}

/// Fuzzes IPv6 forwarding. `data` is a frame. One router stores its routes in a trie, and another
/// in hash tables. Each kernel must agree with the reference implementation.
pub fn ipv6_frame(data: &[u8]) {
    thread_local! {
        static ROUTERS: RefCell<[Gateway; 2]> = RefCell::new(
            [ipv6::Form::Trie, ipv6::Form::Hash].map(|form| Gateway::new(ipv6::fuzz::function(form))),
        );
    }
    if data.len() <= FRAME_BYTES_MAX {
        ROUTERS.with_borrow_mut(|routers| routers.iter_mut().for_each(|router| router.pass(0, data)));
    }
}

/// Fuzzes the NDN forwarder. `data` becomes a frame, or the content of an NDN Interest packet
/// ([`ndn::fuzz::frame`]).
pub fn ndn_interest(data: &[u8]) {
    thread_local! {
        static FORWARDER: RefCell<Gateway> = RefCell::new(Gateway::new(ndn::fuzz::function()));
    }
    let frame = ndn::fuzz::frame(data);
    if frame.len() <= FRAME_BYTES_MAX {
        FORWARDER.with_borrow_mut(|forwarder| forwarder.pass(0, &frame));
    }
}

/// Fuzzes the parser of NDN name files. `data` is such a file. A parsed name must survive the
/// conversion to text and back. An error must name an existing line.
pub fn ndn_names(data: &[u8]) {
    let lines = 1 + data.iter().filter(|&&byte| byte == b'\n').count();
    let hops = [(&b"a"[..], 0), (b"lan", 1)];
    let mut names = ndn::Names::new();
    match ndn::parse_names(data, hops, Some(2), &mut names) {
        Ok(()) => assert!(names.len() <= lines),
        Err((line, message)) => assert!((1..=lines).contains(&line) && !message.is_empty()),
    }
    let mut again = ndn::Names::new();
    for (name, next_hop) in names.iter() {
        assert!(name.len() <= ndn::NAME_BYTES_MAX && next_hop < 3);
        again.push_uri(ndn::show_uri(name).as_bytes(), next_hop).expect("a printed name parses");
    }
    assert_eq!(names, again);
}
