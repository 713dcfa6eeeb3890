//! Exchanges packets with DPDK's example `ipsec-secgw` in both directions. The ports of the example
//! are capture files (net_pcap). It uses Intel ipsec-mb or OpenSSL, and either librte_ipsec or its
//! built-in ESP code.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use godwit_function::ipsec::suite::{Authentication, Cipher, Protocol};
use godwit_test_cases::ipsec::association::{Association, Headers, every};
use godwit_test_cases::ipsec::batch::{Batch, Form, Packet, build, forms, name, set_sequences};
use godwit_test_cases::ipsec::hostile::ethernet;
use godwit_test_support::Random;
use godwit_test_support::capture;
use godwit_test_support::hex::hex;
use godwit_test_support::repository;

/// Number of packets per SA. One packet is short, and the others have any length.
const PACKETS: usize = 3;
/// Initial extended sequence number. The upper half is authenticated too, so it is not 0.
const EXTENDED: u64 = 5 << 32;
/// Time without output after which the missing packets count as dropped.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Configuration of the peer.
#[derive(Clone, Copy)]
struct Setup {
    name: &'static str,
    cryptodev: &'static str,
    /// Whether the cryptography driver supports every suite. OpenSSL has no ChaCha20 and no null
    /// algorithms.
    every: bool,
    /// Whether the peer uses librte_ipsec instead of its built-in ESP.
    library: bool,
    esn: bool,
}

const SETUPS: [Setup; 4] = [
    Setup { name: "librte_ipsec with ipsec-mb", cryptodev: "crypto_aesni_mb0", every: true, library: true, esn: false },
    Setup {
        name: "librte_ipsec with ipsec-mb, ESN",
        cryptodev: "crypto_aesni_mb0",
        every: true,
        library: true,
        esn: true,
    },
    Setup { name: "librte_ipsec with OpenSSL", cryptodev: "crypto_openssl0", every: false, library: true, esn: false },
    Setup { name: "esp.c with ipsec-mb", cryptodev: "crypto_aesni_mb0", every: true, library: false, esn: false },
];

impl Setup {
    /// Returns whether the peer supports the SA.
    fn supports(self, association: &Association) -> bool {
        let Association { suite, udp, esn, icv_bytes, .. } = association;
        // The peer supports ESP in UDP only if a NIC does the cryptography.
        suite.protocol == Protocol::Esp
            && !udp
            && *esn == self.esn
            && self.rule(association).is_some()
            && (suite.authentication != Authentication::Ghash || *icv_bytes == 16)
    }

    /// Returns a packet in hexadecimal digits for comparison. The built-in ESP of the peer
    /// decrements the TTL of tunneled packets. The TTL and the checksum are cleared in this case.
    fn comparable(self, packet: &[u8]) -> String {
        let mut packet = packet.to_vec();
        if !self.library {
            let changed: &[usize] = if packet[0] >> 4 == 6 { &[7] } else { &[8, 10, 11] };
            changed.iter().for_each(|&at| packet[at] = 0);
        }
        hex(&packet)
    }

    /// Returns the suite and the keys in the peer's configuration format. Returns `None` if the
    /// peer does not support the suite.
    fn rule(self, association: &Association) -> Option<String> {
        let suite = &association.suite;
        let bits = 8 * suite.key_bytes;
        let is_rare =
            matches!(suite.cipher, Cipher::Null | Cipher::ChaCha20) || suite.authentication == Authentication::None;
        if is_rare && !self.every {
            return None;
        }
        let digits = |key: &[u8]| key.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
        let salted = digits(&[&association.key[..], &association.salt[..]].concat());
        let cipher = match (suite.cipher, suite.authentication) {
            (Cipher::Ctr, Authentication::Ghash) => return Some(format!("aead_algo aes-{bits}-gcm aead_key {salted}")),
            (Cipher::Ctr, Authentication::Ccm) => return None,
            // The built-in ESP of the peer assumes an IV of 12 bytes. RFC 7634, section 2, requires
            // 8.
            (Cipher::ChaCha20, _) => {
                return self.library.then(|| format!("aead_algo chacha20-poly1305 aead_key {salted}"));
            }
            // The peer supports GMAC only with 16-byte keys. It authenticates the upper half of an
            // extended number after the packet, as with HMAC. This half must follow the SPI (RFC
            // 4543, section 3.3).
            (Cipher::Null, Authentication::Ghash) => {
                return (bits == 128 && self.library && !self.esn)
                    .then(|| format!("cipher_algo null auth_algo aes-gmac auth_key {salted}"));
            }
            (Cipher::Null, _) => "cipher_algo null".to_owned(),
            (Cipher::Cbc, _) => format!("cipher_algo aes-{bits}-cbc cipher_key {}", digits(&association.key)),
            // The built-in ESP of the peer requires blocks of 16 bytes for these keys. CTR packets
            // may have any multiple of 4 bytes.
            (Cipher::Ctr, _) if bits > 128 && !self.library => return None,
            (Cipher::Ctr, _) => format!("cipher_algo aes-{bits}-ctr cipher_key {salted}"),
        };
        let authentication = match suite.authentication {
            Authentication::Sha1 => format!("auth_algo sha1-hmac auth_key {}", digits(&association.hmac_key)),
            Authentication::Sha256 => format!("auth_algo sha256-hmac auth_key {}", digits(&association.hmac_key)),
            // The built-in ESP of the peer loses every packet with these algorithms, in both
            // directions.
            Authentication::Sha384 | Authentication::Sha512 if !self.library => return None,
            Authentication::Sha384 => format!("auth_algo sha384-hmac auth_key {}", digits(&association.hmac_key)),
            // The peer's OpenSSL driver lacks AES-XCBC, and the peer has no AES-CMAC.
            Authentication::Xcbc if self.every => {
                format!("auth_algo aes-xcbc-mac-96 auth_key {}", digits(&association.hmac_key))
            }
            Authentication::Xcbc | Authentication::Cmac => return None,
            Authentication::Sha512 => format!("auth_algo sha512-hmac auth_key {}", digits(&association.hmac_key)),
            _ => "auth_algo null".to_owned(),
        };
        Some(format!("{cipher} {authentication}"))
    }

    /// Returns the configuration of the peer. It has an SA and a policy for each case, and routes.
    /// `direction` is "in" or "out".
    fn configuration(self, cases: &[Case], direction: &str) -> String {
        let mut text = String::new();
        for Case { association, .. } in cases {
            let family = if association.inner_ipv6() { "ipv6" } else { "ipv4" };
            let bits = if association.inner_ipv6() { 128 } else { 32 };
            let (spi, rule) = (association.spi, self.rule(association).expect("the peer supports the suite"));
            let mode = match (association.tunnel, association.source.is_ipv6()) {
                (false, _) => "transport".to_owned(),
                (true, outer_ipv6) => {
                    let family = if outer_ipv6 { "ipv6" } else { "ipv4" };
                    format!("{family}-tunnel src {} dst {}", association.source, association.destination)
                }
            };
            let esn = if self.esn { format!(" esn {}", EXTENDED + 1) } else { String::new() };
            text += &format!("sa {direction} {spi} {rule} mode {mode}{esn}\n");
            let [source, destination] =
                [association.inner_source, association.inner_destination].map(|address| format!("{address}/{bits}"));
            text += &format!(
                "sp {family} {direction} esp protect {spi} pri 1 src {source} dst {destination} sport 0:65535 dport 0:65535\n"
            );
        }
        text += "rt ipv4 dst 10.0.0.0/8 port 1\nrt ipv4 dst 192.0.2.0/24 port 1\nrt ipv6 dst 2001:db8::/32 port 1\n";
        text + "neigh port 1 02:00:00:00:00:02\n"
    }
}

/// SA with its plaintext packets.
struct Case {
    association: Association,
    plain: Vec<Vec<u8>>,
}

fn cases(setup: Setup) -> Vec<Case> {
    let mut random = Random::new(77);
    let mut associations = every();
    associations.retain(|association| setup.supports(association));
    let case = |association: Association| {
        let plain = (0..PACKETS).map(|index| {
            let bytes = 1 + if index == 0 { random.below(64) } else { random.below(1300) };
            association.plain(&mut random, bytes, Headers::Plain)
        });
        Case { plain: plain.collect(), association }
    };
    associations.into_iter().map(case).collect()
}

/// Running peer. The process does not end by itself, so it is killed when this value is dropped.
struct Secgw(Child);

impl Drop for Secgw {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends frames through the peer and returns its output frames in order. Panics if the output has
/// fewer than `expected` frames.
fn secgw(setup: Setup, cases: &[Case], direction: &str, frames: &[Vec<u8>], expected: usize) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let text = |name: &str| file(name).display().to_string();
    capture::write(&file("in.pcap"), frames);
    std::fs::write(file("gw.cfg"), setup.configuration(cases, direction)).unwrap();
    let log = std::fs::File::create(file("log")).unwrap();
    let mut command = Command::new(program());
    // The thread of DPDK may run on any CPU that this process may use.
    command.arg(format!("--lcores=0@({})", cpus()));
    command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "512"]);
    command.arg(format!("--vdev={}", setup.cryptodev));
    command.arg(format!("--vdev=net_pcap0,rx_pcap={}", text("in.pcap")));
    command.arg(format!("--vdev=net_pcap1,tx_pcap={}", text("out.pcap")));
    command.args(["--", "-p", "0x3", "-P", "-s", "8192"]);
    command.args(["-f", &text("gw.cfg")]);
    if direction == "in" {
        // The peer decapsulates packets from an unprotected port.
        command.args(["-u", "0x1"]);
    }
    command.args(["--config", "(0,0,0),(1,0,0)"]);
    if setup.library {
        command.arg("-l");
    }
    if setup.esn {
        command.args(["-e", "-w", "64"]);
    }
    // DPDK puts its runtime files here, and not into a system directory.
    command.env("RUNTIME_DIRECTORY", folder.path()).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let mut running = Secgw(command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program().display())));
    let (mut count, mut since) = (0, Instant::now());
    loop {
        let ended = running.0.try_wait().unwrap();
        let out = whole(&file("out.pcap"));
        if out.len() >= expected {
            return out;
        }
        if out.len() > count {
            (count, since) = (out.len(), Instant::now());
        }
        if ended.is_some() || since.elapsed() > TIMEOUT {
            let log = std::fs::read_to_string(file("log")).unwrap_or_default();
            panic!("{}, {direction}: {count} packets of {expected}, {ended:?}\n{log}", setup.name);
        }
        std::thread::yield_now();
    }
}

/// Returns the complete frames of a capture that is still being written.
fn whole(path: &Path) -> Vec<Vec<u8>> {
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
    let mut frames = Vec::new();
    let mut rest = bytes.get(24..).unwrap_or_default();
    while let Some((record, after)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(*record[8..].first_chunk().unwrap()) as usize;
        let Some((frame, after)) = after.split_at_checked(length) else { break };
        frames.push(frame.to_vec());
        rest = after;
    }
    frames
}

/// Returns the CPUs that this process may use, for example "0-3,8".
fn cpus() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("Linux lists the allowed CPUs").trim().to_owned()
}

fn program() -> std::path::PathBuf {
    repository().join("target/secgw/ipsec-secgw")
}

/// Returns whether the peer is installed.
fn is_installed() -> bool {
    let is_installed = program().exists();
    if !is_installed {
        godwit_test_support::absent("target/secgw/ipsec-secgw (scripts/secgw.sh)");
    }
    is_installed
}

fn run(stanza: &str, form: Form, packets: &[Vec<u8>], first: u64) -> (Vec<Packet>, Vec<&'static str>) {
    let function = build(stanza);
    let batch = Batch::new(&packets.iter().map(|packet| ethernet(packet)).collect::<Vec<_>>());
    let mut work = batch.prepare(&*function);
    set_sequences(&mut work, |index| first + (index % PACKETS) as u64);
    let packets = batch.run(&*function, form, &work, 32);
    let verdicts = packets.iter().map(|packet| name(&*function, packet.outcome)).collect();
    (packets, verdicts)
}

#[test]
fn secgw_decapsulates_our_packets() {
    if !is_installed() {
        return;
    }
    for setup in SETUPS {
        let cases = cases(setup);
        let plain: Vec<Vec<u8>> = cases.iter().flat_map(|case| case.plain.clone()).collect();
        let stanza: String = cases.iter().map(|case| case.association.outbound()).collect();
        let first = if setup.esn { EXTENDED } else { 0 } + 1;
        let mut sent: Option<Vec<Packet>> = None;
        for form in forms() {
            let (packets, verdicts) = run(&stanza, form, &plain, first);
            assert!(verdicts.iter().all(|verdict| *verdict == "encrypted"), "{}: {form}: {verdicts:?}", setup.name);
            if let Some(sent) = &sent {
                assert!(packets.iter().zip(sent).all(|(packet, first)| packet.frame == first.frame), "{form}");
            }
            sent.get_or_insert(packets);
        }
        // For each SA with authentication, a damaged packet precedes the valid packets.
        let mut frames = Vec::new();
        for (case, sent) in cases.iter().zip(sent.unwrap().chunks(PACKETS)) {
            if case.association.suite.authentication != Authentication::None {
                let mut damaged = sent[0].frame.clone();
                *damaged.last_mut().unwrap() ^= 1;
                frames.push(damaged);
            }
            frames.extend(sent.iter().map(|packet| packet.frame.clone()));
        }
        let received = secgw(setup, &cases, "in", &frames, plain.len());
        assert_same_packets(setup, &cases, &received, &plain);
    }
}

#[test]
fn packets_of_secgw_are_decapsulated() {
    if !is_installed() {
        return;
    }
    for setup in SETUPS {
        let cases = cases(setup);
        let plain: Vec<Vec<u8>> = cases.iter().flat_map(|case| case.plain.clone()).collect();
        let frames: Vec<Vec<u8>> = plain.iter().map(|packet| ethernet(packet)).collect();
        let received = secgw(setup, &cases, "out", &frames, plain.len());
        // Packets of one SA stay in order. Packets of different address families may be reordered.
        let stanza: String = cases.iter().map(|case| case.association.inbound()).collect();
        let function = build(&stanza);
        for form in forms() {
            let batch = Batch::new(&received);
            let mut work = batch.prepare(&*function);
            if setup.esn {
                set_sequences(&mut work, |index| EXTENDED | u64::from(sequence(&received[index])));
            }
            let packets = batch.run(&*function, form, &work, 32);
            for packet in &packets {
                assert_eq!(name(&*function, packet.outcome), "decrypted", "{}: {form}", setup.name);
            }
            let decapsulated: Vec<Vec<u8>> = packets.into_iter().map(|packet| packet.frame).collect();
            assert_same_packets(setup, &cases, &decapsulated, &plain);
        }
    }
}

/// Returns the sequence number in the ESP header of a frame.
fn sequence(frame: &[u8]) -> u32 {
    let esp = if frame[14] >> 4 == 6 { 54 } else { 34 };
    u32::from_be_bytes(*frame[esp + 4..].first_chunk().unwrap())
}

/// Checks that the packets are equal. The packets of each SA must be in order.
fn assert_same_packets(setup: Setup, cases: &[Case], frames: &[Vec<u8>], plain: &[Vec<u8>]) {
    assert_eq!(frames.len(), plain.len(), "{}", setup.name);
    for (case, plain) in cases.iter().zip(plain.chunks(PACKETS)) {
        let addresses =
            |packet: &[u8]| if packet[0] >> 4 == 6 { packet[8..40].to_vec() } else { packet[12..20].to_vec() };
        let found: Vec<String> = frames
            .iter()
            .map(|frame| &frame[14..])
            .filter(|packet| addresses(packet) == addresses(&plain[0]))
            .map(|packet| setup.comparable(packet))
            .collect();
        let expected: Vec<String> = plain.iter().map(|packet| setup.comparable(packet)).collect();
        assert_eq!(found, expected, "{}: {}", setup.name, case.association);
    }
}
