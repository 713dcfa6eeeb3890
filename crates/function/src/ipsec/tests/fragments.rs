//! Tests of path MTUs, reassembly of fragments to local endpoints, and keepalives.

use godwit_packet::Layout;
use serde_json::json;

use super::*;
use crate::fragments::Split;
use crate::{Arrangement, Running, Step};

const SECOND: u64 = 1_000_000_000;
const PEER: [u8; 4] = [192, 0, 2, 2];
const US: [u8; 4] = [192, 0, 2, 1];
const HERE: [u8; 4] = [10, 1, 2, 3];
const THERE: [u8; 4] = [10, 2, 3, 4];
const PROTECT: &str = "[[policy]]\naction = \"protect\"\nsa = \"west\"\n";

/// The CPU part of `ipsec`, with its packet memory.
struct Host {
    host: HostHalf,
    region: Region,
}

impl Host {
    fn new(function: &Ipsec) -> Self {
        Self::with(function, 64)
    }

    fn with(function: &Ipsec, packets: usize) -> Self {
        let config = ArenaConfig { packets, frame_bytes_max: 4000, layout: Layout::Slots, ..ArenaConfig::default() };
        Self { host: function.host_half(0, 1).unwrap(), region: Arena::new(config, 1).unwrap().split().remove(0) }
    }

    fn put(&mut self, frame: &[u8]) -> Descriptor {
        let packet = self.region.allocate(frame.len()).unwrap();
        self.region.frame_mut(&packet).copy_from_slice(frame);
        packet
    }

    /// Passes new frames to the function. Returns the steps and the time of the next call.
    fn arrange(&mut self, frames: &[Vec<u8>], now_ns: u64) -> (Vec<Step>, u64) {
        self.arrange_with(frames, now_ns, true, false)
    }

    fn arrange_with(&mut self, frames: &[Vec<u8>], now_ns: u64, live: bool, ending: bool) -> (Vec<Step>, u64) {
        let arrived: Vec<Descriptor> = frames.iter().map(|frame| self.put(frame)).collect();
        let mut steps = Vec::new();
        let region = &mut self.region;
        let mut packets = Arrangement {
            region,
            now_ns,
            live,
            ending,
            arrived: &arrived,
            previous: &[],
            stamps: &[],
            steps: &mut steps,
        };
        let wake_ns = self.host.arranging().unwrap().arrange(&mut packets);
        (steps, wake_ns)
    }
}

/// Returns a UDP packet with a total length of `bytes`, from `HERE` to `THERE`.
fn udp(word: u16, bytes: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..bytes - 20).map(|at| (at * 7 % 251) as u8).collect();
    frame(HERE, THERE, 17, word, &payload)
}

fn parts(frame: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let split = Split::new(&frame[14..], mtu).unwrap();
    let part = |index| {
        let mut part = vec![0; 14 + split.bytes(index)];
        part[..14].copy_from_slice(&frame[..14]);
        split.emit(index, &mut part[14..]);
        part
    };
    (0..split.count()).map(part).collect()
}

#[test]
fn packets_up_to_the_inner_mtu_are_not_fragmented() {
    let sas = [
        // The packet consists of the outer header, the ESP header and the IV, whole blocks with two
        // bytes of trailer, and the ICV.
        (KEYS.to_owned(), 1400, (1400 - 20 - 8 - 16 - 12) / 16 * 16 - 2),
        (KEYS.to_owned() + "udp_encapsulation = {}\n", 1400, (1400 - 20 - 8 - 8 - 16 - 12) / 16 * 16 - 2),
        (
            "encryption = \"aes-128-gcm\"\nencryption_key = \"000102030405060708090a0b0c0d0e0f10111213\"\n".to_owned(),
            1400,
            (1400 - 20 - 8 - 8 - 16) / 4 * 4 - 2,
        ),
    ];
    for (keys, path_mtu, expected) in sas {
        let stanza = sa("west", 0x1001, "out", &format!("path_mtu = {path_mtu}")).replace(KEYS, &keys);
        let function = ipsec(&(stanza + PROTECT));
        assert_eq!(function.database.lengths.inner_mtu(0), Some(expected), "{keys}");
        let mut host = Host::new(&function);
        let (steps, wake_ns) = host.arrange(&[udp(0, expected), udp(0, expected + 1)], 0);
        assert!(matches!(steps[..], [Step::Keep { .. }, Step::Keep { .. }, Step::Split { .. }]), "{steps:?}");
        assert_eq!(wake_ns, u64::MAX);
    }
}

#[test]
fn fragments_stay_in_the_order_of_arrival() {
    let function = ipsec(&(sa("west", 0x1001, "out", "") + PROTECT + "[reassembly]\n").replacen(
        "[[sa]]",
        "path_mtu = 700\n[[sa]]",
        1,
    ));
    let mtu = function.database.lengths.inner_mtu(0).unwrap();
    let mut host = Host::new(&function);
    let long = udp(0, 1500);
    let expected = parts(&long, mtu);
    assert_eq!(expected.len(), 3);
    let (steps, _) = host.arrange(&[udp(0, 100), long, udp(0, 90)], 0);
    let mut found = Vec::new();
    for (step, sequence) in steps.iter().zip(1..) {
        let (Step::Keep { packet, work } | Step::Split { packet, work }) = step else { panic!("{step:?}") };
        assert_eq!(*work, encrypt(0, sequence));
        found.push(host.region.frame(packet).to_vec());
    }
    assert!(matches!(steps[1..4], [Step::Keep { .. }, Step::Split { .. }, Step::Split { .. }]));
    assert_eq!(found[1..4], expected);
    assert_eq!((found[0].len(), found[4].len(), found.len()), (114, 104, 5));
    // The path MTU does not apply to packets that bypass IPsec.
    let bypass = "[[policy]]\naction = \"bypass\"\nprotocol = 17\n";
    let function = ipsec(&(sa("west", 0x1001, "out", "path_mtu = 700") + bypass));
    let (steps, _) = Host::new(&function).arrange(&[udp(0, 1500)], 0);
    assert!(matches!(steps[..], [Step::Keep { work: Work::Done(outcome), .. }] if outcome.verdict == VERDICT_BYPASS));
}

/// The reassembled packet has no inbound SA, and exceeds the MTU of an outbound tunnel.
#[test]
fn a_reassembled_packet_is_fragmented_again_for_a_tunnel() {
    let stanza = "path_mtu = 700\n".to_owned() + &sa("west", 0x1001, "out", "") + &sa("east", 0x2001, "in", "");
    let function = ipsec(&(stanza + PROTECT + "[reassembly]\n"));
    let mtu = function.database.lengths.inner_mtu(0).unwrap();
    let mut host = Host::new(&function);
    let payload: Vec<u8> = (0..1480).map(|at| (at * 7 % 251) as u8).collect();
    let whole = frame(PEER, US, 17, 0, &payload);
    let arrived = parts(&whole, 1000);
    assert_eq!(arrived.len(), 2);
    let (steps, _) = host.arrange(&arrived, 0);
    let [
        Step::Hold { .. },
        Step::Join { whole: first, held: 1, work, .. },
        Step::Split { packet: second, work: second_work },
        Step::Split { packet: third, work: third_work },
    ] = steps[..]
    else {
        panic!("{steps:?}")
    };
    assert_eq!([work, second_work, third_work], [1, 2, 3].map(|sequence| encrypt(0, sequence)));
    let found = [first, second, third].map(|packet| host.region.frame(&packet).to_vec());
    assert_eq!(found[..], parts(&whole, mtu));
}

#[test]
fn drops_a_long_packet_without_leaks_when_buffers_run_out() {
    let function = ipsec(&(sa("west", 0x1001, "out", "path_mtu = 700") + PROTECT));
    let mut host = Host::with(&function, 2);
    let (steps, _) = host.arrange(&[udp(0, 1500)], 0);
    let [Step::Drop { packet, reason: DROP_NO_ROOM }] = steps[..] else { panic!("{steps:?}") };
    host.region.release(&packet);
    assert_eq!(host.region.allocated(), 0);
}

#[test]
fn sends_icmp_errors_for_packets_that_must_not_be_fragmented() {
    let function = ipsec(&(sa("west", 0x1001, "out", "path_mtu = 700") + PROTECT));
    let mtu = function.database.lengths.inner_mtu(0).unwrap();
    let mut host = Host::new(&function);
    let mut whole = udp(0x4000, 1000);
    whole[..12].copy_from_slice(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    let (steps, _) = host.arrange(std::slice::from_ref(&whole), 0);
    let [Step::Keep { packet, work: Work::Done(outcome) }] = steps[..] else { panic!("{steps:?}") };
    assert_eq!(outcome, Outcome::verdict(VERDICT_TOO_BIG));
    let frame = host.region.frame(&packet);
    assert_eq!(frame[..14], [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 8, 0]);
    assert_eq!(frame[14..], crate::fragments::too_big(&whole[14..], mtu, US.into()).unwrap());
    host.region.release(&packet);
    // At most 100 ICMP errors are sent per second.
    for (second, count) in [(0, 99), (1, 100)] {
        for number in 0..150 {
            let (steps, _) = host.arrange(std::slice::from_ref(&whole), second * SECOND + 1);
            let (Step::Keep { packet, .. } | Step::Drop { packet, reason: DROP_TOO_BIG }) = steps[0] else {
                panic!("{steps:?}")
            };
            assert_eq!(matches!(steps[0], Step::Keep { .. }), number < count, "{number} of {second}");
            host.region.release(&packet);
        }
    }
    // The tunnel carries IPv6 in IPv4, so the SA has no IPv6 source address for the ICMP error.
    // Packets of 1280 bytes are never too big.
    for (bytes, dropped) in [(1280, false), (1281, true)] {
        let mut ipv6 = vec![0; 14 + bytes];
        ipv6[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, 0]);
        ipv6[18..20].copy_from_slice(&(bytes as u16 - 40).to_be_bytes());
        ipv6[20..22].copy_from_slice(&[17, 64]);
        ipv6[22..54].fill(0x20);
        let (steps, _) = host.arrange(&[ipv6], 0);
        let (Step::Keep { packet, .. } | Step::Drop { packet, reason: DROP_TOO_BIG }) = steps[0] else {
            panic!("{steps:?}")
        };
        assert_eq!(matches!(steps[0], Step::Drop { .. }), dropped);
        host.region.release(&packet);
    }
}

/// Returns an ESP packet with the SPI 0x2001 to a local endpoint. `bytes` bytes follow the ESP
/// header.
fn esp(bytes: usize) -> Vec<u8> {
    let mut payload = [0x2001_u32.to_be_bytes(), 9_u32.to_be_bytes()].concat();
    payload.extend((0..bytes).map(|at| (at % 251) as u8));
    frame(PEER, US, 50, 0, &payload)
}

#[test]
fn reassembles_local_fragments_before_the_sa_lookup() {
    let function =
        ipsec(&(sa("east", 0x2001, "in", "") + "[[policy]]\naction = \"bypass\"\n[reassembly]\ntimeout_ms = 100\n"));
    let mut host = Host::new(&function);
    let whole = esp(2000);
    let mut fragments = parts(&whole, 900);
    fragments.reverse();
    let not_ours = parts(&frame(PEER, [192, 0, 2, 77], 50, 0, &[7; 1000]), 900);
    fragments.insert(1, not_ours[1].clone());
    let (steps, wake_ns) = host.arrange(&fragments, 0);
    let [Step::Hold { .. }, Step::Keep { work, .. }, Step::Hold { .. }, join] = steps[..] else { panic!("{steps:?}") };
    assert_eq!(work, Work::Done(Outcome::verdict(VERDICT_BYPASS)));
    let Step::Join { whole: joined, held: 2, work, .. } = join else { panic!("{join:?}") };
    assert_eq!(work, decrypt(0, 9));
    assert_eq!(host.region.frame(&joined), whole);
    assert_eq!(wake_ns, u64::MAX);
    // Fragments expire after the timeout and at the end of the run.
    let (steps, wake_ns) = host.arrange(&fragments[..1], SECOND);
    assert!(matches!(steps[..], [Step::Hold { .. }]));
    assert_eq!(wake_ns, SECOND + SECOND / 10);
    let (steps, _) = host.arrange(&[], wake_ns);
    assert_eq!(steps, [Step::Expire { held: 1, reason: DROP_FRAGMENT_TIMEOUT }]);
    host.arrange(&fragments[..1], 3 * SECOND);
    let (steps, wake_ns) = host.arrange_with(&[], 3 * SECOND, true, true);
    assert_eq!((steps, wake_ns), (vec![Step::Expire { held: 1, reason: DROP_FRAGMENT_TIMEOUT }], u64::MAX));
    // The packet is longer than the maximum frame.
    let long = parts(&esp(4200), 1400);
    let (steps, _) = host.arrange(&long, 4 * SECOND);
    assert!(steps.contains(&Step::Expire { held: 2, reason: DROP_FRAGMENT_LIMIT }), "{steps:?}");
    // The fragments overlap, as in the teardrop attack.
    let (steps, _) = host.arrange(&[fragments[0].clone(), fragments[0].clone()], 9 * SECOND);
    assert!(
        matches!(steps[0], Step::Hold { .. })
            && steps.contains(&Step::Expire { held: 1, reason: DROP_FRAGMENT_OVERLAP })
    );
    assert!(matches!(steps[2], Step::Drop { reason: DROP_FRAGMENT_OVERLAP, .. }));
    // Without reassembly, fragments are dropped.
    let function = ipsec(&sa("east", 0x2001, "in", ""));
    assert!(!function.host_half(0, 1).unwrap().arranges());
    assert_eq!(prepare(&function, 0, 1, &fragments[..1]), [drop(DROP_FRAGMENT)]);
}

#[test]
fn fragments_are_steered_to_the_worker_of_their_sa() {
    let mut stanza = "[reassembly]\n".to_owned();
    for number in 0..40 {
        let sa = sa(&format!("in{number}"), 0x2001 + number, "in", "");
        stanza += &sa.replace("192.0.2.2", &format!("192.0.3.{}", number / 4));
    }
    let function = ipsec(&stanza);
    let steering = Steering::new(5, function.steer_key());
    let worker = |frame: &[u8]| steering.worker(frame, &godwit_wire::parse(frame), 0x1234_5678);
    let mut workers = std::collections::HashSet::new();
    for number in 0..40_u32 {
        let payload = [(0x2001 + number).to_be_bytes(), [0, 0, 0, 9]].concat().repeat(100);
        let whole = frame([192, 0, 3, (number / 4) as u8], US, 50, 0, &payload);
        let fragments = parts(&whole, 300);
        let owners: Vec<_> = fragments.iter().map(|fragment| worker(fragment)).collect();
        assert!(owners.iter().all(|owner| *owner == worker(&whole)), "SA {number}: {owners:?}");
        workers.insert(owners[0]);
    }
    assert_eq!(workers.len(), 5, "all workers are used");
}

#[test]
fn a_replaced_sa_moves_to_the_worker_of_its_new_endpoints() {
    struct Engine;
    impl Running for Engine {
        fn image_changed(&self, _: std::ops::Range<usize>) -> Result<(), Error> {
            Ok(())
        }

        fn quiesce(&self) -> Result<(), Error> {
            Ok(())
        }
    }
    let moved = sa("moved", 0x2001, "in", "").replace("192.0.2.2", "192.0.3.3");
    let function = ipsec(&("[reassembly]\n".to_owned() + &sa("east", 0x2000, "in", "") + &moved));
    // The new SA has the same endpoints as the SA `east`.
    let new = json!({
        "name": "moved", "spi": 0x2002, "direction": "in", "source": "192.0.2.2", "destination": "192.0.2.1",
        "encryption": "aes-128-cbc", "encryption_key": "000102030405060708090a0b0c0d0e0f",
        "authentication": "hmac-sha1-96", "authentication_key": "000102030405060708090a0b0c0d0e0f10111213",
    });
    function.operate().unwrap().command(&json!({ "command": "replace", "sa": [new] }), &Engine).unwrap();
    let steering = Steering::new(5, function.steer_key());
    let whole = frame(PEER, US, 50, 0, &[0x2002_u32.to_be_bytes(), [0, 0, 0, 9]].concat().repeat(100));
    let worker = |frame: &[u8]| steering.worker(frame, &godwit_wire::parse(frame), 0x1234_5678);
    for fragment in parts(&whole, 300) {
        assert_eq!(worker(&fragment), worker(&whole));
    }
}

#[test]
fn sends_keepalives_for_idle_sas() {
    for (six, live) in [(false, true), (true, true), (false, false)] {
        let mut stanza =
            sa("west", 0x1001, "out", "udp_encapsulation = { source_port = 4501, keepalive_s = 20 }\nhop_limit = 9");
        if six {
            stanza = stanza.replace("192.0.2.1", "2001:db8::1").replace("192.0.2.2", "2001:db8::2");
        }
        let function = ipsec(&(stanza + PROTECT));
        let mut host = Host::new(&function);
        let (_, wake_ns) = host.arrange_with(&[], 0, live, false);
        assert_eq!(wake_ns, u64::MAX, "the SA has sent nothing yet");
        let (steps, wake_ns) = host.arrange_with(&[udp(0, 100)], SECOND, live, false);
        assert!(matches!(steps[..], [Step::Keep { .. }]));
        if !live {
            assert_eq!(wake_ns, u64::MAX);
            assert_eq!(host.arrange_with(&[], 100 * SECOND, live, false).0, []);
            continue;
        }
        assert_eq!(wake_ns, 21 * SECOND);
        // Another packet of the SA postpones the keepalive.
        host.arrange(&[udp(0, 100)], 11 * SECOND);
        let (steps, wake_ns) = host.arrange(&[], 21 * SECOND);
        assert_eq!((&steps[..], wake_ns), (&[][..], 31 * SECOND));
        for second in [31, 51] {
            let (steps, wake_ns) = host.arrange(&[], second * SECOND);
            let [Step::Create { packet, work: Work::Done(outcome) }] = steps[..] else { panic!("{steps:?}") };
            assert_eq!((outcome, wake_ns), (Outcome::verdict(VERDICT_ENCRYPTED), (second + 20) * SECOND));
            let frame = host.region.frame(&packet);
            let ip = &frame[14..];
            let udp = if six {
                let ip = godwit_wire::Ipv6::new_checked(ip).unwrap();
                godwit_wire::Udp::new_checked(ip.payload()).unwrap().verify_checksum(ip.pseudo_header(17, 9)).unwrap();
                assert_eq!(frame[12..14], [0x86, 0xdd]);
                ip.payload().to_vec()
            } else {
                let ip = godwit_wire::Ipv4::new_checked(ip).unwrap();
                ip.verify_checksum().unwrap();
                assert_eq!((ip.source(), ip.destination(), ip.ttl()), (US, PEER, 9));
                ip.payload().to_vec()
            };
            assert_eq!(udp[..6], [17, 149, 17, 148, 0, 9]);
            assert_eq!(udp[8..], [0xff]);
        }
        function.database.remove(0);
        assert_eq!(host.arrange(&[], 99 * SECOND), (Vec::new(), u64::MAX));
    }
}

#[test]
fn rejects_invalid_limits() {
    let error = |stanza: &str| {
        let stanza = DeTable::parse(stanza).unwrap();
        match crate::config::read(stanza).and_then(|config| Ipsec::new(config, &[])) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("the stanza was accepted"),
        }
    };
    for (more, expected) in
        [("path_mtu = 575", "at least 576"), ("mode = \"transport\"\npath_mtu = 1400", "outbound tunnels")]
    {
        assert!(error(&sa("west", 0x1001, "out", more)).contains(expected));
    }
    assert!(error(&sa("east", 0x1001, "in", "path_mtu = 1400")).contains("outbound tunnels"));
    assert!(error(&sa("east", 0x1001, "in", "udp_encapsulation = { keepalive_s = 5 }")).contains("inbound"));
    for (stanza, expected) in
        [("packets = 0", "packets = 0"), ("bytes = 100", "bytes = 100"), ("timeout_ms = 0", "timeout_ms")]
    {
        assert!(error(&format!("[reassembly]\n{stanza}\n")).contains(expected));
    }
    assert!(error("path_mtu = 60").contains("at least 576"));
}

/// Path MTUs are supported only if the initial configuration contains one.
#[test]
fn a_path_mtu_needs_one_at_the_start() {
    struct Quiet;
    impl Running for Quiet {
        fn image_changed(&self, _: std::ops::Range<usize>) -> Result<(), Error> {
            Ok(())
        }
        fn quiesce(&self) -> Result<(), Error> {
            Ok(())
        }
    }
    let new = |path_mtu: bool| {
        let mut new = json!({
            "name": "new", "spi": 7777, "direction": "out", "source": "192.0.2.1", "destination": "192.0.2.2",
            "encryption": "aes-128-cbc", "encryption_key": "000102030405060708090a0b0c0d0e0f",
            "authentication": "hmac-sha1-96", "authentication_key": "000102030405060708090a0b0c0d0e0f10111213",
        });
        if path_mtu {
            new["path_mtu"] = 1400.into();
        }
        json!({ "command": "add", "sa": [new] })
    };
    let function = ipsec(&sa("west", 0x1001, "out", ""));
    let message = function.operate().unwrap().command(&new(true), &Quiet).unwrap_err().to_string();
    assert!(message.contains("path_mtu in the function's stanza"), "{message}");
    function.operate().unwrap().command(&new(false), &Quiet).unwrap();
    let function = ipsec(&("path_mtu = 1500\n".to_owned() + &sa("west", 0x1001, "out", "")));
    function.operate().unwrap().command(&new(false), &Quiet).unwrap();
    let index = function.control().index("new").unwrap();
    assert_eq!(function.database.lengths.inner_mtu(index), function.database.lengths.inner_mtu(0));
}
