//! Tests of the configuration, policies and SAs of `ipsec`.

mod changes;
mod configuration;
mod durable;
mod families;
mod fragments;
mod numbers;
mod unprotected;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Arena, ArenaConfig, BUCKETS, Region, Steering};
use proptest::prelude::*;

use super::burst::Burst;
use super::policies::{Action, Policies, Policy};
use super::selector::{Prefix, Selector};
use super::*;
use crate::Work;

const KEYS: &str = r#"
    encryption = "aes-128-cbc"
    encryption_key = "000102030405060708090a0b0c0d0e0f"
    authentication = "hmac-sha1-96"
    authentication_key = "000102030405060708090a0b0c0d0e0f10111213"
"#;

fn sa(name: &str, spi: u32, direction: &str, more: &str) -> String {
    let (source, destination) =
        if direction == "out" { ("192.0.2.1", "192.0.2.2") } else { ("192.0.2.2", "192.0.2.1") };
    format!(
        "[[sa]]\nname = \"{name}\"\nspi = {spi}\ndirection = \"{direction}\"\nsource = \"{source}\"\n\
         destination = \"{destination}\"\n{KEYS}\n{more}\n"
    )
}

/// Names of the ports, by number.
const PORTS: [&str; 2] = ["lan", "wan"];

fn ipsec(stanza: &str) -> Ipsec {
    let stanza = DeTable::parse(stanza).unwrap();
    Ipsec::new(crate::config::read(stanza).unwrap(), &PORTS.map(str::to_owned)).unwrap()
}

/// Returns an Ethernet frame with an IPv4 packet. If the protocol has ports, `payload` begins with
/// the ports.
fn frame(source: [u8; 4], destination: [u8; 4], protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    let checksum = godwit_wire::checksum::checksum(&frame[14..]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(payload);
    frame
}

fn region(frames: &[Vec<u8>]) -> (Region, Vec<Descriptor>) {
    let config = ArenaConfig { packets: frames.len().max(1), ..ArenaConfig::default() };
    let mut region = Arena::new(config, 1).unwrap().split().remove(0);
    let mut descriptors = Vec::new();
    for bytes in frames {
        let descriptor = region.allocate(bytes.len()).unwrap();
        region.frame_mut(&descriptor).copy_from_slice(bytes);
        descriptors.push(descriptor);
    }
    (region, descriptors)
}

fn prepare(function: &Ipsec, worker: usize, workers: usize, frames: &[Vec<u8>]) -> Vec<Work> {
    let (region, descriptors) = region(frames);
    let mut work = Vec::new();
    function.host_half(worker, workers).unwrap().preparing().unwrap().prepare(&region, &descriptors, &mut work);
    work
}

const fn encrypt(sa: u32, sequence: u64) -> Work {
    Work::Run { variant: VARIANT_ENCRYPT, parameter: parameter(sa, sequence) }
}

const fn decrypt(sa: u32, sequence: u64) -> Work {
    Work::Run { variant: VARIANT_DECRYPT, parameter: parameter(sa, sequence) }
}

const fn drop(reason: u8) -> Work {
    Work::Done(Outcome::drop(reason))
}

#[test]
fn policies_match_in_order() {
    let stanza = sa("west", 0x1001, "out", "")
        + r#"
        [[policy]]
        action = "discard"
        protocol = "tcp"
        destination_ports = 23
        [[policy]]
        action = "bypass"
        protocol = "udp"
        source_ports = "500-510"
        destination_ports = 500
        [[policy]]
        action = "protect"
        source = "10.1.0.0/16"
        destination = "10.2.0.0/16"
        sa = "west"
    "#;
    let function = ipsec(&stanza);
    let (here, there, elsewhere) = ([10, 1, 2, 3], [10, 2, 3, 4], [10, 3, 0, 1]);
    let ports = |source: u16, destination: u16| [source.to_be_bytes(), destination.to_be_bytes()].concat();
    let frames = [
        frame(here, there, 6, 0, &ports(4000, 23)),
        frame(here, there, 6, 0, &ports(23, 4000)),
        frame(here, there, 17, 0, &ports(505, 500)),
        frame(here, there, 17, 0, &ports(511, 500)),
        frame(here, elsewhere, 17, 0, &ports(1, 1)),
        frame(elsewhere, there, 1, 0, &[]),
        frame(here, there, 6, 0x0001, &ports(1, 1)),
        frame(here, there, 6, 0x2000, &ports(1, 1)),
        // A UDP fragment that contains no ports does not match the bypass policy, which requires a
        // port.
        frame(here, there, 17, 0x0001, &ports(500, 500)),
        // The TCP header is too short to contain the ports.
        frame(here, there, 6, 0, &[0, 1]),
        frame(here, there, 1, 0, &[]),
    ];
    let bypass = Work::Done(Outcome::verdict(VERDICT_BYPASS));
    let expected = [
        drop(DROP_POLICY_DISCARD),
        encrypt(0, 1),
        bypass,
        encrypt(0, 2),
        drop(DROP_POLICY_DISCARD),
        drop(DROP_POLICY_DISCARD),
        drop(DROP_POLICY_DISCARD),
        encrypt(0, 3),
        encrypt(0, 4),
        drop(DROP_POLICY_DISCARD),
        encrypt(0, 5),
    ];
    assert_eq!(prepare(&function, 0, 1, &frames), expected);
}

#[test]
fn discards_every_packet_without_a_policy() {
    let frames = [frame([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[])];
    assert_eq!(prepare(&ipsec(""), 0, 1, &frames), [drop(DROP_POLICY_DISCARD)]);
}

#[test]
fn the_spi_identifies_the_inbound_sa() {
    let other = sa("other", 0x2002, "in", "").replace("192.0.2.1", "192.0.2.9");
    let function = ipsec(&(sa("east", 0x2001, "in", "") + &other + "[[policy]]\naction = \"bypass\"\n"));
    let (peer, us) = ([192, 0, 2, 2], [192, 0, 2, 1]);
    let esp = |spi: u32| [spi.to_be_bytes(), [0, 0, 0, 9]].concat();
    let frames = [
        frame(peer, us, 50, 0, &esp(0x2001)),
        // The source address does not affect the lookup of an SA (RFC 4301, section 4.1).
        frame([1, 2, 3, 4], us, 50, 0x4000, &esp(0x2001)),
        frame(peer, us, 50, 0, &esp(0x2003)),
        frame(peer, us, 50, 0, &esp(0x2002)),
        frame(peer, [192, 0, 2, 9], 50, 0, &esp(0x2002)),
        frame(peer, us, 50, 0x2000, &esp(0x2001)),
        frame(peer, us, 50, 0x0004, &esp(0x2001)),
        frame(peer, us, 50, 0, &[0, 0, 0x20, 1]),
        frame(peer, us, 50, 0, &esp(0)),
        // A packet with another destination is decided by a policy.
        frame(peer, [192, 0, 2, 77], 50, 0, &esp(0x2001)),
        frame(peer, [192, 0, 2, 77], 50, 0x2000, &esp(0x2001)),
        frame(peer, [192, 0, 2, 77], 50, 0, &[]),
        frame(peer, us, 1, 0, &esp(0x2001)),
    ];
    let bypass = Work::Done(Outcome::verdict(VERDICT_BYPASS));
    let expected = [
        decrypt(0, 9),
        decrypt(0, 9),
        drop(DROP_NO_SA),
        drop(DROP_NO_SA),
        decrypt(1, 9),
        drop(DROP_FRAGMENT),
        drop(DROP_FRAGMENT),
        drop(DROP_MALFORMED),
        drop(DROP_NO_SA),
        bypass,
        bypass,
        bypass,
        bypass,
    ];
    assert_eq!(prepare(&function, 0, 1, &frames), expected);
}

#[test]
fn passes_frames_without_ip_and_drops_malformed_packets() {
    let whole = frame([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[7; 8]);
    let mut tagged = whole.clone();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let changed = |at: usize, byte: u8| {
        let mut frame = whole.clone();
        frame[at] = byte;
        frame
    };
    let function = ipsec("[[policy]]\naction = \"bypass\"\n");
    let not_ip = Work::Done(Outcome::verdict(VERDICT_NOT_IP));
    let bypass = Work::Done(Outcome::verdict(VERDICT_BYPASS));
    for (frame, expected) in [
        (whole.clone(), bypass),
        (tagged.clone(), bypass),
        ([&whole[..], &[0; 20]].concat(), bypass),
        (changed(12, 0x86), not_ip),
        (Vec::new(), drop(DROP_TRUNCATED)),
        (whole[..13].to_vec(), drop(DROP_TRUNCATED)),
        (whole[..14].to_vec(), drop(DROP_TRUNCATED)),
        (tagged[..17].to_vec(), drop(DROP_TRUNCATED)),
        (whole[..33].to_vec(), drop(DROP_TRUNCATED)),
        (whole[..whole.len() - 1].to_vec(), drop(DROP_TRUNCATED)),
        (changed(14, 0x65), drop(DROP_MALFORMED)),
        (changed(14, 0x44), drop(DROP_MALFORMED)),
        (changed(17, 19), drop(DROP_MALFORMED)),
        (changed(16, 1), drop(DROP_TRUNCATED)),
    ] {
        assert_eq!(prepare(&function, 0, 1, std::slice::from_ref(&frame)), [expected], "{frame:02x?}");
    }
}

#[test]
fn sequence_numbers_end_and_never_restart() {
    let function = ipsec(&(sa("west", 0x1001, "out", "") + "[[policy]]\naction = \"protect\"\nsa = \"west\"\n"));
    let frames = vec![frame([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[]); 3];
    assert_eq!(prepare(&function, 0, 1, &frames), [encrypt(0, 1), encrypt(0, 2), encrypt(0, 3)]);
    assert_eq!(prepare(&function, 0, 1, &frames[..1]), [encrypt(0, 4)], "a new host half continues the sequence");
    function.database.states.set_last(0, u64::from(u32::MAX) - 1);
    let exhausted = drop(DROP_SEQUENCE_EXHAUSTED);
    assert_eq!(prepare(&function, 0, 1, &frames), [encrypt(0, u32::MAX.into()), exhausted, exhausted]);
    assert_eq!(prepare(&function, 0, 1, &frames[..1]), [exhausted]);
}

#[test]
fn each_sa_has_one_worker_which_steering_selects() {
    let mut stanza = String::new();
    let mut policies = String::new();
    for index in 0..40u32 {
        stanza += &sa(&format!("sa{index}"), 0x1000 + index, "out", "");
        policies +=
            &format!("[[policy]]\naction = \"protect\"\ndestination = \"10.0.{index}.0/24\"\nsa = \"sa{index}\"\n");
    }
    let function = ipsec(&(stanza + &policies));
    for workers in [1, 2, 3, 4, 128] {
        let steering = Steering::new(workers, function.steer_key());
        let mut used = vec![false; workers];
        for index in 0..40u8 {
            let bytes = frame([10, 9, 0, index], [10, 0, index, 1], 6, 0, &[index; 20]);
            let parsed = godwit_wire::parse(&bytes);
            let owner = steering.worker(&bytes, &parsed, steering.flow_hash(&parsed));
            used[owner] = true;
            for worker in 0..workers.min(4) {
                let work = prepare(&function, worker, workers, std::slice::from_ref(&bytes));
                let runs = matches!(work[..], [Work::Run { variant: VARIANT_ENCRYPT, .. }]);
                assert_eq!(runs, worker == owner);
                assert!(runs || work == [drop(DROP_WRONG_WORKER)]);
            }
        }
        assert!(workers > 4 || used.iter().all(|used| *used), "{workers} workers: {used:?}");
        assert!(workers <= BUCKETS);
    }
}

#[test]
fn two_outbound_sas_may_share_an_spi() {
    let west = sa("west", 0x1001, "out", "");
    ipsec(&(west.clone() + &west.replace("\"west\"", "\"south\"").replace("192.0.2.2", "192.0.2.3")));
}

proptest! {
    /// The host half never panics, and returns work for every frame.
    #[test]
    fn accepts_arbitrary_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..120), ipv4: bool, esp: bool) {
        if ipv4 && bytes.len() > 34 {
            bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
            if esp {
                bytes[23] = 50;
                bytes[30..34].copy_from_slice(&[192, 0, 2, 1]);
            }
        }
        let stanza = sa("west", 0x1001, "out", "") + &sa("east", 0x2001, "in", "")
            + "[[policy]]\naction = \"protect\"\nsa = \"west\"\n";
        prop_assert_eq!(prepare(&ipsec(&stanza), 0, 1, &[bytes]).len(), 1);
    }

    /// The fast path for IPv4 frames without VLAN tag and options gives the same decision as the
    /// general path.
    #[test]
    fn fast_path_equals_general_path(bytes in any_frame(), takes_udp: bool) {
        let function = ipsec(&(gateway(takes_udp)
            + "[[policy]]\naction = \"discard\"\nprotocol = \"tcp\"\ndestination_ports = \"0-30000\"\n\
               [[policy]]\naction = \"protect\"\ndestination = \"192.0.2.0/31\"\nsa = \"west\"\n"));
        let database = &function.database;
        let policies = database.policies.load();
        prop_assert_eq!(database.decide(&policies, &bytes), database.decide_any(&policies, &bytes));
    }

    #[test]
    fn burst_decisions_equal_single_decisions(
        bursts in prop::collection::vec(prop::collection::vec(any_frame(), 0..40), 3),
        drawn in prop::collection::vec((0..4u8, 0..8u8), 0..8),
        bits in prop::sample::select(vec![vec![32u8], vec![31], vec![30, 32]]),
        replaced in prop::collection::vec((0..8usize, 100..200u32), 4),
        takes_udp: bool,
    ) {
        let function = ipsec(&gateway(takes_udp));
        let mut drawn: Vec<_> = (0..).zip(bits.iter().cycle()).zip(drawn).map(|((order, bits), (last, dice))| {
            let destination = Prefix::parse(&format!("192.0.2.{}/{bits}", last & (0xff << (32 - bits)) as u8)).unwrap();
            let action = match dice {
                0 => Action::Bypass,
                1 => Action::Discard,
                _ => Action::Protect(order),
            };
            Policy { selector: Selector { destination, ..Selector::default() }, action }
        }).collect();
        let policies = Policies::new(&drawn);
        let mut burst = Burst::default();
        for frames in &bursts {
            let frames = || frames.iter().map(Vec::as_slice);
            function.database.decide_all(&policies, frames(), &mut burst);
            let each: Vec<_> = frames().map(|frame| function.database.decide_any(&policies, frame)).collect();
            prop_assert_eq!(&burst.decisions, &each);
            for &(order, sa) in &replaced {
                if let Some(policy) = drawn.get_mut(order).filter(|policy| matches!(policy.action, Action::Protect(_))) {
                    policies.set_sa(order as u32, policy, sa);
                    policy.action = Action::Protect(sa);
                }
            }
        }
    }
}

/// Returns the configuration of the outbound SA `west` and of two inbound SAs. One of the inbound
/// SAs optionally uses ESP in UDP.
fn gateway(takes_udp: bool) -> String {
    let udp = if takes_udp { "udp_encapsulation = {}" } else { "" };
    sa("west", 0x1001, "out", "") + &sa("east", 0x2001, "in", "") + &sa("nat", 0x2002, "in", udp)
}

prop_compose! {
    /// Draws IPv4 frames between hosts of 192.0.2.0/30. They contain TCP, UDP, ESP or AH. Some of
    /// them are damaged or truncated.
    fn any_frame()(
        protocol in prop::sample::select(vec![6u8, 17, 50, 51]),
        fragment in prop::sample::select(vec![0u16, 0, 0, 0x2000, 0x4000, 1]),
        ends in (0..4u8, 0..4u8),
        spi in prop::sample::select(vec![0x2001u32, 0x2002, 0x2003, 0, 9]),
        mut payload in prop::collection::vec(any::<u8>(), 0..24),
        broken in prop::option::weighted(0.3, (prop::sample::select(vec![12usize, 13, 14, 16, 17]), any::<u8>())),
        cut in prop::option::weighted(0.2, 0..70usize),
        padding in 0..3usize,
    ) -> Vec<u8> {
        // ESP and ESP in UDP have the SPI at different offsets, so it is written at both.
        for (at, bytes) in [(0, spi), (8, spi)] {
            if payload.len() >= at + 4 && protocol != 6 {
                payload[at..at + 4].copy_from_slice(&bytes.to_be_bytes());
            }
        }
        if protocol == 17 && payload.len() >= 4 {
            payload[2..4].copy_from_slice(&4500u16.to_be_bytes());
        }
        let mut bytes = frame([192, 0, 2, ends.0], [192, 0, 2, ends.1], protocol, fragment, &payload);
        bytes.resize(bytes.len() + padding, 0);
        if let Some((at, value)) = broken {
            bytes[at] = value;
        }
        bytes.truncate(cut.unwrap_or(bytes.len()));
        bytes
    }
}
