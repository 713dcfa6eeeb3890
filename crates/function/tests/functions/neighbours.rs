//! Address resolution by ARP in a router with a virtual clock. The tests pass single frames to the
//! workers.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_function::routing::NextHop;
use godwit_function::{Arrangement, BuildContext, Error, Function, HostHalf, PreviousOutcome, Step, Work, kind};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_test_support::FrameBuilder;
use godwit_test_support::frame::{ipv4_header, set_ipv4_checksum};
use godwit_wire::{Ipv4Header, protocol};
use toml::de::DeTable;

use super::running::Idle;

const MILLISECOND_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1000 * MILLISECOND_NS;
const HELD: usize = 3;
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 0x78];

const ROUTES: &str = r#"
    [[next_hop]]
    name = "net"
    port = "b"
    on_link = true
    mtu = 1000
    [[next_hop]]
    name = "up"
    port = "b"
    via = "10.2.0.254"
    [[route]]
    prefix = "10.2.0.0/24"
    next_hop = "net"
    [[route]]
    prefix = "0.0.0.0/0"
    next_hop = "up"
"#;

fn build(kind_name: &str, stanza: &str) -> Result<Arc<dyn Function>, Error> {
    let ports = ["a", "b"].map(str::to_owned);
    let context = BuildContext { name: "under test", ports: &ports, directory: Path::new(".") };
    (kind(kind_name).unwrap().build)(DeTable::parse(stanza).unwrap(), &context)
}

/// Router with a responder and two workers.
struct Router {
    route: Arc<dyn Function>,
    halves: Vec<HostHalf>,
    region: Region,
    now_ns: u64,
    order: u16,
}

#[derive(Debug, Default)]
struct Actions {
    /// Port and frame of each sent packet.
    sent: Vec<(u16, Vec<u8>)>,
    /// Number of packets that are now held.
    held: usize,
    /// Drop reason of each dropped packet.
    dropped: Vec<u8>,
    /// Number of held packets that expired.
    expired: u32,
}

impl Router {
    fn new() -> Self {
        let route = build("ipv4", ROUTES).unwrap();
        let interfaces = format!(
            "held_packets = {HELD}\n[[interface]]\nport = \"a\"\nmac = \"02:00:00:00:00:0a\"\naddresses = [\"10.1.0.1/24\"]\n\
             [[interface]]\nport = \"b\"\nmac = \"02:00:00:00:00:0b\"\naddresses = [\"10.9.0.1/24\", \"10.2.0.1/24\"]\n"
        );
        let responder = build("responder", &interfaces).unwrap();
        let all = [Arc::clone(&route), Arc::clone(&responder)];
        route.station().unwrap().connect(&all, 0).unwrap();
        let halves = (0..2).map(|worker| responder.host_half(worker, 2).unwrap()).collect();
        let region = Arena::new(ArenaConfig { packets: 64, ..ArenaConfig::default() }, 1).unwrap().split().remove(0);
        Self { route, halves, region, now_ns: SECOND_NS, order: 0 }
    }

    /// Passes packets to a worker. `unresolved` are packets from port `a` with their next hops, and
    /// `answers` are frames from port `b`.
    fn call(&mut self, worker: usize, unresolved: &[(u32, Vec<u8>)], answers: &[Vec<u8>]) -> Actions {
        let contract = Some(self.route.contract());
        let verdict = self.route.contract().verdict("unresolved").unwrap();
        let (mut arrived, mut previous) = (Vec::new(), Vec::new());
        let order = &mut self.order;
        let mut put = |region: &mut Region, frame: &[u8], port| {
            let packet = region.allocate(frame.len()).unwrap();
            region.frame_mut(&packet).copy_from_slice(frame);
            *order = order.wrapping_add(1);
            arrived.push(Descriptor { port, order: *order, flow_hash: 0x55, ..packet });
        };
        for (next_hop, frame) in unresolved {
            put(&mut self.region, frame, 0);
            previous.push(PreviousOutcome {
                contract,
                function: 0,
                outcome: Outcome { port: 1, value: *next_hop, ..Outcome::verdict(verdict) },
            });
        }
        for frame in answers {
            put(&mut self.region, frame, 1);
            previous.push(PreviousOutcome { contract: None, function: 0, outcome: Outcome::default() });
        }
        let mut steps = Vec::new();
        let wake_ns = self.halves[worker].arranging().unwrap().arrange(&mut Arrangement {
            region: &mut self.region,
            now_ns: self.now_ns,
            live: true,
            ending: false,
            arrived: &arrived,
            previous: &previous,
            stamps: &[],
            steps: &mut steps,
        });
        assert!(wake_ns > self.now_ns);
        let mut actions = Actions::default();
        for step in steps {
            match step {
                Step::Keep { packet, work } | Step::Resume { packet, work, .. } | Step::Create { packet, work } => {
                    let Work::Done(outcome) = work else { panic!("no kernel: {work:?}") };
                    // A packet with the verdict `other` is not sent.
                    if outcome.verdict != 2 {
                        actions.sent.push((outcome.port, self.region.frame(&packet).to_vec()));
                    }
                    self.region.release(&packet);
                }
                Step::Hold { packet } => {
                    actions.held += 1;
                    self.region.release(&packet);
                }
                Step::Drop { packet, reason } => {
                    actions.dropped.push(reason);
                    self.region.release(&packet);
                }
                Step::Expire { held, .. } => actions.expired += held,
                Step::Split { .. } | Step::Join { .. } => panic!("{step:?}"),
            }
        }
        assert_eq!(self.region.allocated(), 0);
        actions
    }

    /// Advances the clock in steps of 5 ms, and runs a worker after each step.
    fn pass(&mut self, worker: usize, ns: u64) -> Actions {
        let mut all = Actions::default();
        for _ in 0..ns / (5 * MILLISECOND_NS) {
            self.now_ns += 5 * MILLISECOND_NS;
            let actions = self.call(worker, &[], &[]);
            all.sent.extend(actions.sent);
            all.expired += actions.expired;
        }
        all
    }

    fn to(&self, address: &str) -> NextHop {
        self.route.housekeeping().unwrap().run(&Idle).unwrap();
        let routing = self.route.station().unwrap().routing().unwrap();
        let address: IpAddr = address.parse().unwrap();
        routing.next_hop(routing.find(address).unwrap().1).unwrap()
    }
}

/// Returns a packet from a host at port `a`. The identification and all payload bytes are `number`.
fn packet(number: u8, destination: [u8; 4], payload_bytes: usize) -> Vec<u8> {
    let header = Ipv4Header { identification: number.into(), ..ipv4_header([10, 1, 0, 2], destination, 0) };
    let builder = FrameBuilder::new().macs([2, 0, 0, 0, 0, 0xa], [2, 0, 0, 0, 0, 1]);
    builder.ipv4_header(header).ttl(9).payload(protocol::UDP, &vec![number; payload_bytes])
}

/// Returns an ARP reply to 10.2.0.1.
fn reply(sender: [u8; 4], mac: [u8; 6]) -> Vec<u8> {
    let mut frame = [OURS, mac].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    frame.extend(mac);
    frame.extend(sender);
    frame.extend(OURS);
    frame.extend([10, 2, 0, 1]);
    frame.resize(60, 0);
    frame
}

fn is_request(frame: &[u8], station: [u8; 4], to: [u8; 6]) -> bool {
    frame[..6] == to
        && frame[6..12] == OURS
        && frame[12..22] == [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]
        && frame[28..32] == [10, 2, 0, 1]
        && frame[38..42] == station
}

/// Returns the numbers of the packets that were sent to a station. Checks that the packets were
/// forwarded correctly.
fn numbers(actions: &Actions, station: [u8; 6]) -> Vec<u8> {
    let sent = actions.sent.iter().filter(|(_, frame)| frame[12..14] == [8, 0]);
    sent.map(|(port, frame)| {
        assert_eq!((*port, &frame[..6], &frame[6..12], frame[22]), (1, &station[..], &OURS[..], 8));
        godwit_wire::Ipv4::new_checked(&frame[14..]).unwrap().verify_checksum().unwrap();
        frame[19]
    })
    .collect()
}

#[test]
fn packets_wait_until_their_station_is_resolved() {
    let mut router = Router::new();
    let gateway = router.call(0, &[], &[]);
    assert_eq!(gateway.sent.len(), 1, "a gateway is resolved without a packet");
    assert!(is_request(&gateway.sent[0].1, [10, 2, 0, 254], [0xff; 6]));

    let to = [10, 2, 0, 7];
    let actions = router.call(0, &[(0, packet(1, to, 30)), (0, packet(2, to, 30))], &[]);
    assert_eq!((actions.held, actions.sent.len()), (2, 1), "{actions:?}");
    assert!(actions.sent[0].0 == 1 && is_request(&actions.sent[0].1, to, [0xff; 6]));
    // Each worker holds at most `HELD` packets.
    let actions = router.call(0, &[(0, packet(3, to, 30)), (0, packet(4, to, 30))], &[]);
    assert_eq!((actions.held, &actions.dropped[..], actions.sent.len()), (1, &[1][..], 0));
    assert_eq!(router.call(1, &[(0, packet(11, to, 30))], &[]).held, 1);
    assert!(matches!(router.to("10.2.0.7"), NextHop::Unresolved(_)));

    // The other worker receives the answer. Each worker sends its held packets in order, and then
    // newer packets.
    let actions = router.call(1, &[], &[reply(to, STATION)]);
    assert_eq!(numbers(&actions, STATION), [11]);
    let actions = router.call(0, &[(0, packet(5, to, 30))], &[]);
    assert_eq!((actions.held, numbers(&actions, STATION)), (1, vec![1, 2, 3, 5]), "{actions:?}");
    let actions = router.call(0, &[(0, packet(6, to, 30))], &[]);
    assert_eq!((actions.held, numbers(&actions, STATION)), (1, vec![6]));

    // A short time later, the station has a route. Packets with the unresolved next hop are then
    // sent at once.
    assert!(matches!(router.to("10.2.0.7"), NextHop::Unresolved(_)));
    router.pass(0, 30 * MILLISECOND_NS);
    let NextHop::Forward(adjacency) = router.to("10.2.0.7") else { panic!("no route") };
    assert_eq!((adjacency.destination.0, adjacency.source.0, adjacency.port, adjacency.mtu), (STATION, OURS, 1, 1000));
    let actions = router.call(0, &[(0, packet(7, to, 30))], &[]);
    assert_eq!((actions.held, numbers(&actions, STATION)), (0, vec![7]));
    // Other stations of the network stay unresolved.
    assert!(matches!(router.to("10.2.0.8"), NextHop::Unresolved(_)));

    // The station gets another MAC address, and its route changes.
    router.call(1, &[], &[reply(to, OTHER)]);
    let NextHop::Forward(adjacency) = router.to("10.2.0.7") else { panic!("no route") };
    assert_eq!(adjacency.destination.0, OTHER);

    // The station stops answering. It gets unicast requests and then broadcast requests. Then its
    // route is deleted.
    let actions = router.pass(0, 32 * SECOND_NS);
    assert!(actions.sent.iter().any(|(_, frame)| is_request(frame, to, OTHER)));
    let actions = router.pass(0, 10 * SECOND_NS);
    assert!(actions.sent.iter().any(|(_, frame)| is_request(frame, to, [0xff; 6])));
    assert!(matches!(router.to("10.2.0.7"), NextHop::Unresolved(_)));
    assert_eq!(router.route.station().unwrap().routing().unwrap().routes().len(), 2);
}

#[test]
fn a_gateway_that_answers_resolves_its_next_hop() {
    let mut router = Router::new();
    let far = [192, 0, 2, 1];
    let actions = router.call(0, &[(1, packet(1, far, 30))], &[]);
    assert_eq!((actions.held, actions.sent.len()), (1, 1));
    let actions = router.call(0, &[], &[reply([10, 2, 0, 254], STATION)]);
    assert_eq!(numbers(&actions, STATION), [1]);
    router.pass(0, 30 * MILLISECOND_NS);
    let NextHop::Forward(adjacency) = router.to("192.0.2.1") else { panic!("unresolved") };
    assert_eq!(adjacency.destination.0, STATION);
    // The gateway is also a station of the network, so it has a route.
    assert!(matches!(router.to("10.2.0.254"), NextHop::Forward(_)));
    router.pass(0, 60 * SECOND_NS);
    assert!(matches!(router.to("192.0.2.1"), NextHop::Unresolved(_)), "the gateway stopped answering");
    router.call(0, &[], &[reply([10, 2, 0, 254], OTHER)]);
    router.pass(0, 30 * MILLISECOND_NS);
    assert!(matches!(router.to("192.0.2.1"), NextHop::Forward(_)), "the gateway answers again");
}

#[test]
fn senders_get_icmp_errors_if_no_station_answers() {
    let mut router = Router::new();
    let to = [10, 2, 0, 7];
    let actions = router.call(0, &[(0, packet(1, to, 30)), (0, packet(2, to, 30))], &[]);
    assert_eq!(actions.held, 2);
    let actions = router.pass(0, 3 * SECOND_NS + 10 * MILLISECOND_NS);
    let requests = actions.sent.iter().filter(|(_, frame)| is_request(frame, to, [0xff; 6])).count();
    assert_eq!(requests, 2, "the first of three requests was sent before");
    let unreachable =
        |(port, frame): &&(u16, Vec<u8>)| *port == 0 && frame[12..14] == [8, 0] && frame[34..36] == [3, 1];
    assert_eq!(actions.sent.iter().filter(unreachable).count(), 2, "host unreachable, for both packets");
    // Packets that arrive soon after get an error at once. Later packets start the resolution
    // again.
    let actions = router.call(0, &[(0, packet(3, to, 30))], &[]);
    assert_eq!((actions.held, actions.sent.iter().filter(unreachable).count()), (0, 1));
    router.pass(0, 4 * SECOND_NS);
    assert_eq!(router.call(0, &[(0, packet(4, to, 30))], &[]).held, 1);
    // A packet that exceeds the MTU is not held, because it needs fragmentation.
    assert_eq!(router.call(0, &[(0, packet(5, to, 1200))], &[]).dropped, [1]);
    let mut whole = packet(6, to, 1200);
    whole[20] |= 0x40;
    let actions = router.call(0, &[(0, whole)], &[]);
    assert!(actions.sent.iter().any(|(_, frame)| frame[34..36] == [3, 4]), "fragmentation needed");
    // The network also contains the router's address, which is never resolved.
    let mut ping = packet(7, [10, 2, 0, 1], 8);
    ping[23] = 1;
    set_ipv4_checksum(&mut ping[14..34]);
    ping[34..42].copy_from_slice(&[8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    let actions = router.call(0, &[(0, ping)], &[]);
    assert!(actions.held == 0 && actions.sent.len() == 1 && actions.sent[0].1[34] == 0, "an echo reply: {actions:?}");
    // Held packets expire at the end of the run.
    let (mut steps, region) = (Vec::new(), &mut router.region);
    let now_ns = router.now_ns;
    let (arrived, previous) = (&[][..], &[][..]);
    let mut ending =
        Arrangement { region, now_ns, live: true, ending: true, arrived, previous, stamps: &[], steps: &mut steps };
    router.halves[0].arranging().unwrap().arrange(&mut ending);
    assert_eq!(steps, [Step::Expire { held: 1, reason: 1 }]);
}

#[test]
fn an_invalid_next_hop_is_refused() {
    let error_of = |stanza: &str| match build("ipv4", stanza) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("was accepted: {stanza}"),
    };
    let hop = |keys: &str| ROUTES.replace("on_link = true", keys);
    for (keys, part) in [
        ("on_link = true\nvia = \"10.2.0.9\"", "destination_mac, via and on_link"),
        ("via = \"here\"", "\"here\""),
        ("via = \"2001:db8::1\"", "2001:db8::1"),
        ("via = \"224.0.0.1\"", "224.0.0.1"),
        ("on_link = true\nlocal = true", "local"),
        ("destination_mac = \"02:00:00:00:00:01\"", "source_mac"),
        ("on_link = true\nsource_mac = \"03:00:00:00:00:01\"", "source_mac of next hop \"net\""),
    ] {
        let error = error_of(&hop(keys));
        assert!(error.contains(part), "{keys}: {error}");
    }
    let error = error_of(&ROUTES.replace("mtu = 1000", "mtu = 60"));
    assert!(error.contains("68 to 65535"), "{error}");
    let error = error_of(&format!("{ROUTES}[follow]\nroutes = \"kernel\"\ninterfaces = {{ b = \"eth0\" }}\n"));
    assert!(error.contains("follow"), "{error}");
    let route = build("ipv4", ROUTES).unwrap();
    let error = route.station().unwrap().connect(&[Arc::clone(&route)], 0).unwrap_err().to_string();
    assert!(error.contains("responder"), "{error}");
}
