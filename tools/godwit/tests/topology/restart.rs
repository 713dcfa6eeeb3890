//! Processes that are killed under load and started again: no nonce repeats on the wire, and no
//! packet is accepted twice.
//!
//! `GODWIT_KILLS=1000` sets the number of kills of each test (default: 4).

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use godwit_test_support::network::{in_namespace, veth_pair};
use godwit_test_support::{Folder, FrameBuilder, Random, capture};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, bind, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::unistd::Pid;

/// Offset of the outer protocol in a frame, and of the ESP header behind an IPv4 header.
const PROTOCOL: usize = 14 + 9;
const ESP: usize = 14 + 20;
/// Size of the receive buffer of a socket that captures, in bytes.
const SOCKET_BYTES: usize = 256 << 20;

/// Largest number of new packets to a receiver between two kills.
const MORE_MAX: usize = 1000;
/// Number of kills from which a further receiver is killed at the same time.
const KILLS_OF_ONE: usize = 50;
/// Maximum number of receivers at the same time.
const RECEIVERS_MAX: usize = 4;
/// Maximum time until a process has opened its ports.
const START_LIMIT: Duration = Duration::from_secs(30);

fn kills() -> usize {
    std::env::var("GODWIT_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// Set of numbers that grows with the largest one.
#[derive(Default)]
struct Numbers {
    words: Vec<u64>,
    count: u64,
}

impl Numbers {
    /// Returns false if the number was already in the set.
    fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += u64::from(is_new);
        is_new
    }
}

/// Thread that passes every frame of an interface to a set, and counts repeated numbers.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Numbers, u64)>,
}

impl Watch {
    fn start(interface: &str, number: fn(&[u8]) -> Option<u64>) -> Self {
        let mut socket = raw_socket(interface);
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let body = move || {
            let (mut numbers, mut repeated) = (Numbers::default(), 0);
            let mut frame = [0; 2048];
            loop {
                match socket.read(&mut frame) {
                    Ok(bytes) => {
                        if let Some(number) = number(&frame[..bytes]) {
                            repeated += u64::from(!numbers.insert(number));
                        }
                    }
                    // The socket is empty.
                    Err(_) if is_stopped.load(Ordering::Relaxed) => return (numbers, repeated),
                    Err(_) => {}
                }
            }
        };
        Self { stop, thread: thread::spawn(body) }
    }

    /// Returns the numbers, and how many of them were repeated.
    fn finish(self) -> (Numbers, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread reads until it is stopped")
    }
}

/// Returns a socket that receives the frames that arrive at an interface, and sends frames by it.
fn raw_socket(interface: &str) -> File {
    let protocol = SockProtocol::EthAll;
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).expect("root may open it");
    let is_link = |entry: &InterfaceAddress| {
        entry.interface_name == interface && entry.address.is_some_and(|a| a.as_link_addr().is_some())
    };
    let entry = getifaddrs().expect("interfaces").find(is_link).expect("the interface exists");
    let address = entry.address.expect("an address");
    bind(socket.as_raw_fd(), address.as_link_addr().expect("a link address")).expect("the interface exists");
    setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BYTES).expect("root may set any size");
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::milliseconds(100)).expect("a time");
    File::from(socket)
}

/// Starts the program that was just built, in the namespace of this thread.
fn start(config: &Path, wrapper: &[&str], more: &[&str]) -> Child {
    let godwit = env!("CARGO_BIN_EXE_godwit");
    let mut words = wrapper.iter().copied().chain([godwit, "run"]);
    let mut command = Command::new(words.next().unwrap_or(godwit));
    command.args(words).arg(config).args(more);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Ends a process as a crash does. Panics if it has ended by itself.
fn crash(mut child: Child) {
    if let Some(status) = child.try_wait().expect("it can be asked") {
        let mut printed = String::new();
        let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut printed));
        panic!("{status}: {printed}");
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

fn sa(direction: &str) -> String {
    format!(
        "[[function.sa]]\nname = \"{direction}\"\nspi = 0x1001\ndirection = \"{direction}\"\nsource = \"192.0.2.1\"\n\
         destination = \"192.0.2.2\"\nencryption = \"aes-128-gcm\"\nencryption_key = \"{KEY}\"\n"
    )
}

/// Key of this test alone: a key has one sending process.
const KEY: &str = "9f1c6f5e0b7d42a8a1c3e5f7092b4d6e8fa1b3c5";

/// Configuration that sends generated packets into a tunnel, as fast as possible.
fn sender(folder: &Folder) -> PathBuf {
    let text = format!(
        "[engine]\nstate = \"state\"\npin = false\n[[port]]\nname = \"lan\"\nkind = \"synthetic\"\n\
         [[port]]\nname = \"wan\"\nkind = \"af_xdp\"\ninterface = \"wan\"\n\
         [[function]]\nname = \"tunnel\"\nkind = \"ipsec\"\n{}[[function.policy]]\naction = \"protect\"\nsa = \"out\"\n\
         [[chain]]\nfrom = \"lan\"\nto = \"tunnel\"\n[[chain]]\nfrom = \"tunnel\"\nverdict = \"encrypted\"\nto = \"wan\"\n\
         [[chain]]\nfrom = \"tunnel\"\nto = \"drop\"\n",
        sa("out")
    );
    folder.write("sender.toml", text)
}

/// Returns the IV of an ESP packet, which is the variable part of its nonce.
fn iv(frame: &[u8]) -> Option<u64> {
    let iv = frame.get(ESP + 8..)?.first_chunk::<8>()?;
    (frame[PROTOCOL] == 50).then(|| u64::from_be_bytes(*iv))
}

#[test]
fn no_nonce_repeats_after_kills() {
    in_namespace(|| {
        veth_pair(["wan", "far"]);
        let folder = Folder::new();
        let config = sender(&folder);
        let watch = Watch::start("far", iv);
        let mut random = Random::new(0x5eed);
        for _ in 0..kills() {
            let child = start(&config, &[], &[]);
            thread::sleep(Duration::from_millis(random.below(900) as u64));
            crash(child);
        }
        // A clean end and a start after it.
        for _ in 0..2 {
            let output = start(&config, &[], &["--seconds", "0.5"]).wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let (numbers, repeated) = watch.finish();
        eprintln!("{} kills: {} packets, {repeated} repeated nonces", kills(), numbers.count);
        assert_eq!(repeated, 0);
        assert!(numbers.count > 1000, "{} packets", numbers.count);
    });
}

/// Kills the process at each of its calls that make a file durable.
#[test]
fn no_nonce_repeats_after_a_kill_at_any_sync() {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        return godwit_test_support::absent("strace");
    }
    in_namespace(|| {
        veth_pair(["wan", "far"]);
        let folder = Folder::new();
        let config = sender(&folder);
        let watch = Watch::start("far", iv);
        let mut killed = 0;
        // Each call is counted per thread: those at the start, and those under load and at the end.
        for call in ["fdatasync", "fsync", "rename"] {
            for number in 1..20 {
                let inject = format!("inject={call}:signal=KILL:when={number}");
                let wrapper =
                    ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync,rename", "-e", &inject];
                let output = start(&config, &wrapper, &["--seconds", "0.8"]).wait_with_output().expect("it ends");
                if output.status.success() {
                    break;
                }
                let printed = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.code() != Some(2), "{printed}");
                killed += 1;
            }
        }
        let (numbers, repeated) = watch.finish();
        eprintln!("{killed} kills at calls: {} packets, {repeated} repeated nonces", numbers.count);
        assert_eq!(repeated, 0);
        assert!(killed >= 4 && numbers.count > 1000, "{killed} kills, {} packets", numbers.count);
    });
}

/// Returns the number in the payload of an inner packet.
fn payload_number(frame: &[u8]) -> Option<u64> {
    let number = frame.get(14 + 20 + 8..)?.first_chunk::<8>()?;
    (frame[PROTOCOL] == 17 && frame.get(36..38) == Some(&[0x30, 0x39])).then(|| u64::from_be_bytes(*number))
}

/// Returns the inner packets 1, 2, ... of a tunnel as ESP packets of the peer, made by a replay.
fn esp_packets(count: usize) -> Vec<Vec<u8>> {
    let folder = Folder::new();
    let inner = |number: u64| {
        let data = number.to_be_bytes();
        FrameBuilder::new().ipv4([10, 1, 0, 1], [10, 2, 0, 1]).udp([4000, 12345], &data)
    };
    let frames: Vec<Vec<u8>> = (0..count as u64).map(inner).collect();
    capture::write(&folder.join("plain.pcap"), &frames);
    let [plain, esp] = ["plain.pcap", "esp.pcap"].map(|name| folder.join(name).display().to_string());
    let peer = sender(&folder);
    let mut replay = Command::new(env!("CARGO_BIN_EXE_godwit"));
    let replay = replay.arg("replay").arg(&peer).args(["--in", &plain, "--out", &esp]).output().expect("it starts");
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let esp = capture::read(&folder.join("esp.pcap"));
    assert_eq!(esp.len(), frames.len());
    esp
}

/// Configuration that opens the packets of a tunnel. The arena is small, so that a start is short.
const RECEIVER: &str = r#"
[engine]
state = "state-in"
pin = false
in_flight_packets = 512
burst_packets = 64
[[port]]
name = "lan"
kind = "af_xdp"
interface = "lan"
[[port]]
name = "wan"
kind = "af_xdp"
interface = "wan"
take = "all"
[[chain]]
from = "wan"
to = "tunnel"
[[chain]]
from = "tunnel"
verdict = "decrypted"
to = "lan"
[[chain]]
from = "tunnel"
to = "drop"
[[function]]
name = "tunnel"
kind = "ipsec"
impl = "scalar"
"#;

/// Kills a receiver `kills` times under load. Returns how many packets it was sent, how many it
/// accepted, and how many it accepted twice.
fn kill_a_receiver(esp: &[Vec<u8>], kills: usize, seed: u64) -> [u64; 3] {
    for pair in [["wan", "far"], ["lan", "host"]] {
        veth_pair(pair);
    }
    let folder = Folder::new();
    let config = folder.write("receiver.toml", RECEIVER.to_owned() + &sa("in"));
    let watch = Watch::start("host", payload_number);
    let mut wire = raw_socket("far");
    let ready = UnixDatagram::bind(folder.join("ready")).expect("a socket");
    ready.set_read_timeout(Some(START_LIMIT)).expect("a time");
    let mut random = Random::new(seed);
    let mut sent = 0_usize;
    for life in 0..=kills {
        let child = start(&config, &["env", &format!("NOTIFY_SOCKET={}", folder.join("ready").display())], &[]);
        await_start(&ready);
        // Everything that an observer recorded, newest first, and then the traffic goes on. In
        // between, recorded packets repeat.
        let old = &esp[sent.saturating_sub(3000)..sent];
        let more = 200 + random.below(MORE_MAX - 200);
        let new = &esp[sent..sent + more];
        let repeated = new.chunks(32).flat_map(|burst| burst.iter().chain(burst.iter().rev().take(8)));
        let all: Vec<&Vec<u8>> = old.iter().rev().chain(repeated).collect();
        // The kill comes at a random moment, while new packets arrive.
        let killed_at = old.len() + random.below(all.len() - old.len());
        let mut child = Some(child);
        for (index, frame) in all.iter().enumerate() {
            if let Some(child) = child.take_if(|_| index == killed_at && life < kills) {
                crash(child);
            }
            wire.write_all(frame).expect("the interface is up");
            // New packets arrive so slowly that their numbers become durable in between.
            if index % if index < old.len() { 50 } else { 10 } == 0 {
                thread::sleep(Duration::from_micros(300));
            }
        }
        sent += more;
        if let Some(child) = child {
            thread::sleep(Duration::from_millis(300));
            kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("it runs");
            let output = child.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    let (numbers, repeated) = watch.finish();
    [sent as u64, numbers.count, repeated]
}

/// Waits until a process reports that its ports are open.
fn await_start(ready: &UnixDatagram) {
    let mut message = [0; 1024];
    loop {
        let bytes = ready.recv(&mut message).expect("the process starts");
        if message[..bytes].starts_with(b"READY=1") {
            return;
        }
    }
}

#[test]
fn no_packet_is_accepted_twice_after_kills() {
    // A life consists mostly of waiting for the kernel, so several receivers live at the same time.
    let receivers = kills().div_ceil(KILLS_OF_ONE).min(RECEIVERS_MAX);
    let kills_of_one = kills().div_ceil(receivers);
    let esp = in_namespace(|| {
        veth_pair(["wan", "far"]);
        esp_packets(MORE_MAX * (kills_of_one + 1))
    });
    let Some(esp) = esp else { return };
    let one = |receiver| in_namespace(|| kill_a_receiver(&esp, kills_of_one, 0xacce + receiver as u64));
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..receivers).map(|receiver| scope.spawn(move || one(receiver))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a receiver")).collect::<Vec<_>>()
    });
    for [sent, accepted, repeated] in results.into_iter().flatten() {
        eprintln!("{kills_of_one} kills: {sent} packets sent, {accepted} accepted, {repeated} accepted twice");
        assert_eq!(repeated, 0);
        // The number of packets above the ceilings depends on the speed of the machine. The last
        // life is not killed, and accepts most of its packets.
        assert!(accepted >= 100, "{accepted} of {sent} accepted");
    }
}
