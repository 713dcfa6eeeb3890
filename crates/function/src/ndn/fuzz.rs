//! Forwarding function and frames for the `ndn` fuzz target.

use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use crate::{BuildContext, Function};

const STANZA: &str = r#"
[[next_hop]]
name = "ethernet"
port = "p"
destination_mac = "02:00:00:00:00:01"
source_mac = "02:00:00:00:00:02"

[[next_hop]]
name = "udp4"
port = "p"
destination_mac = "02:00:00:00:00:01"
source_mac = "02:00:00:00:00:02"
destination_address = "192.0.2.1"
source_address = "192.0.2.2"

[[next_hop]]
name = "udp6"
port = "p"
destination_mac = "02:00:00:00:00:01"
source_mac = "02:00:00:00:00:02"
destination_address = "2001:db8::1"
source_address = "2001:db8::2"

[[next_hop]]
name = "here"
local = true

[[next_hop]]
name = "nowhere"
blackhole = true

[[route]]
prefix = "/A"
next_hop = "ethernet"

[[route]]
prefix = "/B"
next_hop = "udp4"

[[route]]
prefix = "/A/B"
next_hop = "udp6"

[[route]]
prefix = "/A/B/C/D"
next_hop = "here"

[[route]]
prefix = "/B/A"
next_hop = "nowhere"
"#;

/// Creates a forwarding function with a few names and with all kinds of next hops.
pub fn function() -> Arc<dyn Function> {
    let context = BuildContext { name: "fuzzed", ports: &["p".to_owned()], directory: Path::new(".") };
    let stanza = DeTable::parse(STANZA).expect("the stanza is TOML");
    super::build(stanza, &context).expect("the stanza is a valid ndn configuration")
}

/// Converts fuzz input to a frame. If the first byte is 0xf0 to 0xf2, it selects headers for the
/// remaining bytes. Otherwise, the input is the whole frame.
pub fn frame(data: &[u8]) -> Vec<u8> {
    let ethernet = |ndn: Vec<u8>| [&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x86, 0x24][..], &ndn].concat();
    let element = |kind: u8, value: &[u8]| {
        let length = match value.len() {
            0..=252 => vec![value.len() as u8],
            length => [&[253][..], &(length.min(65535) as u16).to_be_bytes()].concat(),
        };
        [&[kind][..], &length, value].concat()
    };
    match data {
        [0xf0, inside @ ..] => ethernet(inside.to_vec()),
        [0xf1, inside @ ..] => ethernet(element(5, inside)),
        [0xf2, inside @ ..] => ethernet(element(100, inside)),
        _ => data.to_vec(),
    }
}
