//! Flows of a declared function, compared with a model: creation, both keys, limits, resources,
//! timers and the bounds of the table.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome, VERDICT_DROP};
use godwit_function::{BuildContext, Function, HostHalf, Work, custom};
use godwit_packet::{Arena, ArenaConfig, BUCKETS, Region, Steering};
use godwit_test_support::{Folder, Random};
use toml::de::DeTable;

/// Number of packets of the largest batch.
const PACKETS: usize = 100;
/// Maximum number of flows in the tested function.
const CAPACITY: usize = 40;
/// Maximum number of flows of one address.
const LIMIT: usize = 3;
/// First port of the pool. Each bucket has two ports of each of the two addresses.
const PORT_FIRST: u32 = 1000;
/// Durations of the two timers, in seconds.
const TIMERS: [u64; 2] = [7, 23];

/// A frame is | kind | timer | address 4 | port 2 |. The kinds are 0 (first key), 1 (second key),
/// and 2 (no flow). The parameter is | mapped port 16 | packets of the flow 16 |.
const SOURCE: &str = r#"/* godwit function flows_test
summary = "Keeps flows."
reads = 8
[verdicts]
pass = "Any packet."
[drops]
unknown = "No flow has the second key."
limited = "The limit is reached."
full = "The table is full."
no_port = "There is no port."
[params]
pool = { type = "ipv4[]", max = 2, default = "192.0.2.1,192.0.2.2", text = "Addresses." }
each = { type = "u32", default = 3, text = "Maximum number of flows of one address." }
[flows.flow]
key      = { address = "ipv4", port = "be16" }
reverse  = { address = "ipv4", port = "be16" }
row      = { address = "ipv4", port = "be16", packets = "u16" }
count    = true
capacity = 40
timeout  = { short = 7, long = 23 }
limit    = { by = "address", max = "each" }
[resources.port]
addresses = "pool"
ports     = [1000, 1255]
reverse   = ["address", "port"]
*/
#ifdef GW_HOST
GW_FIND gw_side gw_flows_test_find(const gw_lane *lane, const gw_packet *packet,
                                   gw_flows_test_flow_key *key, gw_flows_test_flow_reverse *reverse)
{
    (void)lane;
    if (packet->frame[0] == 0) {
        key->address = gw_load_be32(packet->frame + 2);
        key->port = (gw_u16)gw_load_be16(packet->frame + 6);
        return GW_FORWARD;
    }
    if (packet->frame[0] == 1) {
        reverse->address = gw_load_be32(packet->frame + 2);
        reverse->port = (gw_u16)gw_load_be16(packet->frame + 6);
        return GW_REVERSE;
    }
    return GW_NO_FLOW;
}

GW_MISS gw_flows_test_flow_row *gw_flows_test_miss(gw_flows_test *own, const gw_packet *packet,
                                                   gw_side side, const gw_flows_test_flow_key *key,
                                                   gw_outcome *outcome)
{
    gw_flows_test_flow_reverse reverse;
    gw_flows_test_flow_row *row;
    gw_u32 address;
    gw_u32 port;
    if (side == GW_REVERSE) {
        gw_drop(outcome, GW_FLOWS_TEST_UNKNOWN);
        return 0;
    }
    row = gw_flows_test_flow_create(own, key, 0);
    if (row == 0) {
        gw_drop(outcome, gw_flows_test_flow_is_limited(own) ? GW_FLOWS_TEST_LIMITED : GW_FLOWS_TEST_FULL);
        return 0;
    }
    if (!gw_flows_test_port_take(own, packet, key->address, &address, &port)) {
        gw_flows_test_flow_cancel(own, row);
        gw_drop(outcome, GW_FLOWS_TEST_NO_PORT);
        return 0;
    }
    reverse.address = address;
    reverse.port = (gw_u16)port;
    gw_flows_test_flow_reverse_set(own, row, &reverse);
    row->address = address;
    row->port = (gw_u16)port;
    return row;
}

GW_UPDATE gw_u64 gw_flows_test_update(gw_flows_test *own, gw_flows_test_flow_row *row,
                                      const gw_packet *packet, gw_side side)
{
    (void)own;
    (void)side;
    gw_flows_test_flow_timer(row, packet->frame[1]);
    row->packets++;
    return (gw_u64)row->address << 32 | (gw_u64)row->port << 16 | row->packets;
}
#endif
GW_LANE void gw_flows_test_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    (void)descriptor;
    gw_verdict(outcome, GW_FLOWS_TEST_PASS, 0, (gw_u32)lane->parameter);
}
"#;

fn build(folder: &Folder) -> Arc<dyn Function> {
    let path = folder.write("flows_test.c", SOURCE);
    let stanza = format!("source = \"{}\"\n", path.display());
    let context = BuildContext { name: "flows", ports: &[], directory: folder.path() };
    let stanza = DeTable::parse(&stanza).unwrap();
    godwit_function::build(custom::KIND_NAME, stanza, &context).unwrap_or_else(|error| panic!("{error}"))
}

/// A flow of the model.
#[derive(Clone, Copy)]
struct Flow {
    mapped: (u32, u16),
    packets: u16,
    seen_s: u64,
    timer: u8,
}

/// Result for a packet.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    NoFlow,
    /// Packets of the flow, and its mapped address and port if it is known.
    Flow(u16, Option<(u32, u16)>),
    Drop(&'static str),
}

#[derive(Default)]
struct Model {
    flows: HashMap<(u32, u16), Flow>,
    mapped: HashMap<(u32, u16), (u32, u16)>,
    now_s: u64,
    created: u64,
    expired: u64,
    refused: u64,
}

/// Returns the steering bucket of an address inside.
fn bucket(address: u32) -> u32 {
    (u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as u32
}

impl Model {
    fn pass_time(&mut self, seconds: u64) {
        self.now_s += seconds;
        let now_s = self.now_s;
        let before = self.flows.len();
        self.flows.retain(|_, flow| now_s - flow.seen_s <= TIMERS[usize::from(flow.timer)]);
        self.expired += (before - self.flows.len()) as u64;
        let flows = &self.flows;
        self.mapped.retain(|_, key| flows.contains_key(key));
    }

    fn expected(&mut self, frame: &[u8]) -> Expected {
        let key = (u32::from_be_bytes(frame[2..6].try_into().unwrap()), u16::from_be_bytes([frame[6], frame[7]]));
        let inside = match frame[0] {
            0 => key,
            1 => match self.mapped.get(&key) {
                Some(inside) => *inside,
                None => return Expected::Drop("unknown"),
            },
            _ => return Expected::NoFlow,
        };
        if !self.flows.contains_key(&inside) {
            let of_address = self.flows.keys().filter(|(address, _)| *address == inside.0).count();
            let in_bucket = self.flows.keys().filter(|(address, _)| bucket(*address) == bucket(inside.0)).count();
            let reason = match (self.flows.len() == CAPACITY, of_address == LIMIT, in_bucket == 4) {
                (true, _, _) => Some("full"),
                (_, true, _) => Some("limited"),
                (_, _, true) => Some("no_port"),
                _ => None,
            };
            if let Some(reason) = reason {
                self.refused += 1;
                return Expected::Drop(reason);
            }
            self.created += 1;
        }
        let now_s = self.now_s;
        let new = Flow { mapped: (0, 0), packets: 0, seen_s: now_s, timer: 0 };
        let flow = self.flows.entry(inside).or_insert(new);
        flow.packets += 1;
        (flow.seen_s, flow.timer) = (now_s, frame[1]);
        Expected::Flow(flow.packets, (flow.mapped.1 != 0).then_some(flow.mapped))
    }

    /// Learns and checks the address and port that the function chose for a new flow.
    fn learn(&mut self, frame: &[u8], mapped: (u32, u16)) {
        let inside = (u32::from_be_bytes(frame[2..6].try_into().unwrap()), u16::from_be_bytes([frame[6], frame[7]]));
        assert_eq!((u32::from(mapped.1) - PORT_FIRST) / 2, bucket(inside.0), "the port leads to the bucket");
        assert!([0xc000_0201, 0xc000_0202].contains(&mapped.0), "{mapped:x?}");
        assert_eq!(self.mapped.insert(mapped, inside), None, "the port is free");
        self.flows.get_mut(&inside).unwrap().mapped = mapped;
    }
}

/// Flows of one worker, with its packet memory.
struct Host {
    function: Arc<dyn Function>,
    host: HostHalf,
    region: Region,
}

impl Host {
    fn new(folder: &Folder) -> Self {
        let function = build(folder);
        let config = ArenaConfig { packets: PACKETS, ..ArenaConfig::default() };
        let region = Arena::new(config, 1).unwrap().split().remove(0);
        Self { host: function.host_half(0, 1).unwrap(), function, region }
    }

    fn prepare(&mut self, frames: &[Vec<u8>], now_ns: u64, times_ns: Option<&[u64]>) -> Vec<Work> {
        let mut packets: Vec<Descriptor> = Vec::new();
        for frame in frames {
            let packet = self.region.allocate(frame.len()).unwrap();
            self.region.frame_mut(&packet).copy_from_slice(frame);
            packets.push(packet);
        }
        let mut work = Vec::new();
        assert!(self.function.contract().host.reads_times);
        let host = self.host.preparing().unwrap();
        host.set_time(now_ns, times_ns);
        host.prepare(&self.region, &packets, &mut work);
        packets.iter().for_each(|packet| self.region.release(packet));
        work
    }

    /// Returns the mapped address and port, and the number of packets, that a parameter holds.
    #[track_caller]
    fn flow(work: Work) -> ((u32, u16), u16) {
        let Work::Run { variant: 0, parameter } = work else { panic!("{work:?}") };
        (((parameter >> 32) as u32, (parameter >> 16) as u16), parameter as u16)
    }

    fn drop_name(&self, outcome: Outcome) -> &'static str {
        assert_eq!(outcome.verdict, VERDICT_DROP);
        self.function.contract().drops[usize::from(outcome.reason)].name
    }
}

fn frame(kind: u8, timer: u8, address: u32, port: u16) -> Vec<u8> {
    [&[kind, timer][..], &address.to_be_bytes(), &port.to_be_bytes()].concat()
}

/// The function is named by its first line, so every test shares one loaded function.
#[test]
fn flows_behave_as_the_model() {
    let folder = Folder::new();
    let mut host = Host::new(&folder);
    let mut random = Random::new(25);
    let mut model = Model::default();
    let mut seen: HashSet<String> = HashSet::new();
    for _ in 0..3000 {
        // Time passes in steps in which all records are checked for their timers.
        if random.below(3) == 0 {
            model.pass_time(5 * (1 + random.below(3)));
        }
        let known: Vec<(u32, u16)> = model.mapped.keys().copied().collect();
        let count = 1 + random.below(PACKETS as u64) as usize;
        let mut frames = Vec::with_capacity(count);
        for _ in 0..count {
            let (timer, port) = (random.below(2) as u8, random.below(8) as u16);
            frames.push(match random.below(8) {
                0 => frame(2, timer, 1, 1),
                1 if !known.is_empty() => {
                    let (address, port) = known[random.below(known.len() as u64) as usize];
                    frame(1, timer, address, port)
                }
                2 => frame(1, timer, 0xc000_0201, 1000 + random.below(300) as u16),
                // Neighbours of these addresses often have the same bucket.
                _ => frame(0, timer, 0x0a00_0000 + 89 * random.below(60u32), port),
            });
        }
        let work = host.prepare(&frames, model.now_s * 1_000_000_000, None);
        assert_eq!(work.len(), frames.len());
        for (frame, work) in frames.iter().zip(work) {
            let expected = model.expected(frame);
            match &expected {
                Expected::NoFlow => assert_eq!(work, Work::Run { variant: 0, parameter: 0 }),
                Expected::Drop(reason) => {
                    let Work::Done(outcome) = work else { panic!("{expected:?}: {work:?}") };
                    assert_eq!(host.drop_name(outcome), *reason);
                }
                Expected::Flow(packets, mapped) => {
                    let (found, count) = Host::flow(work);
                    assert_eq!(count, *packets, "{frame:?}");
                    match mapped {
                        Some(mapped) => assert_eq!(found, *mapped),
                        None => model.learn(frame, found),
                    }
                }
            }
            seen.insert(format!("{expected:?}").split('(').next().unwrap().to_owned());
            if let Expected::Drop(reason) = expected {
                seen.insert(reason.to_owned());
            }
        }
        let counts = [model.flows.len() as u64, model.created, model.expired, model.refused];
        assert_eq!(host.function.operate().unwrap().counts(), counts);
    }
    for name in ["NoFlow", "Flow", "unknown", "limited", "full", "no_port"] {
        assert!(seen.contains(name), "{name} never happens: {seen:?}");
    }
    assert!(model.expired > 100, "{}", model.expired);
}

/// Both directions of a flow reach the worker that owns it, for any number of workers.
#[test]
fn both_directions_reach_one_worker() {
    let folder = Folder::new();
    let mut host = Host::new(&folder);
    let key = host.function.steer_key().unwrap();
    let bucket_of = |frame: &[u8]| key.steer_key(frame, &godwit_wire::parse(frame), 77) as usize % BUCKETS;
    for address in 1..30 {
        let out = frame(0, 0, address, 9);
        let ((mapped, port), _) = Host::flow(host.prepare(std::slice::from_ref(&out), 0, None)[0]);
        assert_eq!(bucket_of(&out), bucket_of(&frame(1, 0, mapped, port)), "{address}");
        assert_eq!(bucket_of(&out), bucket(address) as usize);
    }
    assert_eq!(bucket_of(&frame(2, 0, 1, 1)), 77, "the flow hash selects the worker");
    assert_eq!(bucket_of(&frame(1, 0, 1, 65_000)), 77, "the port is outside the pool");
    assert!(Steering::new(3, Some(key)).worker_of(127) < 3);
}

/// In a replay, the timestamps of packets are the clock, also within a batch.
#[test]
fn time_stamps_end_flows_in_a_replay() {
    let folder = Folder::new();
    let mut host = Host::new(&folder);
    let frames = vec![frame(0, 0, 1, 1); 4];
    let times_ns = [0, 7_000_000_000, 14_100_000_000, 14_000_000_000];
    let work = host.prepare(&frames, 99, Some(&times_ns));
    let packets: Vec<u16> = work.into_iter().map(|work| Host::flow(work).1).collect();
    // The last packet is older than the one before it, and does not turn the clock back.
    assert_eq!(packets, [1, 2, 1, 2]);
    host.prepare(&[], u64::MAX, Some(&[]));
    assert_eq!(host.function.operate().unwrap().counts(), [1, 2, 1, 0], "time passes only with packets");
    assert_eq!(host.function.operate().unwrap().tables(), [("flow".to_owned(), 1)]);
}
