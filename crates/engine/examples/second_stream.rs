//! Measures the cost of a second stream through a worker. One worker runs a function on all
//! packets, then the same function configured twice. A class rule sends half of the packets to
//! each. Together, both functions have the same tables as the single function.
//!
//! ```text
//! cargo run --release -p godwit-engine --example second_stream -- \
//!     [echo|ipv4|ipsec] [one|class|two] [frame bytes] [packets]
//! ```
//! With `class`, the rule exists, but both classes go to one function. With `packets`, the run ends
//! after this number of packets, so instruction counts can be compared. Otherwise, it takes one
//! second.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options};

/// Number of /24 prefixes in the destination range 10.0.0.0/12. Each prefix has a separate route or
/// SA.
const PREFIXES: u32 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (kind, shape, size, packets) = (next("echo"), next("two"), next("60"), next("0"));
    let config = Config::parse(&configuration(&kind, &shape, &size, &packets), "second_stream", Path::new("."))?;
    let engine = Engine::new(config, &Options::default())?;
    let before_s = processor_s()?;
    let limit = (packets == "0").then_some(Duration::from_secs(1));
    let report = engine.run(&Arc::new(AtomicBool::new(false)), limit, &mut |_| {})?;
    let used_s = processor_s()? - before_s;
    let sent = report.conservation.sent as f64;
    println!("{kind} {shape} {size} B: {:.1} ns of CPU time per packet, {sent} packets", used_s * 1e9 / sent);
    for function in &report.functions {
        println!(
            "  {}: {} packets, {:.1} ns busy each, bins {:.2} full",
            function.name, function.packets, function.busy_ns_per_packet, function.batch_fill
        );
    }
    Ok(())
}

/// Returns the CPU time of this process, in seconds.
fn processor_s() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // The process name may contain spaces, so fields are counted after it. Fields 14 and 15 of
    // `/proc/self/stat` are user and system time in ticks of 10 ms.
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).unwrap_or(&"").parse::<u64>();
    Ok((ticks(11)? + ticks(12)?) as f64 / 100.0)
}

fn configuration(kind: &str, shape: &str, size: &str, packets: &str) -> String {
    let payload = if kind == "ipsec" { "stale" } else { "zero" };
    let mut text = format!(
        r#"
        [engine]
        workers = 1
        [arena]
        layout = "dense"
        align_bytes = 64
        headroom_bytes = 64
        tailroom_bytes = 64
        frame_bytes_max = {size}
        [[port]]
        name = "memory"
        kind = "synthetic"
        size = {size}
        flows = 16384
        destination = "10.0.0.0/12"
        payload = "{payload}"
        packets = {packets}
        "#
    );
    if shape != "one" {
        text.push_str("[[class]]\nname = \"upper\"\ndestination = \"10.8.0.0/13\"\n");
    }
    let second = if shape == "two" { "second" } else { "first" };
    if shape != "one" {
        let _ = write!(text, "[[chain]]\nfrom = \"memory\"\nclass = \"upper\"\nto = \"{second}\"\n");
    }
    text.push_str("[[chain]]\nfrom = \"memory\"\nto = \"first\"\n");
    let half = PREFIXES / 2;
    let prefixes = if shape == "two" { 0..half } else { 0..PREFIXES };
    function(&mut text, "first", kind, prefixes);
    if shape == "two" {
        function(&mut text, "second", kind, half..PREFIXES);
    }
    text
}

/// Appends a function that handles the given prefixes.
fn function(text: &mut String, name: &str, kind: &str, prefixes: std::ops::Range<u32>) {
    // Writing to a String cannot fail.
    let _ = write!(text, "[[chain]]\nfrom = \"{name}\"\nto = \"memory\"\n[[function]]\nname = \"{name}\"\n");
    let _ = writeln!(text, "kind = \"{kind}\"");
    match kind {
        "ipv4" => {
            text.push_str(
                "[[function.next_hop]]\nname = \"hop\"\nport = \"memory\"\ndestination_mac = \"02:00:00:00:00:09\"\n",
            );
            text.push_str("source_mac = \"02:00:00:00:00:08\"\n");
            for prefix in prefixes {
                let (high, low) = (prefix >> 8, prefix & 255);
                let _ = write!(text, "[[function.route]]\nprefix = \"10.{high}.{low}.0/24\"\nnext_hop = \"hop\"\n");
            }
        }
        "ipsec" => {
            for sa in prefixes {
                let _ = writeln!(
                    text,
                    "[[function.sa]]\nname = \"sa-{sa}\"\nspi = {}\ndirection = \"out\"\ninsecure = true\n\
                     source = \"192.0.2.1\"\ndestination = \"192.0.2.2\"\nencryption = \"aes-128-cbc\"\n\
                     encryption_key = \"{sa:032x}\"\nauthentication = \"hmac-sha1-96\"\n\
                     authentication_key = \"{sa:040x}\"\n[[function.policy]]\naction = \"protect\"\n\
                     destination = \"10.{}.{}.0/24\"\nsa = \"sa-{sa}\"",
                    4096 + sa,
                    sa >> 8,
                    sa & 255
                );
            }
        }
        _ => {}
    }
}
