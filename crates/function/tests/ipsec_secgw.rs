//! DPDK's example `ipsec-secgw` at the other end, with its ports on captures (net_pcap): it opens what we seal, and we open what it
//! seals. Its cryptography is Intel ipsec-mb or OpenSSL, its packets are those of librte_ipsec or of its own older code.

mod ipsec_common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use godwit_function::ipsec::suite::{Authentication, Cipher, Protocol};
use ipsec_common::association::{Association, Headers, every};
use ipsec_common::{Batch, Form, Packet, Random, build, forms, hex, name, repository, set_sequences, write_pcap};

/// Packets per SA: one short, the others of any length.
const PACKETS: usize = 3;
/// Where sequence numbers begin that are extended: what is behind 32 bits is authenticated too.
const EXTENDED: u64 = 5 << 32;
/// After so long without a packet the peer is taken to have dropped it.
const PATIENCE: Duration = Duration::from_secs(30);

/// One way to run the peer.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    cryptodev: &'static str,
    /// The cryptodev has every suite: OpenSSL's has no ChaCha20, and nothing that does nothing.
    every: bool,
    /// librte_ipsec, or the program's own ESP.
    library: bool,
    esn: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "librte_ipsec with ipsec-mb", cryptodev: "crypto_aesni_mb0", every: true, library: true, esn: false },
    Way {
        name: "librte_ipsec with ipsec-mb, ESN",
        cryptodev: "crypto_aesni_mb0",
        every: true,
        library: true,
        esn: true,
    },
    Way { name: "librte_ipsec with OpenSSL", cryptodev: "crypto_openssl0", every: false, library: true, esn: false },
    Way { name: "esp.c with ipsec-mb", cryptodev: "crypto_aesni_mb0", every: true, library: false, esn: false },
];

impl Way {
    /// Whether the peer has it.
    fn has(self, association: &Association) -> bool {
        let Association { suite, udp, esn, icv_bytes, .. } = association;
        // It puts ESP into UDP only where a NIC does the ESP.
        suite.protocol == Protocol::Esp
            && !udp
            && *esn == self.esn
            && self.rule(association).is_some()
            && (suite.authentication != Authentication::Ghash || *icv_bytes == 16)
    }

    /// A packet in hexadecimal digits. Its own ESP counts the TTL of what goes into a tunnel down: without it.
    fn shown(self, packet: &[u8]) -> String {
        let mut packet = packet.to_vec();
        if !self.library {
            let changed: &[usize] = if packet[0] >> 4 == 6 { &[7] } else { &[8, 10, 11] };
            changed.iter().for_each(|&at| packet[at] = 0);
        }
        hex(&packet)
    }

    /// What the peer calls the suite, with the keys.
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
            // Its own ESP takes the IV for 12 bytes long (RFC 7634, section 2: 8).
            (Cipher::ChaCha20, _) => {
                return self.library.then(|| format!("aead_algo chacha20-poly1305 aead_key {salted}"));
            }
            // Keys of 16 bytes are all it takes. The upper half of an extended number it has behind the packet, as with
            // HMAC, where RFC 4543, section 3.3, has it behind the SPI.
            (Cipher::Null, Authentication::Ghash) => {
                return (bits == 128 && self.library && !self.esn)
                    .then(|| format!("cipher_algo null auth_algo aes-gmac auth_key {salted}"));
            }
            (Cipher::Null, _) => "cipher_algo null".to_owned(),
            (Cipher::Cbc, _) => format!("cipher_algo aes-{bits}-cbc cipher_key {}", digits(&association.key)),
            // Its own ESP takes only whole blocks of 16 bytes with these, which a mode of streams does not have.
            (Cipher::Ctr, _) if bits > 128 && !self.library => return None,
            (Cipher::Ctr, _) => format!("cipher_algo aes-{bits}-ctr cipher_key {salted}"),
        };
        let authentication = match suite.authentication {
            Authentication::Sha1 => format!("auth_algo sha1-hmac auth_key {}", digits(&association.hmac_key)),
            Authentication::Sha256 => format!("auth_algo sha256-hmac auth_key {}", digits(&association.hmac_key)),
            _ => "auth_algo null".to_owned(),
        };
        Some(format!("{cipher} {authentication}"))
    }

    /// Its configuration: an SA and a policy for each, and one way out. `direction`: "in" or "out".
    fn configuration(self, cases: &[Case], direction: &str) -> String {
        let mut text = String::new();
        for Case { association, .. } in cases {
            let family = if association.inner_ipv6() { "ipv6" } else { "ipv4" };
            let bits = if association.inner_ipv6() { 128 } else { 32 };
            let (spi, rule) = (association.spi, self.rule(association).expect("the peer has it"));
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

/// An SA, and packets for it.
struct Case {
    association: Association,
    plain: Vec<Vec<u8>>,
}

fn cases(way: Way) -> Vec<Case> {
    let mut random = Random(77);
    let mut associations = every();
    associations.retain(|association| way.has(association));
    let case = |association: Association| {
        let plain = (0..PACKETS).map(|index| {
            let bytes = 1 + if index == 0 { random.below(64) } else { random.below(1300) };
            association.plain(&mut random, bytes, Headers::Plain)
        });
        Case { plain: plain.collect(), association }
    };
    associations.into_iter().map(case).collect()
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] });
    frame.extend(packet);
    frame
}

/// The peer at work; it never ends by itself.
struct Secgw(Child);

impl Drop for Secgw {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Frames through the peer, which must let so many out; in the order they leave.
fn secgw(way: Way, cases: &[Case], direction: &str, frames: &[Vec<u8>], expected: usize) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let text = |name: &str| file(name).display().to_string();
    write_pcap(&file("in.pcap"), frames);
    std::fs::write(file("gw.cfg"), way.configuration(cases, direction)).unwrap();
    let log = std::fs::File::create(file("log")).unwrap();
    let mut command = Command::new(program());
    // On any CPU: ours may be some of the machine's.
    command.arg(format!("--lcores=0@({})", cpus()));
    command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "512"]);
    command.arg(format!("--vdev={}", way.cryptodev));
    command.arg(format!("--vdev=net_pcap0,rx_pcap={}", text("in.pcap")));
    command.arg(format!("--vdev=net_pcap1,tx_pcap={}", text("out.pcap")));
    command.args(["--", "-p", "0x3", "-P", "-s", "8192"]);
    command.args(["-f", &text("gw.cfg")]);
    if direction == "in" {
        // What comes in at an unprotected port is to be opened.
        command.args(["-u", "0x1"]);
    }
    command.args(["--config", "(0,0,0),(1,0,0)"]);
    if way.library {
        command.arg("-l");
    }
    if way.esn {
        command.args(["-e", "-w", "64"]);
    }
    // Its files are there, wherever the system has the like.
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
        if ended.is_some() || since.elapsed() > PATIENCE {
            let log = std::fs::read_to_string(file("log")).unwrap_or_default();
            panic!("{}, {direction}: {count} packets of {expected}, {ended:?}\n{log}", way.name);
        }
        std::thread::yield_now();
    }
}

/// The frames of a capture that is being written: nothing where it ends within one, which is to be looked at again.
fn whole(path: &Path) -> Vec<Vec<u8>> {
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
    let mut frames = Vec::new();
    let mut rest = bytes.get(24..).unwrap_or_default();
    while let Some((record, behind)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(*record[8..].first_chunk().unwrap()) as usize;
        let Some((frame, behind)) = behind.split_at_checked(length) else { break };
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}

/// Numbers of the CPUs that this process may use, as in "0-3,8".
fn cpus() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("this is Linux").trim().to_owned()
}

fn program() -> std::path::PathBuf {
    repository("target/secgw/ipsec-secgw")
}

/// Whether the peer is there.
fn is_there() -> bool {
    let is_there = program().exists();
    if !is_there {
        godwit_tests::absent("target/secgw/ipsec-secgw (scripts/secgw.sh)");
    }
    is_there
}

/// Every packet through one form, with sequence numbers from `first` on for each SA.
fn run(stanza: &str, form: Form, packets: &[Vec<u8>], first: u64) -> (Vec<Packet>, Vec<&'static str>) {
    let function = build(stanza);
    let batch = Batch::new(&packets.iter().map(|packet| ethernet(packet)).collect::<Vec<_>>());
    let mut work = batch.prepare(&*function);
    set_sequences(&mut work, |index| first + (index % PACKETS) as u64);
    let packets = batch.run(&*function, form, &work, 32);
    let said = packets.iter().map(|packet| name(&*function, packet.outcome)).collect();
    (packets, said)
}

#[test]
fn secgw_opens_what_we_seal() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        let cases = cases(way);
        let plain: Vec<Vec<u8>> = cases.iter().flat_map(|case| case.plain.clone()).collect();
        let stanza: String = cases.iter().map(|case| case.association.outbound()).collect();
        let first = if way.esn { EXTENDED } else { 0 } + 1;
        let mut sealed: Option<Vec<Packet>> = None;
        for form in forms() {
            let (packets, said) = run(&stanza, form, &plain, first);
            assert!(said.iter().all(|said| *said == "encrypted"), "{}: {form}: {said:?}", way.name);
            if let Some(sealed) = &sealed {
                assert!(packets.iter().zip(sealed).all(|(packet, first)| packet.frame == first.frame), "{form}");
            }
            sealed.get_or_insert(packets);
        }
        // Of every SA that authenticates a packet that was changed on the way, in front of its packets.
        let mut frames = Vec::new();
        for (case, sealed) in cases.iter().zip(sealed.unwrap().chunks(PACKETS)) {
            if case.association.suite.authentication != Authentication::None {
                let mut damaged = sealed[0].frame.clone();
                *damaged.last_mut().unwrap() ^= 1;
                frames.push(damaged);
            }
            frames.extend(sealed.iter().map(|packet| packet.frame.clone()));
        }
        let opened = secgw(way, &cases, "in", &frames, plain.len());
        assert_same_packets(way, &cases, &opened, &plain);
    }
}

#[test]
fn we_open_what_secgw_seals() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        let cases = cases(way);
        let plain: Vec<Vec<u8>> = cases.iter().flat_map(|case| case.plain.clone()).collect();
        let frames: Vec<Vec<u8>> = plain.iter().map(|packet| ethernet(packet)).collect();
        let sealed = secgw(way, &cases, "out", &frames, plain.len());
        // Packets of one SA stay in order; those of different families do not.
        let stanza: String = cases.iter().map(|case| case.association.inbound()).collect();
        let function = build(&stanza);
        for form in forms() {
            let batch = Batch::new(&sealed);
            let mut work = batch.prepare(&*function);
            if way.esn {
                set_sequences(&mut work, |index| EXTENDED | u64::from(sequence(&sealed[index])));
            }
            let packets = batch.run(&*function, form, &work, 32);
            for packet in &packets {
                assert_eq!(name(&*function, packet.outcome), "decrypted", "{}: {form}", way.name);
            }
            let opened: Vec<Vec<u8>> = packets.into_iter().map(|packet| packet.frame).collect();
            assert_same_packets(way, &cases, &opened, &plain);
        }
    }
}

/// The number in the ESP header of a frame.
fn sequence(frame: &[u8]) -> u32 {
    let esp = if frame[14] >> 4 == 6 { 54 } else { 34 };
    u32::from_be_bytes(*frame[esp + 4..].first_chunk().unwrap())
}

/// The same packets, those of each SA in order.
fn assert_same_packets(way: Way, cases: &[Case], frames: &[Vec<u8>], plain: &[Vec<u8>]) {
    assert_eq!(frames.len(), plain.len(), "{}", way.name);
    for (case, plain) in cases.iter().zip(plain.chunks(PACKETS)) {
        let addresses =
            |packet: &[u8]| if packet[0] >> 4 == 6 { packet[8..40].to_vec() } else { packet[12..20].to_vec() };
        let found: Vec<String> = frames
            .iter()
            .map(|frame| &frame[14..])
            .filter(|packet| addresses(packet) == addresses(&plain[0]))
            .map(|packet| way.shown(packet))
            .collect();
        let expected: Vec<String> = plain.iter().map(|packet| way.shown(packet)).collect();
        assert_eq!(found, expected, "{}: {}", way.name, case.association);
    }
}
