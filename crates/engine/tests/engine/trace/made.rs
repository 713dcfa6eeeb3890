//! Packets that functions split, join and create.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome};
use godwit_engine::trace::{Fate, PACKETS_MAX, StepKind};
use godwit_engine::{Engine, Options};
use godwit_function::{Arrange, Arrangement, Complete, Contract, Function, HostHalf, Step, Work, echo};
use godwit_packet::ImageRef;
use godwit_test_support::frame::set_ipv4_checksum;
use serde_json::json;

use super::common::{HERE, TWICE, assert_agreement, path, replay, udp};
use crate::common::{config, count};

const TUNNELS: &str = r#"
    [engine]
    workers = 1
    pin = false
    [arena]
    frame_bytes_max = 4000
    [[port]]
    name = "in"
    kind = "synthetic"
    [[port]]
    name = "out"
    kind = "synthetic"
    [[function]]
    name = "seal"
    kind = "ipsec"
    [[function.sa]]
    name = "out"
    spi = 4097
    direction = "out"
    source = "198.51.100.1"
    destination = "203.0.113.1"
    path_mtu = 1000
    encryption = "aes-128-cbc"
    encryption_key = "000102030405060708090a0b0c0d0e0f"
    authentication = "hmac-sha1-96"
    authentication_key = "101112131415161718191a1b1c1d1e1f20212223"
    [[function.policy]]
    action = "protect"
    sa = "out"
    [[function]]
    name = "open"
    kind = "ipsec"
    [function.reassembly]
    [[function.sa]]
    name = "in"
    spi = 4097
    direction = "in"
    source = "198.51.100.1"
    destination = "203.0.113.1"
    encryption = "aes-128-cbc"
    encryption_key = "000102030405060708090a0b0c0d0e0f"
    authentication = "hmac-sha1-96"
    authentication_key = "101112131415161718191a1b1c1d1e1f20212223"
    [[function.policy]]
    action = "bypass"
    [[chain]]
    from = "in"
    to = "seal"
    [[chain]]
    from = "seal"
    to = "open"
    [[chain]]
    from = "open"
    to = "out"
"#;

/// Returns an IPv4 packet in two fragments. The first one has `bytes` bytes of data.
fn fragments(frame: &[u8], bytes: usize) -> Vec<Vec<u8>> {
    let part = |data: &[u8], offset: usize, more: bool| {
        let mut part = [&frame[..34], data].concat();
        part[16..18].copy_from_slice(&(20 + data.len() as u16).to_be_bytes());
        part[20..22].copy_from_slice(&(u16::from(more) << 13 | (offset / 8) as u16).to_be_bytes());
        set_ipv4_checksum(&mut part[14..34]);
        part
    };
    let (first, rest) = frame[34..].split_at(bytes);
    vec![part(first, 0, true), part(rest, bytes, false)]
}

#[test]
fn a_packet_that_is_too_long_for_the_tunnel_is_split() {
    let frames =
        vec![udp(HERE, [10, 2, 3, 4], [1, 2], 64, &[7; 100]), udp(HERE, [10, 2, 3, 4], [1, 2], 64, &[8; 1400])];
    let (report, found) = replay(TUNNELS, &[("in", frames)], &json!({}));
    assert_agreement(&report, &found);
    let [whole, first, second] = found.packets.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        path(whole),
        [
            "default > seal",
            "seal prepares cbc128_sha1_out",
            "seal bin of cpu",
            "to cpu",
            "from cpu",
            "seal: encrypted > open",
            "open prepares cbc128_sha1_in",
            "open bin of cpu",
            "to cpu",
            "from cpu",
            "open: decrypted > out",
            "sent by out",
        ]
    );
    assert_eq!(path(first)[..2], ["default > seal", "seal makes 3"]);
    assert_eq!(path(second)[0], "made by seal of 2");
    assert_eq!((&path(first)[2..], &path(second)[1..]), (&path(whole)[1..], &path(whole)[1..]));
    assert_eq!((found.chosen, first.sequence, second.sequence), (2, 1, 1));
}

#[test]
fn fragments_of_an_esp_packet_are_held_and_joined() {
    let frames = vec![udp(HERE, [10, 2, 3, 4], [1, 2], 64, &[7; 700])];
    let outbound = TUNNELS.replace("from = \"seal\"\n    to = \"open\"", "from = \"seal\"\n    to = \"out\"");
    let (_, found) = replay(&outbound, &[("in", frames.clone())], &json!({ "frames": true }));
    let esp = &found.packets[0].left[0].frame;
    let mut parts = fragments(esp, 400);
    // Fragment of another packet, whose second fragment never arrives.
    let mut lone = esp.clone();
    lone[19] ^= 0xff;
    parts.push(fragments(&lone, 400).remove(0));
    let inbound = TUNNELS.replace("from = \"in\"\n    to = \"seal\"", "from = \"in\"\n    to = \"open\"");
    let (report, found) = replay(&inbound, &[("in", parts)], &json!({ "frames": true }));
    let [first, second, ..] = found.packets.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (path(first).as_slice(), first.fate),
        (&["default > open".to_owned(), "open holds".to_owned()][..], Fate::Held)
    );
    let expected = [
        "default > open",
        "open joins 1",
        "open prepares cbc128_sha1_in",
        "open bin of cpu",
        "to cpu",
        "from cpu",
        "open: decrypted > out",
        "sent by out",
    ];
    assert_eq!((path(second), second.fate), (expected.map(str::to_owned).to_vec(), Fate::Sent));
    // The tunnel writes another Ethernet header.
    assert_eq!(second.left[0].frame[14..], frames[0][14..]);
    let StepKind::Joined { length, .. } = second.steps[1].kind else { panic!("{second:?}") };
    assert_eq!(usize::from(length), esp.len());
    let dropped = count(&report, "ipsec_dropped_fragment_timeout{function=\"open\"}");
    assert_eq!((report.conservation.merged, report.conservation.dropped, dropped), (1, 1, 1), "{:?}", report.counters);
}

static MAKES: Contract = Contract { in_order: true, ..echo::CONTRACT };

/// Function that splits each packet, or creates another packet for each one.
struct Maker {
    echo: Arc<dyn Function>,
    splits: bool,
}

impl Function for Maker {
    fn contract(&self) -> &'static Contract {
        &MAKES
    }

    fn image(&self) -> ImageRef<'_> {
        self.echo.image()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<HostHalf> {
        Some(HostHalf::Arrange(Box::new(Makes { splits: self.splits })))
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.echo.run_ref(buffer, descriptor, variant, parameter)
    }
}

struct Makes {
    splits: bool,
}

impl Complete for Makes {}

impl Arrange for Makes {
    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        let work = Work::Run { variant: 0, parameter: 0 };
        for &packet in packets.arrived {
            packets.steps.push(Step::Keep { packet, work });
            let step = packets.region.duplicate(&packet).map(|packet| match self.splits {
                true => Step::Split { packet, work },
                false => Step::Create { packet, work },
            });
            packets.steps.extend(step);
        }
        u64::MAX
    }
}

/// Returns an engine on the CPU with a function that splits or creates packets.
fn engine_with_maker(splits: bool, traffic: &str) -> Engine {
    let text = TWICE.replace("device = \"opencl:9\"", "").replace("packets = 3000", traffic);
    let text = text.replace("name = \"opencl:9\"", "name = \"cpu\"").replace("watchdog_ms = 20\n    chunks = 3", "");
    let mut config = config(&text);
    let echo = Arc::clone(&config.functions[1].function);
    config.functions[1].function = Arc::new(Maker { echo, splits });
    Engine::new(config, &Options::default()).unwrap()
}

#[test]
fn a_trace_shows_packets_that_a_function_creates() {
    let engine = engine_with_maker(false, "rate = \"100kpps\"");
    let trace = engine.trace(&json!({ "count": 200 })).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let found = std::thread::scope(|scope| {
        scope.spawn(|| engine.run(&stop, None, &mut |_| {}).unwrap());
        let mut packets = Vec::new();
        loop {
            let mut found = trace.read(Duration::from_secs(60));
            packets.append(&mut found.packets);
            if found.over {
                stop.store(true, Ordering::SeqCst);
                return packets;
            }
        }
    });
    assert_eq!(found.len(), 200);
    let created: Vec<_> = found.iter().filter(|packet| path(packet)[0].starts_with("created by number, ")).collect();
    assert!(!created.is_empty() && created.len() < 200, "{} of 200", created.len());
    let expected = ["number bin of cpu", "to cpu", "from cpu", "number: forward > out", "sent by out"];
    for packet in created {
        let path = path(packet);
        assert!(path[1].starts_with("number prepares "), "{packet:?}");
        assert_eq!(path[2..], expected, "{packet:?}");
        assert!(packet.time_ns > 1_700_000_000_000_000_000, "since 1970: {}", packet.time_ns);
    }
}

/// Packets that are split from selected ones are followed too.
#[test]
fn packets_beyond_the_limit_of_a_trace_are_counted() {
    let engine = engine_with_maker(true, "packets = 3000");
    let trace = engine.trace(&json!({ "count": 4096 })).unwrap();
    let report = engine.run(&Arc::new(AtomicBool::new(false)), None, &mut |_| {}).unwrap();
    let found = trace.stop();
    assert_eq!(report.conservation.received, 3000);
    // Without a free buffer, a packet is not split.
    let followed = 3000 + report.conservation.created;
    assert!(followed > PACKETS_MAX as u64, "{followed}");
    assert_eq!((found.packets.len(), found.chosen, found.missed), (PACKETS_MAX, 3000, followed - PACKETS_MAX as u64));
}
