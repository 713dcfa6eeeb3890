//! Intrusion detection for the test of mutated packets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_nids::Settings;
use godwit_nids::rules::{RuleSet, Variables};

use super::Nids;
use super::rules::Rules;
use crate::Function;

const RULES: &str = r#"
alert http any any -> any any (http.uri; content:"/"; http.method; content:"GET"; flowbits:set,seen; sid:1;)
alert tcp any any -> any any (flow:established; content:"a"; content:"b"; distance:0; within:40; sid:2;)
drop tcp any any -> any any (flow:to_server; content:"|00 00|"; isdataat:!1,relative; sid:3;)
alert udp any any -> any any (content:"|00 01|"; byte_test:1,>,10,0,relative; sid:4;)
alert dns any any -> any any (dns.query; content:"."; sid:5;)
alert icmp any any -> any any (itype:>3; sid:6;)
alert tcp any any -> any any (stream-event:reassembly_overlap_different_data; sid:7;)
"#;

/// Returns a function with two ports in mode `inline`. It accepts wrong checksums and connections
/// without a handshake, so that changed packets reach the streams.
pub fn function() -> Arc<dyn Function> {
    let mut settings = Settings { checksums: false, record_payload: true, hash_files: true, ..Settings::default() };
    (settings.stream.inline, settings.stream.midstream) = (true, true);
    (settings.flows_max, settings.stream_memory_bytes) = (1024, 1 << 20);
    let mut set = RuleSet::default();
    set.add("fuzz.rules", RULES.as_bytes(), &Variables::default(), false);
    assert!(set.unsupported.is_empty(), "all rules load");
    let (rules, peers) = (Rules::compile(set, Instant::now()), [1, 0, 2].into());
    let (published, notices) = Default::default();
    let stats_interval = Duration::from_secs(8);
    Arc::new(Nids { settings, rules, peers, output: None, stats_interval, published, notices })
}
