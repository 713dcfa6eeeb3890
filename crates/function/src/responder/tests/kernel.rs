//! Tests of packets that wait while the operating system resolves a station.

use std::net::IpAddr;

use godwit_packet::{Arena, ArenaConfig};
use godwit_test_support::FrameBuilder;
use godwit_test_support::frame::ipv4_header;
use godwit_wire::{Ipv4Header, MacAddress};

use super::super::host::ResponderHost;
use super::*;
use crate::neighbours::Target;
use crate::{Arrangement, PreviousOutcome, Step, Work};

const SECOND_NS: u64 = 1_000_000_000;
const START_NS: u64 = 100 * SECOND_NS;
const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x78]);
const FUNCTION: usize = 5;
const ON_LINK: u32 = 0;
const GATEWAY: u32 = 1;

struct Router {
    settings: Arc<Settings>,
    host: ResponderHost,
    region: godwit_packet::Region,
    order: u16,
    /// Number of packets that the responder holds.
    held: usize,
}

impl Router {
    fn new() -> Self {
        let settings = Arc::new(settings());
        let target = |gateway| Some(Target { port: 1, gateway, mtu: 1000 });
        settings.neighbours.kernel().register(FUNCTION, ON_LINK, target(None));
        settings.neighbours.kernel().register(FUNCTION, GATEWAY, target(Some(IpAddr::from([10, 0, 0, 254]))));
        let region = Arena::new(ArenaConfig { packets: 64, ..ArenaConfig::default() }, 1).unwrap().split().remove(0);
        Self { host: ResponderHost::new(Arc::clone(&settings)), settings, region, order: 0, held: 0 }
    }

    /// Passes a packet, if any, to the responder. Returns a word for each step. A frame that leaves
    /// is described by its port, its destination and its IP identification.
    fn call(&mut self, packet: Option<(u32, [u8; 4], u16)>, now_ns: u64) -> Vec<String> {
        let contract = &crate::ipv4::CONTRACT;
        let (mut arrived, mut previous) = (Vec::new(), Vec::new());
        if let Some((next_hop, destination, identification)) = packet {
            let header = Ipv4Header { identification, ..ipv4_header([10, 3, 0, 9], destination, protocol::UDP) };
            let frame = FrameBuilder::new().macs(OURS, THEIRS).ipv4_header(header).udp([1, 2], &[0; 20]);
            self.order += 1;
            let packet = self.region.allocate(frame.len()).unwrap();
            self.region.frame_mut(&packet).copy_from_slice(&frame);
            arrived.push(Descriptor { port: 2, order: self.order, ..packet });
            let verdict = contract.verdict("unresolved").unwrap();
            let outcome = Outcome { port: 1, value: next_hop, ..Outcome::verdict(verdict) };
            previous.push(PreviousOutcome { contract: Some(contract), function: FUNCTION, outcome });
        }
        let mut steps = Vec::new();
        let wake_ns = crate::Arrange::arrange(
            &mut self.host,
            &mut Arrangement {
                region: &mut self.region,
                now_ns,
                live: true,
                ending: false,
                arrived: &arrived,
                previous: &previous,
                stamps: &[],
                steps: &mut steps,
            },
        );
        for step in &steps {
            match step {
                Step::Hold { .. } => self.held += 1,
                Step::Resume { .. } => self.held -= 1,
                _ => {}
            }
        }
        let latest_ns = if self.held == 0 { u64::MAX } else { now_ns + SECOND_NS };
        assert!(wake_ns <= latest_ns, "the host half must look for answers");
        let word = |step| match step {
            Step::Keep { packet, work: Work::Done(outcome) }
            | Step::Resume { packet, work: Work::Done(outcome), .. } => {
                let frame = self.region.frame(&packet).to_vec();
                self.region.release(&packet);
                let identification = u16::from_be_bytes([frame[18], frame[19]]);
                match outcome.verdict {
                    VERDICT_FORWARD => format!(
                        "to {} by {}: {identification}",
                        MacAddress(frame[..6].try_into().unwrap()),
                        outcome.port
                    ),
                    _ => format!("error {}/{} by {}", frame[34], frame[35], outcome.port),
                }
            }
            Step::Hold { packet } => {
                self.region.release(&packet);
                "held".to_owned()
            }
            Step::Drop { packet, reason } => {
                self.region.release(&packet);
                format!("dropped {reason}")
            }
            step => panic!("{step:?}"),
        };
        steps.into_iter().map(word).collect()
    }
}

#[test]
fn packets_wait_until_the_kernel_reports_the_address() {
    let mut router = Router::new();
    let to = [10, 0, 0, 7];
    for number in 0..2 {
        assert_eq!(router.call(Some((ON_LINK, to, number)), START_NS), ["held"]);
    }
    assert_eq!(router.call(Some((GATEWAY, [192, 0, 2, 1], 2)), START_NS), ["held"]);
    let kernel = router.settings.neighbours.kernel();
    let [station, gateway] = [[10, 0, 0, 7], [10, 0, 0, 254]].map(|address| (1, IpAddr::from(address)));
    assert_eq!(kernel.take_new(FUNCTION), [station, gateway]);
    assert_eq!(router.call(None, START_NS + SECOND_NS), [""; 0]);
    let kernel = router.settings.neighbours.kernel();
    assert!(kernel.learn(station, Some(STATION)));
    let answered = |number: u16| format!("to {STATION} by 1: {number}");
    // A packet that arrives now leaves after the held ones.
    assert_eq!(
        router.call(Some((ON_LINK, to, 3)), START_NS + SECOND_NS),
        ["held".to_owned(), answered(0), answered(1), answered(3)]
    );
    assert!(router.settings.neighbours.kernel().learn(gateway, Some(STATION)));
    assert_eq!(router.call(None, START_NS + SECOND_NS), [answered(2)]);
    assert_eq!(router.region.allocated(), 0);
}

#[test]
fn senders_learn_that_a_station_does_not_answer_the_kernel() {
    let mut router = Router::new();
    let send = |router: &mut Router, number, now_ns| router.call(Some((ON_LINK, [10, 0, 0, 7], number)), now_ns);
    for number in 0..20 {
        let expected = if number < 16 { "held" } else { "dropped 1" };
        assert_eq!(send(&mut router, number, START_NS), [expected], "{number}");
    }
    assert_eq!(router.call(None, START_NS + 3 * SECOND_NS), [""; 0]);
    // Held packets are checked once per millisecond.
    let later_ns = START_NS + 3 * SECOND_NS + 1_000_000;
    assert_eq!(router.call(None, later_ns), vec!["error 3/1 by 2"; 16]);
    assert_eq!(send(&mut router, 20, START_NS + 4 * SECOND_NS), ["error 3/1 by 2"]);
    // The station answers after all.
    let kernel = router.settings.neighbours.kernel();
    kernel.learn((1, IpAddr::from([10, 0, 0, 7])), Some(STATION));
    assert_eq!(send(&mut router, 21, START_NS + 5 * SECOND_NS), ["held".to_owned(), format!("to {STATION} by 1: 21")]);
}

#[test]
fn a_scan_is_policed_and_other_stations_are_still_reached() {
    let mut router = Router::new();
    let mut policed = 0;
    for number in 0..20_000u32 {
        let [.., high, low] = number.to_be_bytes();
        let steps = router.call(Some((ON_LINK, [10, 0, 0x80 | high, low], 0)), START_NS + u64::from(number) * 1000);
        policed += usize::from(steps == ["dropped 3"]);
    }
    assert!(policed > 19_000, "{policed}");
    assert_eq!(router.settings.neighbours.kernel().take_new(FUNCTION).len(), 20_000 - policed);
}
