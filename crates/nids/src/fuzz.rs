//! Fuzz targets for intrusion detection (`fuzz/README.md`). They accept any bytes, check
//! invariants, and must not panic.

use crate::detect::Engine;
use crate::literal::Frequencies;
use crate::packet::{LinkType, tcp};
use crate::rules::{RuleSet, Variables};
use crate::stream::OverlapPolicy;
use crate::{Inspector, Settings};
use std::sync::Arc;

const RULES: &str = r#"
alert http any any -> any any (http.uri; content:"/a"; http.method; content:"GET"; flowbits:set,seen; sid:1;)
alert http any any -> any any (http.header; content:"x"; nocase; http.cookie; pcre:"/a(b|c)+/"; sid:2;)
alert http any any -> any any (file_data; content:"secret"; flowbits:isset,seen; sid:3;)
alert tcp any any -> any any (content:"ab"; content:"cd"; distance:0; within:20; byte_test:1,>,10,0,relative; sid:4;)
drop tcp any any -> any any (flow:established,to_server; content:"secret"; isdataat:!1,relative; sid:5;)
alert tcp any any -> any any (stream-event:reassembly_overlap_different_data; sid:6;)
"#;

fn engine(text: &[u8]) -> Arc<Engine> {
    let mut set = RuleSet::default();
    set.add("fuzz.rules", text, &Variables::default(), false);
    let rules = set.rules.len();
    assert_eq!(set.total(), rules + set.unsupported.len());
    let engine = Engine::new(set, &Frequencies::new(), 1);
    assert_eq!(engine.rules.len(), rules);
    Arc::new(engine)
}

fn fixed_engine() -> Arc<Engine> {
    static ENGINE: std::sync::OnceLock<Arc<Engine>> = std::sync::OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let engine = engine(RULES.as_bytes());
        assert_eq!(engine.rules.len(), 6);
        engine
    });
    Arc::clone(engine)
}

struct Connection {
    inspector: Inspector,
    time: u64,
}

impl Connection {
    fn open(settings: Settings, engine: Arc<Engine>) -> Self {
        let mut connection = Self { inspector: Inspector::new(engine, settings), time: 1 };
        connection.segment(0, tcp::SYN, 0, 0, &[]);
        connection.segment(1, tcp::SYN | tcp::ACK, 0, 1, &[]);
        connection.segment(0, tcp::ACK, 1, 1, &[]);
        connection
    }

    /// Passes one TCP segment to the inspector. Side 0 is the client, and side 1 is the server.
    fn segment(&mut self, side: usize, flags: u8, seq: u32, ack: u32, payload: &[u8]) {
        const STARTS: [u32; 2] = [0xffff_ff00, 5000];
        let (seq, ack) = (STARTS[side].wrapping_add(seq), STARTS[1 - side].wrapping_add(ack));
        let (hosts, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [40_000_u16, 80]);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((40 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(hosts[side]);
        frame.extend(hosts[1 - side]);
        frame.extend(ports[side].to_be_bytes());
        frame.extend(ports[1 - side].to_be_bytes());
        frame.extend(seq.to_be_bytes());
        frame.extend(ack.to_be_bytes());
        frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(payload);
        self.time += 1000;
        self.inspector.frame(LinkType::Ethernet, &frame, 0, self.time);
    }

    fn close(mut self) {
        self.inspector.finish();
        assert_eq!(crate::stats::value(&self.inspector.stats(), "tcp.reassembly_memuse"), Some(0));
        let text = std::str::from_utf8(self.inspector.records()).expect("records are UTF-8");
        for line in text.lines() {
            assert!(line.starts_with("{\"timestamp\":") && line.ends_with('}'), "{line}");
            assert!(line.bytes().all(|byte| byte >= b' '), "{line}");
        }
    }
}

fn settings(choice: u8) -> Settings {
    let mut settings = Settings { checksums: false, record_payload: true, hash_files: true, ..Settings::default() };
    settings.stream.inline = choice & 1 != 0;
    settings.stream.midstream = choice & 2 != 0;
    settings.stream.policy = if choice & 4 != 0 { OverlapPolicy::First } else { OverlapPolicy::default() };
    settings.fail_open = choice & 8 != 0;
    settings.stream_memory_bytes = if choice & 16 != 0 { 4096 } else { 1 << 20 };
    settings
}

/// Tests the rule parser. `data` is the text of a rule file. Each rule must load or be reported as
/// unsupported. The loaded rules then inspect a TCP connection.
pub fn nids_rules(data: &[u8]) {
    let mut connection = Connection::open(settings(0), engine(data));
    connection.segment(0, tcp::ACK | tcp::PSH, 1, 1, b"GET /ab?cd HTTP/1.1\r\nHost: x\r\n\r\n");
    connection.segment(1, tcp::ACK, 1, 32, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab");
    connection.segment(0, tcp::ACK, 32, 40, &[]);
    connection.close();
}

/// Tests TCP reassembly. The first byte of `data` selects the settings. The other bytes encode TCP
/// segments.
pub fn nids_streams(data: &[u8]) {
    let Some((choice, mut rest)) = data.split_first() else { return };
    let mut connection = Connection::open(settings(*choice), fixed_engine());
    while let Some((&[head, seq, length], after)) = rest.split_first_chunk() {
        let (payload, after) = after.split_at(usize::from(length).min(after.len()));
        let side = usize::from(head & 1);
        let flags = [tcp::ACK, tcp::ACK | tcp::PSH, tcp::ACK | tcp::FIN, tcp::RST][usize::from(head >> 1 & 3)];
        connection.segment(side, flags, u32::from(seq), u32::from(head >> 3) * 8, payload);
        rest = after;
    }
    connection.close();
}

/// Tests the HTTP parser. The first byte of `data` selects the settings. The second byte divides
/// the other bytes between client and server.
pub fn nids_http(data: &[u8]) {
    let Some((&[choice, share], bytes)) = data.split_first_chunk() else { return };
    let (client, server) = bytes.split_at(bytes.len() * usize::from(share) / 255);
    let mut connection = Connection::open(settings(choice & !16), fixed_engine());
    let (mut sent, mut answered) = (1, 1);
    for piece in client.chunks(97) {
        connection.segment(0, tcp::ACK | tcp::PSH, sent, answered, piece);
        sent += piece.len() as u32;
    }
    for piece in server.chunks(97) {
        connection.segment(1, tcp::ACK | tcp::PSH, answered, sent, piece);
        answered += piece.len() as u32;
    }
    connection.segment(0, tcp::ACK | tcp::FIN, sent, answered, &[]);
    connection.segment(1, tcp::ACK | tcp::FIN, answered, sent + 1, &[]);
    connection.close();
}
