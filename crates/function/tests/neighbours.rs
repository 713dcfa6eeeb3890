//! Stations that this machine asks for by itself: a router's host halves and tables, frame by frame, on a clock of the test's own.

use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_function::routing::NextHop;
use godwit_function::{
    Arrangement, BuildContext, Error, Function, HostHalf, PreviousOutcome, Running, Step, Work, kind,
};
use godwit_packet::{Arena, ArenaConfig, Region};
use toml::de::DeTable;

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

struct Idle;

impl Running for Idle {
    fn image_changed(&self, _range: Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn build(which: &str, stanza: &str) -> Result<Arc<dyn Function>, Error> {
    let ports = ["a", "b"].map(str::to_owned);
    let site = BuildContext { name: "under test", ports: &ports, directory: Path::new(".") };
    (kind(which).unwrap().build)(DeTable::parse(stanza).unwrap(), &site)
}

/// A router with a responder, and what a worker has of them.
struct Router {
    route: Arc<dyn Function>,
    halves: Vec<Box<dyn HostHalf>>,
    region: Region,
    now_ns: u64,
    order: u16,
}

/// What a worker's host half did in one call: packets that go on, by port and frame; and how many it held, dropped and gave up.
#[derive(Debug, Default)]
struct Did {
    gone: Vec<(u16, Vec<u8>)>,
    held: usize,
    dropped: Vec<u8>,
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
        route.connect(&all, 0).unwrap();
        let halves = (0..2).map(|worker| responder.host_half(worker, 2).unwrap()).collect();
        let region = Arena::new(ArenaConfig { packets: 64, ..ArenaConfig::default() }, 1).unwrap().split().remove(0);
        Self { route, halves, region, now_ns: SECOND_NS, order: 0 }
    }

    /// One call of a worker's host half, with packets that came by port `a`, or, `answers`, by port `b`.
    fn call(&mut self, worker: usize, unresolved: &[(u32, Vec<u8>)], answers: &[Vec<u8>]) -> Did {
        let by = Some(self.route.contract());
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
                contract: by,
                function: 0,
                outcome: Outcome { port: 1, value: *next_hop, ..Outcome::verdict(verdict) },
            });
        }
        for frame in answers {
            put(&mut self.region, frame, 1);
            previous.push(PreviousOutcome { contract: None, function: 0, outcome: Outcome::default() });
        }
        let mut steps = Vec::new();
        let wake_ns = self.halves[worker].arrange(&mut Arrangement {
            region: &mut self.region,
            now_ns: self.now_ns,
            live: true,
            ending: false,
            arrived: &arrived,
            previous: &previous,
            steps: &mut steps,
        });
        assert!(wake_ns > self.now_ns);
        let mut did = Did::default();
        for step in steps {
            match step {
                Step::Keep { packet, work } | Step::Resume { packet, work, .. } | Step::Create { packet, work } => {
                    let Work::Done(outcome) = work else { panic!("no kernel: {work:?}") };
                    // `other`: nothing of it goes anywhere.
                    if outcome.verdict != 2 {
                        did.gone.push((outcome.port, self.region.frame(&packet).to_vec()));
                    }
                    self.region.release(&packet);
                }
                Step::Hold { packet } => {
                    did.held += 1;
                    self.region.release(&packet);
                }
                Step::Drop { packet, reason } => {
                    did.dropped.push(reason);
                    self.region.release(&packet);
                }
                Step::Expire { held, .. } => did.expired += held,
                Step::Split { .. } | Step::Join { .. } => panic!("{step:?}"),
            }
        }
        assert_eq!(self.region.allocated(), 0);
        did
    }

    /// Lets time pass in steps of 5 ms, on one worker; what happened.
    fn pass(&mut self, worker: usize, ns: u64) -> Did {
        let mut all = Did::default();
        for _ in 0..ns / (5 * MILLISECOND_NS) {
            self.now_ns += 5 * MILLISECOND_NS;
            let did = self.call(worker, &[], &[]);
            all.gone.extend(did.gone);
            all.expired += did.expired;
        }
        all
    }

    fn to(&self, address: &str) -> NextHop {
        self.route.housekeeping(&Idle).unwrap();
        let routing = self.route.routing().unwrap();
        let address: IpAddr = address.parse().unwrap();
        routing.next_hop(routing.find(address).unwrap().1).unwrap()
    }
}

/// A UDP packet from a host at port `a`, numbered.
fn packet(number: u8, destination: [u8; 4], payload: usize) -> Vec<u8> {
    let mut frame = [[2, 0, 0, 0, 0, 0xa], [2, 0, 0, 0, 0, 1]].concat();
    frame.extend([8, 0]);
    let header = godwit_wire::Ipv4Header {
        traffic_class: 0,
        identification: number.into(),
        dont_fragment: false,
        more_fragments: false,
        fragment_offset_bytes: 0,
        ttl: 9,
        protocol: 17,
        source: [10, 1, 0, 2],
        destination,
        options: &[],
        payload_bytes: payload,
    };
    let mut ip = vec![number; 20 + payload];
    header.emit(&mut ip).unwrap();
    frame.extend(ip);
    frame
}

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

/// Asks for a station from the address that is of its net.
fn is_question(frame: &[u8], station: [u8; 4], to: [u8; 6]) -> bool {
    frame[..6] == to
        && frame[6..12] == OURS
        && frame[12..22] == [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]
        && frame[28..32] == [10, 2, 0, 1]
        && frame[38..42] == station
}

/// The numbers of packets that went to a station, as a router sends them.
fn numbers(did: &Did, station: [u8; 6]) -> Vec<u8> {
    let sent = did.gone.iter().filter(|(_, frame)| frame[12..14] == [8, 0]);
    sent.map(|(port, frame)| {
        assert_eq!((*port, &frame[..6], &frame[6..12], frame[22]), (1, &station[..], &OURS[..], 8));
        godwit_wire::Ipv4::new_checked(&frame[14..]).unwrap().verify_checksum().unwrap();
        frame[19]
    })
    .collect()
}

#[test]
fn packets_wait_for_a_station_and_then_its_route_is_there() {
    let mut router = Router::new();
    let gateway = router.call(0, &[], &[]);
    assert_eq!(gateway.gone.len(), 1, "a gateway is asked for without a packet");
    assert!(is_question(&gateway.gone[0].1, [10, 2, 0, 254], [0xff; 6]));

    let to = [10, 2, 0, 7];
    let did = router.call(0, &[(0, packet(1, to, 30)), (0, packet(2, to, 30))], &[]);
    assert_eq!((did.held, did.gone.len()), (2, 1), "{did:?}");
    assert!(did.gone[0].0 == 1 && is_question(&did.gone[0].1, to, [0xff; 6]));
    // No more than so many; the other worker's are its own.
    let did = router.call(0, &[(0, packet(3, to, 30)), (0, packet(4, to, 30))], &[]);
    assert_eq!((did.held, &did.dropped[..], did.gone.len()), (1, &[1][..], 0));
    assert_eq!(router.call(1, &[(0, packet(11, to, 30))], &[]).held, 1);
    assert!(matches!(router.to("10.2.0.7"), NextHop::Unresolved(_)));

    // The answer comes by the other worker. Each lets its own go, in their order, and those that come now go behind them.
    let did = router.call(1, &[], &[reply(to, STATION)]);
    assert_eq!(numbers(&did, STATION), [11]);
    let did = router.call(0, &[(0, packet(5, to, 30))], &[]);
    assert_eq!((did.held, numbers(&did, STATION)), (1, vec![1, 2, 3, 5]), "{did:?}");
    let did = router.call(0, &[(0, packet(6, to, 30))], &[]);
    assert_eq!((did.held, numbers(&did, STATION)), (1, vec![6]));

    // Then routes lead there, and whoever still comes by goes straight on.
    assert!(matches!(router.to("10.2.0.7"), NextHop::Unresolved(_)));
    router.pass(0, 30 * MILLISECOND_NS);
    let NextHop::Forward(adjacency) = router.to("10.2.0.7") else { panic!("no route") };
    assert_eq!((adjacency.destination.0, adjacency.source.0, adjacency.port, adjacency.mtu), (STATION, OURS, 1, 1000));
    let did = router.call(0, &[(0, packet(7, to, 30))], &[]);
    assert_eq!((did.held, numbers(&did, STATION)), (0, vec![7]));
    // Its neighbours are others.
    assert!(matches!(router.to("10.2.0.8"), NextHop::Unresolved(_)));

    // The station gets another address: routes follow.
    router.call(1, &[], &[reply(to, OTHER)]);
    let NextHop::Forward(adjacency) = router.to("10.2.0.7") else { panic!("no route") };
    assert_eq!(adjacency.destination.0, OTHER);

    // It falls silent: it is asked itself, then all are, and then its route goes.
    let did = router.pass(0, 32 * SECOND_NS);
    assert!(did.gone.iter().any(|(_, frame)| is_question(frame, to, OTHER)));
    let did = router.pass(0, 10 * SECOND_NS);
    assert!(did.gone.iter().any(|(_, frame)| is_question(frame, to, [0xff; 6])));
    assert!(matches!(router.to("10.2.0.7"), NextHop::Unresolved(_)));
    assert_eq!(router.route.routing().unwrap().routes().len(), 2);
}

#[test]
fn a_gateway_that_answers_resolves_its_next_hop() {
    let mut router = Router::new();
    let far = [192, 0, 2, 1];
    let did = router.call(0, &[(1, packet(1, far, 30))], &[]);
    assert_eq!((did.held, did.gone.len()), (1, 1));
    let did = router.call(0, &[], &[reply([10, 2, 0, 254], STATION)]);
    assert_eq!(numbers(&did, STATION), [1]);
    router.pass(0, 30 * MILLISECOND_NS);
    let NextHop::Forward(adjacency) = router.to("192.0.2.1") else { panic!("unresolved") };
    assert_eq!(adjacency.destination.0, STATION);
    // Of its net it is a station as others are.
    assert!(matches!(router.to("10.2.0.254"), NextHop::Forward(_)));
    router.pass(0, 60 * SECOND_NS);
    assert!(matches!(router.to("192.0.2.1"), NextHop::Unresolved(_)), "it has fallen silent");
    router.call(0, &[], &[reply([10, 2, 0, 254], OTHER)]);
    router.pass(0, 30 * MILLISECOND_NS);
    assert!(matches!(router.to("192.0.2.1"), NextHop::Forward(_)), "and comes back");
}

#[test]
fn nobody_answers_and_senders_are_told() {
    let mut router = Router::new();
    let to = [10, 2, 0, 7];
    let did = router.call(0, &[(0, packet(1, to, 30)), (0, packet(2, to, 30))], &[]);
    assert_eq!(did.held, 2);
    let did = router.pass(0, 3 * SECOND_NS + 10 * MILLISECOND_NS);
    let asked = did.gone.iter().filter(|(_, frame)| is_question(frame, to, [0xff; 6])).count();
    assert_eq!(asked, 2, "and one before");
    let unreachable =
        |(port, frame): &&(u16, Vec<u8>)| *port == 0 && frame[12..14] == [8, 0] && frame[34..36] == [3, 1];
    assert_eq!(did.gone.iter().filter(unreachable).count(), 2, "host unreachable, to both");
    // While it is silent others are told at once; later it is asked for anew.
    let did = router.call(0, &[(0, packet(3, to, 30))], &[]);
    assert_eq!((did.held, did.gone.iter().filter(unreachable).count()), (0, 1));
    router.pass(0, 4 * SECOND_NS);
    assert_eq!(router.call(0, &[(0, packet(4, to, 30))], &[]).held, 1);
    // What is longer than the next hop takes does not wait: it would have to be cut.
    assert_eq!(router.call(0, &[(0, packet(5, to, 1200))], &[]).dropped, [1]);
    let mut whole = packet(6, to, 1200);
    whole[20] |= 0x40;
    let did = router.call(0, &[(0, whole)], &[]);
    assert!(did.gone.iter().any(|(_, frame)| frame[34..36] == [3, 4]), "fragmentation needed");
    // This machine's own address is of the net too, and never asked for.
    let mut ping = packet(7, [10, 2, 0, 1], 8);
    ping[23] = 1;
    ping[24..26].fill(0);
    let sum = godwit_wire::checksum::checksum(&ping[14..34]);
    ping[24..26].copy_from_slice(&sum.to_be_bytes());
    ping[34..42].copy_from_slice(&[8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    let did = router.call(0, &[(0, ping)], &[]);
    assert!(did.held == 0 && did.gone.len() == 1 && did.gone[0].1[34] == 0, "an echo reply: {did:?}");
    // At the end those that wait are given up.
    let (mut steps, region) = (Vec::new(), &mut router.region);
    let now_ns = router.now_ns;
    let (arrived, previous) = (&[][..], &[][..]);
    let mut ending = Arrangement { region, now_ns, live: true, ending: true, arrived, previous, steps: &mut steps };
    router.halves[0].arrange(&mut ending);
    assert_eq!(steps, [Step::Expire { held: 1, reason: 1 }]);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let refused = |stanza: &str| match build("ipv4", stanza) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("was accepted: {stanza}"),
    };
    let hop = |keys: &str| ROUTES.replace("on_link = true", keys);
    for (keys, part) in [
        ("on_link = true\nvia = \"10.2.0.9\"", "one of destination_mac, via and on_link"),
        ("via = \"here\"", "\"here\""),
        ("via = \"2001:db8::1\"", "2001:db8::1"),
        ("via = \"224.0.0.1\"", "224.0.0.1"),
        ("on_link = true\nlocal = true", "conflicting keys"),
        ("destination_mac = \"02:00:00:00:00:01\"", "needs port, destination_mac and source_mac"),
        ("on_link = true\nsource_mac = \"03:00:00:00:00:01\"", "is a group address"),
    ] {
        let said = refused(&hop(keys));
        assert!(said.contains(part), "{keys}: {said}");
    }
    let said = refused(&ROUTES.replace("mtu = 1000", "mtu = 60"));
    assert!(said.contains("68 to 65535"), "{said}");
    let said = refused(&format!("{ROUTES}[follow]\nroutes = \"kernel\"\ninterfaces = {{ b = \"eth0\" }}\n"));
    assert!(said.contains("follow"), "{said}");
    let route = build("ipv4", ROUTES).unwrap();
    let said = route.connect(&[Arc::clone(&route)], 0).unwrap_err().to_string();
    assert!(said.contains("kind \"responder\""), "{said}");
}
