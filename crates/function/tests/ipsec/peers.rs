//! Exchanges packets with scapy and tshark. The tests cover every suite, mode, address family and
//! sequence number length, with and without UDP.

use std::io::Write as _;
use std::process::Stdio;

use godwit_function::Function;
use godwit_function::Work;
use godwit_function::ipsec::suite::{Authentication, Cipher, Protocol};
use godwit_test_cases::ipsec::association::{Association, Headers, every};
use godwit_test_cases::ipsec::batch::{Batch, Form, Packet, build, forms, name, set_sequences};
use godwit_test_cases::ipsec::hostile::ethernet;
use godwit_test_support::Random;
use godwit_test_support::capture;
use godwit_test_support::hex::hex;
use godwit_test_support::hex::unhex;
use godwit_test_support::repository;
use godwit_test_support::{Folder, Peer, python};

/// Number of packets per SA. One packet is short, and the others have any length.
const PACKETS: usize = 3;
/// Upper half of extended sequence numbers in tests that choose it.
const UPPER: u32 = 5;

/// SA with its plaintext packets.
struct Case {
    association: Association,
    plain: Vec<Vec<u8>>,
}

fn cases(headers: impl Fn(&Association) -> Headers) -> Vec<Case> {
    let mut random = Random::new(99);
    let case = |association: Association| {
        let headers = headers(&association);
        let plain = (0..PACKETS).map(|index| {
            // scapy treats an empty payload as padding, so each packet has at least one byte.
            let bytes = 1 + if index == 0 { random.below(64) } else { random.below(1400) };
            association.plain(&mut random, bytes, headers)
        });
        Case { plain: plain.collect(), association }
    };
    every().into_iter().map(case).collect()
}

/// Returns the headers that scapy supports. It assumes that every routing header has segments left.
/// It supports no extension headers with UDP.
fn for_scapy(association: &Association) -> Headers {
    match (association.tunnel, association.udp, association.suite.protocol) {
        (true, ..) => Headers::Any,
        (false, true, _) => Headers::Plain,
        (false, false, Protocol::Ah) => Headers::Unrouted,
        (false, false, Protocol::Esp) => Headers::Any,
    }
}

/// Returns the sequence number of the packet with the given index. The upper half of extended
/// numbers is [`UPPER`].
fn sequence(association: &Association, index: usize) -> u64 {
    let upper = if association.esn { u64::from(UPPER) << 32 } else { 0 };
    upper | (7000 + index as u64)
}

fn run(function: &dyn Function, form: Form, cases: &[Case], packets: &[Vec<u8>]) -> Vec<Packet> {
    let frames: Vec<Vec<u8>> = packets.iter().map(|packet| ethernet(packet)).collect();
    let batch = Batch::new(&frames);
    let mut work = batch.prepare(function);
    for (index, work) in work.iter().enumerate() {
        let association = &cases[index / PACKETS].association;
        assert!(matches!(work, Work::Run { .. }), "{association}: {work:?}");
    }
    set_sequences(&mut work, |index| sequence(&cases[index / PACKETS].association, index));
    batch.run(function, form, &work, 32)
}

fn outbound(cases: &[Case]) -> String {
    cases.iter().map(|case| case.association.outbound()).collect()
}

fn inbound(cases: &[Case]) -> String {
    cases.iter().map(|case| case.association.inbound()).collect()
}

/// Runs tests/peers/ipsec_scapy.py and returns one answer per job.
fn scapy(python: &Peer, jobs: &[String]) -> Vec<String> {
    let script = repository().join("tests/peers/ipsec_scapy.py");
    let mut child =
        python.command().arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
    let mut stdin = child.stdin.take().unwrap();
    let text = jobs.join("\n");
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "scapy exited with {}", output.status);
    let answers: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(answers.len(), jobs.len());
    answers
}

#[test]
fn scapy_decapsulates_our_packets() {
    let Some(python) = python("scapy.layers.ipsec") else { return };
    let cases = cases(for_scapy);
    let function = build(&outbound(&cases));
    let plain: Vec<Vec<u8>> = cases.iter().flat_map(|case| case.plain.clone()).collect();
    let mut sent: Option<Vec<Packet>> = None;
    for form in forms() {
        let packets = run(&*function, form, &cases, &plain);
        for (index, packet) in packets.iter().enumerate() {
            let association = &cases[index / PACKETS].association;
            assert_eq!(name(&*function, packet.outcome), "encrypted", "{form}: {association}");
            assert_eq!(packet.outcome.value, association.spi, "{form}: {association}");
            // All forms of the kernel must produce the same packets, so scapy checks these packets
            // only once.
            if let Some(sent) = &sent {
                assert!(packet.frame == sent[index].frame, "{form}: {association}: differs from ref");
            }
        }
        sent.get_or_insert(packets);
    }
    let sent = sent.unwrap();
    let mut jobs = Vec::new();
    for (case, sent) in cases.iter().zip(sent.chunks(PACKETS)) {
        jobs.push(case.association.scapy(UPPER));
        jobs.extend(sent.iter().map(|packet| format!("decapsulate {}", hex(&packet.frame[14..]))));
    }
    let answers = scapy(&python, &jobs);
    for (case, answers) in cases.iter().zip(answers.chunks(1 + PACKETS)) {
        assert_eq!(answers[0], "ok", "{}", case.association);
        for (answer, plain) in answers[1..].iter().zip(&case.plain) {
            assert_eq!(*answer, hex(plain), "{}", case.association);
        }
    }
}

#[test]
fn packets_of_scapy_are_decapsulated() {
    let Some(python) = python("scapy.layers.ipsec") else { return };
    let cases = cases(for_scapy);
    let mut jobs = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        jobs.push(case.association.scapy(UPPER));
        jobs.extend(case.plain.iter().enumerate().map(|(index, plain)| {
            let sequence = sequence(&case.association, number * PACKETS + index) as u32;
            format!("encapsulate {sequence} {}", hex(plain))
        }));
    }
    let answers = scapy(&python, &jobs);
    let mut received = Vec::new();
    for (case, answers) in cases.iter().zip(answers.chunks(1 + PACKETS)) {
        for answer in &answers[1..] {
            assert!(!answer.starts_with("error"), "{}: {answer}", case.association);
            received.push(unhex(answer));
        }
    }
    let function = build(&inbound(&cases));
    for form in forms() {
        let packets = run(&*function, form, &cases, &received);
        for (index, packet) in packets.iter().enumerate() {
            let Case { association, plain } = &cases[index / PACKETS];
            assert_eq!(name(&*function, packet.outcome), "decrypted", "{form}: {association}");
            assert_eq!(hex(&packet.frame[14..]), hex(&plain[index % PACKETS]), "{form}: {association}");
        }
    }
}

/// Returns the row of tshark's table `esp_sa`. Returns `None` if tshark cannot decrypt the packets
/// of the SA.
fn tshark_row(association: &Association) -> Option<String> {
    let Association { suite, esn, tunnel, udp, .. } = association;
    if suite.protocol == Protocol::Ah || *esn || !tunnel || *udp {
        return None;
    }
    let (encryption, key) = match (suite.cipher, suite.authentication) {
        // tshark 4.0 does not support CCM.
        (Cipher::Null, Authentication::Ghash) | (_, Authentication::Ccm) => return None,
        // tshark 4.0 does not check these MACs.
        (_, Authentication::Xcbc | Authentication::Cmac) => return None,
        (Cipher::Null, _) => ("NULL", String::new()),
        (Cipher::Cbc, _) => ("AES-CBC [RFC3602]", hex(&association.key)),
        (Cipher::Ctr, Authentication::Ghash) => {
            let name = match association.icv_bytes {
                8 => "AES-GCM with 8 octet ICV [RFC4106]",
                12 => "AES-GCM with 12 octet ICV [RFC4106]",
                _ => "AES-GCM with 16 octet ICV [RFC4106]",
            };
            (name, hex(&association.key) + &hex(&association.salt))
        }
        (Cipher::Ctr, _) => ("AES-CTR [RFC3686]", hex(&association.key) + &hex(&association.salt)),
        // tshark 4.0 does not support ChaCha20.
        (Cipher::ChaCha20, _) => return None,
    };
    let (authentication, hmac_key) = match suite.authentication {
        Authentication::Sha1 => ("HMAC-SHA-1-96 [RFC2404]", hex(&association.hmac_key)),
        Authentication::Sha256 => ("HMAC-SHA-256-128 [RFC4868]", hex(&association.hmac_key)),
        Authentication::Sha384 => ("HMAC-SHA-384-192 [RFC4868]", hex(&association.hmac_key)),
        Authentication::Sha512 => ("HMAC-SHA-512-256 [RFC4868]", hex(&association.hmac_key)),
        _ => ("NULL", String::new()),
    };
    let digits = |key: String| if key.is_empty() { key } else { format!("0x{key}") };
    let family = if association.source.is_ipv6() { "IPv6" } else { "IPv4" };
    Some(format!(
        "uat:esp_sa:\"{family}\",\"{}\",\"{}\",\"{:#010x}\",\"{encryption}\",\"{}\",\"{authentication}\",\"{}\"",
        association.source,
        association.destination,
        association.spi,
        digits(key),
        digits(hmac_key),
    ))
}

#[test]
fn tshark_decrypts_our_packets() {
    let Some(tshark) = Peer::find("tshark") else { return };
    let folder = Folder::new();
    let path = folder.join("esp.pcap");
    let mut cases = cases(|_| Headers::Any);
    cases.retain(|case| tshark_row(&case.association).is_some());
    assert!(cases.len() > 60, "tshark supports only {} SAs", cases.len());
    let function = build(&outbound(&cases));
    let plain: Vec<Vec<u8>> = cases.iter().flat_map(|case| case.plain.clone()).collect();
    let form = *forms().last().unwrap();
    let sent: Vec<Vec<u8>> = run(&*function, form, &cases, &plain).into_iter().map(|packet| packet.frame).collect();
    capture::write(&path, &sent);
    let mut command = tshark.command();
    command.args(["-n", "-o", "esp.enable_encryption_decode:TRUE", "-o", "esp.enable_authentication_check:TRUE"]);
    for row in cases.iter().filter_map(|case| tshark_row(&case.association)) {
        command.args(["-o", &row]);
    }
    command.args(["-T", "fields", "-E", "separator=;", "-E", "occurrence=f", "-r"]).arg(&path);
    command.args([
        "-e",
        "esp.icv_good",
        "-e",
        "esp.spi",
        "-e",
        "esp.sequence",
        "-e",
        "esp.protocol",
        "-e",
        "esp.pad_len",
    ]);
    command.args(["-e", "esp.decrypted_data"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), plain.len(), "{}", String::from_utf8_lossy(&output.stderr));
    for (index, (row, plain)) in rows.iter().zip(&plain).enumerate() {
        let association = &cases[index / PACKETS].association;
        let columns: Vec<&str> = row.split(';').collect();
        // tshark reports a good ICV only for suites with authentication.
        let is_authenticated = association.suite.authentication != Authentication::None;
        assert_eq!(matches!(columns[0], "1" | "True"), is_authenticated, "{association}: {row}");
        assert_eq!(columns[1], format!("{:#010x}", association.spi), "{association}");
        assert_eq!(columns[2], format!("{}", sequence(association, index)), "{association}");
        let next_header = if association.inner_ipv6() { ["41", "0x29"] } else { ["4", "0x04"] };
        assert!(next_header.contains(&columns[3]), "{association}: {row}");
        assert!(columns[5].replace(':', "").starts_with(&hex(plain)), "{association}: {row}");
    }
}
