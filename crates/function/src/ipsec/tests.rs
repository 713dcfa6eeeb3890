//! Configuration, policies and sequence numbers; what the kernel does is tested in `tests/ipsec_*.rs`.

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Arena, ArenaConfig, BUCKETS, Region, Steering};
use proptest::prelude::*;

use super::*;
use crate::testing::build_error;
use crate::{Error, Work};

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

fn ipsec(stanza: &str) -> Ipsec {
    let stanza = DeTable::parse(stanza).unwrap();
    Ipsec::new(crate::config::read(stanza).unwrap()).unwrap()
}

/// A frame with an IPv4 packet without payload checks: `payload` begins with ports where the protocol has them.
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
    function.host_half(worker, workers).unwrap().prepare(&region, &descriptors, &mut work);
    work
}

const fn encrypt(sa: u32, sequence: u32) -> Work {
    Work::Run { variant: VARIANT_ENCRYPT, parameter: parameter(sa, sequence as u64) }
}

const fn drop(reason: u8) -> Work {
    Work::Done(Outcome::drop(reason))
}

#[test]
fn policies_are_asked_in_order() {
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
        // A later fragment of TCP may be of the discarded port; a first one shows that it is not.
        frame(here, there, 6, 0x0001, &ports(1, 1)),
        frame(here, there, 6, 0x2000, &ports(1, 1)),
        // A fragment of UDP is no reason to bypass.
        frame(here, there, 17, 0x0001, &ports(500, 500)),
        // TCP too short to show ports.
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
fn without_a_policy_everything_is_discarded() {
    let frames = [frame([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[])];
    assert_eq!(prepare(&ipsec(""), 0, 1, &frames), [drop(DROP_POLICY_DISCARD)]);
}

#[test]
fn the_spi_finds_the_inbound_sa() {
    let other = sa("other", 0x2002, "in", "").replace("192.0.2.1", "192.0.2.9");
    let function = ipsec(&(sa("east", 0x2001, "in", "") + &other + "[[policy]]\naction = \"bypass\"\n"));
    let (peer, us) = ([192, 0, 2, 2], [192, 0, 2, 1]);
    let esp = |spi: u32| [&spi.to_be_bytes()[..], &[0; 4]].concat();
    let frames = [
        frame(peer, us, 50, 0, &esp(0x2001)),
        // Where it comes from does not matter (RFC 4301, section 4.1).
        frame([1, 2, 3, 4], us, 50, 0x4000, &esp(0x2001)),
        frame(peer, us, 50, 0, &esp(0x2003)),
        frame(peer, us, 50, 0, &esp(0x2002)),
        frame(peer, [192, 0, 2, 9], 50, 0, &esp(0x2002)),
        frame(peer, us, 50, 0x2000, &esp(0x2001)),
        frame(peer, us, 50, 0x0004, &esp(0x2001)),
        frame(peer, us, 50, 0, &[0, 0, 0x20, 1]),
        frame(peer, us, 50, 0, &esp(0)),
        // Not for us: policies decide.
        frame(peer, [192, 0, 2, 77], 50, 0, &esp(0x2001)),
        frame(peer, [192, 0, 2, 77], 50, 0x2000, &esp(0x2001)),
        frame(peer, [192, 0, 2, 77], 50, 0, &[]),
        frame(peer, us, 1, 0, &esp(0x2001)),
    ];
    let decrypt = |sa| Work::Run { variant: VARIANT_DECRYPT, parameter: parameter(sa, 0) };
    let bypass = Work::Done(Outcome::verdict(VERDICT_BYPASS));
    let expected = [
        decrypt(0),
        decrypt(0),
        drop(DROP_NO_SA),
        drop(DROP_NO_SA),
        decrypt(1),
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
fn frames_that_are_no_ipv4_pass_and_broken_ones_do_not() {
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
fn sequence_numbers_end_and_never_start_again() {
    let function = ipsec(&(sa("west", 0x1001, "out", "") + "[[policy]]\naction = \"protect\"\nsa = \"west\"\n"));
    let frames = vec![frame([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[]); 3];
    assert_eq!(prepare(&function, 0, 1, &frames), [encrypt(0, 1), encrypt(0, 2), encrypt(0, 3)]);
    assert_eq!(prepare(&function, 0, 1, &frames[..1]), [encrypt(0, 4)], "a new host half goes on");
    function.sequences[0].set_last(u32::MAX - 1);
    let exhausted = drop(DROP_SEQUENCE_EXHAUSTED);
    assert_eq!(prepare(&function, 0, 1, &frames), [encrypt(0, u32::MAX), exhausted, exhausted]);
    assert_eq!(prepare(&function, 0, 1, &frames[..1]), [exhausted]);
}

#[test]
fn each_sa_has_one_worker_and_steering_knows_it() {
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
fn what_cannot_work_is_said_in_one_sentence_without_keys() {
    let west = sa("west", 0x1001, "out", "");
    let east = sa("east", 0x2001, "in", "");
    let policy = |keys: &str| format!("[[policy]]\n{keys}\n");
    let short = west.replacen("0e0f\"", "\"", 1);
    let cases = [
        (short.clone(), "encryption_key of SA \"west\" must have 16 bytes (32 hex digits), and has 14"),
        (west.replace("10111213", "1011121"), "authentication_key of SA \"west\" must be 40 hex digits"),
        (west.replace("10111213", "101112zz"), "authentication_key of SA \"west\" must be 40 hex digits"),
        (west.replace("\"000102030405060708090a0b0c0d0e0f\"", "42424242"), "a text of 32 hex digits in quotes"),
        (west.clone() + &west.replace("4097", "4098"), "two SAs are called \"west\""),
        (west.clone() + &west.replace("\"west\"", "\"w2\""), "same SPI 0x1001 to 192.0.2.2 as SA \"west\""),
        (
            east.clone() + &east.replace("\"east\"", "\"e2\"").replace("2.1\"", "2.5\""),
            "same SPI 0x2001 as SA \"east\"",
        ),
        (sa("low", 255, "out", ""), "spi = 255 of SA \"low\" is reserved"),
        (west.replace("192.0.2.2", "224.0.0.1"), "224.0.0.1 of SA \"west\" is not the address"),
        (west.replace("192.0.2.2", "192.0.2.1"), "same source and destination"),
        (sa("west", 0x1001, "out", "selectors = [{ protocol = 6 }]"), "is outbound"),
        (sa("east", 0x2001, "in", "selectors = []"), "has no selectors"),
        (sa("east", 0x2001, "in", "selectors = [{ source_ports = 5 }]"), "ports need protocol"),
        (policy("action = \"protect\""), "must name its SA"),
        (policy("action = \"protect\"\nsa = \"wset\""), "no SA is called \"wset\"; there is none"),
        (west.clone() + &policy("action = \"protect\"\nsa = \"wset\""), "no SA is called \"wset\"; there are west"),
        (east.clone() + &policy("action = \"protect\"\nsa = \"east\""), "is inbound and cannot protect"),
        (west.clone() + &policy("action = \"bypass\"\nsa = \"west\""), "only a policy with action"),
        (policy("action = \"bypass\"\ndestination_ports = 53"), "ports need protocol"),
        (policy("action = \"bypass\"\nprotocol = \"icmp\"\ndestination_ports = 53"), "ports need protocol"),
        (policy("action = \"allow\""), "unknown variant `allow`"),
        (policy("action = \"bypass\"\nsorce = \"10.0.0.0/8\""), "unknown field `sorce`"),
        (west.replace("aes-128-cbc", "aes-256-cbc"), "unknown variant `aes-256-cbc`"),
        (west.replace("spi = 4097", "spi = -1"), "-1"),
    ];
    for (stanza, expected) in cases {
        let error = build_error(&KIND, &stanza, &[]);
        let text = error.to_string();
        assert!(text.contains(expected), "{expected:?} is not in {text:?}");
        assert!(!text.contains("0304") && !text.contains("4242"), "{text}");
        // Nor does the place at fault, whose line may be shown.
        if let Error::Value { span: Some(span), .. } = error {
            assert!(!stanza[span].contains("0304"), "{text}");
        }
    }
}

#[test]
fn one_spi_may_go_to_two_destinations() {
    let west = sa("west", 0x1001, "out", "");
    ipsec(&(west.clone() + &west.replace("\"west\"", "\"south\"").replace("192.0.2.2", "192.0.2.3")));
}

#[test]
fn the_image_is_as_image_h_draws_it() {
    let selectors = "selectors = [{}, { source = \"10.0.0.0/8\", protocol = 6, destination_ports = \"80-81\" }]";
    let function = ipsec(&(sa("west", 0x1001, "out", "") + &sa("east", 0x2001, "in", selectors)));
    let image = function.image().to_vec();
    let word = |at: usize| u32::from_le_bytes(*image[at..].first_chunk().unwrap());
    assert_eq!(&image[..4], b"IPSE");
    assert_eq!([word(4), word(8), word(12), word(16)], [2, 64, 2, 64 + 2 * 384]);
    assert_eq!(
        &image[64 + 128..][..16],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        "to encrypt, the key first"
    );
    let inbound = 64 + 384;
    assert_eq!(&image[inbound + 128 + 160..][..16], &image[64 + 128..][..16], "to decrypt, the key last");
    assert_eq!([word(64), word(64 + 4)], [0x1001, 1]);
    assert_eq!([word(inbound + 16), word(inbound + 32), word(inbound + 4)], [0xc000_0202, 0xc000_0201, 3]);
    assert_eq!([word(inbound + 52), word(inbound + 56)], [0, 2]);
    let second = 64 + 2 * 384 + 64;
    assert_eq!([word(second), word(second + 16)], [0x0a00_0000, 0]);
    assert_eq!(image[second + 32..][..6], [8, 0, 4, 1, 6, 0]);
    assert_eq!([word(second + 40), word(second + 44)], [0xffff_0000, 81 << 16 | 80]);
}

proptest! {
    /// No bytes make the host half panic, and it settles whatever is not for a kernel.
    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..120), ipv4: bool, esp: bool) {
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
}
