//! `godwit sa` lists, replaces, adds, deletes and sets SAs and policies of a running gateway. It
//! never prints a key, and no key remains in memory after its SA is deleted.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::running::Running;
use common::{Finished, godwit, run};
use serde_json::Value;

const GATEWAY: &str = r#"
[[port]]
name = "lan"
kind = "synthetic"
size = 256
rate = "50kpps"
source = "10.1.0.0/16"
destination = "10.2.0.0/16"

[[port]]
name = "wan"
kind = "synthetic"

[[function]]
name = "vpn"
kind = "ipsec"

[[function.policy]]
action = "protect"
source = "10.1.0.0/16"
sa = "west"

[[chain]]
from = "lan"
to = "vpn"

[[chain]]
from = "vpn"
to = "wan"
"#;

/// Prefix of all keys. The SPI follows it.
const KEY: &str = "5ca1ab1e0ddba11fee1deadbeef";

fn key(spi: u32) -> String {
    format!("{KEY}{spi:05x}")
}

/// Returns a stanza `[[sa]]` of an outbound SA.
fn sa(name: &str, spi: u32, more: &str) -> String {
    format!(
        "[[sa]]\nname = \"{name}\"\nspi = {spi}\ndirection = \"out\"\nsource = \"192.0.2.1\"\ndestination = \"198.51.100.1\"\n\
         encryption = \"aes-128-cbc\"\nencryption_key = \"{}\"\nauthentication = \"hmac-sha1-96\"\n\
         authentication_key = \"{}00000000\"\n{more}\n",
        key(spi),
        key(spi)
    )
}

/// Counts the copies of an SA's key in the memory of a process, as bytes or as digits. Returns
/// `None` if the memory is not readable.
fn found(process: u32, spi: u32) -> Option<usize> {
    let digits = key(spi).into_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    let bytes: Vec<u8> = digits.as_chunks::<2>().0.iter().map(|&[high, low]| digit(high) << 4 | digit(low)).collect();
    found_bytes(process, &[&bytes, &digits])
}

/// Counts the copies of some bytes in the writable memory of a process.
fn found_bytes(process: u32, wanted: &[&[u8]]) -> Option<usize> {
    let memory = fs::File::open(format!("/proc/{process}/mem")).ok()?;
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let mut count = 0;
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw"))) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut content = vec![0; (end - start) as usize];
        // Freed pages and pages of devices are not readable.
        let Ok(read) = memory.read_at(&mut content, start) else { continue };
        for wanted in wanted {
            count += content[..read].windows(wanted.len()).filter(|buffer| buffer == wanted).count();
        }
    }
    Some(count)
}

/// A reload reads the file with the keys again, and a request that is not JSON may contain keys.
#[test]
fn reloads_and_malformed_requests_leave_no_key_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = folder.join("gateway.toml");
    let stanza = sa("west", 0x2001, "").replace("[[sa]]", "[[function.sa]]");
    fs::write(&config, GATEWAY.to_owned() + &stanza).unwrap();
    let control = folder.join("control");
    let running = Running::start(&config, &control);
    let digits = |spi: u32| {
        let copies = found_bytes(running.id(), &[key(spi).as_bytes()]);
        copies.unwrap_or(0)
    };
    assert_eq!(digits(0x2001), 0, "after the start");
    for _ in 0..5 {
        run(godwit().arg("reload").arg("--control").arg(&control)).succeeded();
    }
    assert_eq!(digits(0x2001), 0, "after reloads");
    let mut client = godwit_test_support::ControlClient::connect(&control);
    for end in ["}", "}}],,}", "\u{1}", ""] {
        let stanza = format!("{{\"name\":\"x\",\"encryption_key\":\"{}\"", key(0x2002));
        let line = format!("{{\"function\":\"vpn\",\"command\":\"add\",\"sa\":[{stanza},{stanza}{end}\n");
        assert!(client.error_of_line(line.as_bytes()).contains("invalid JSON"), "{end:?}");
    }
    assert_eq!(digits(0x2002), 0, "after malformed requests");
    running.stop();
}

/// Keys never reach a core dump.
#[test]
fn a_process_with_keys_is_not_dumpable() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let stanza = sa("west", 0x3001, "").replace("[[sa]]", "[[function.sa]]");
    fs::write(&config, GATEWAY.to_owned() + &stanza).unwrap();
    let running = Running::start(&config, &folder.path().join("control"));
    let limits = fs::read_to_string(format!("/proc/{}/limits", running.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    let maps = fs::read_to_string(format!("/proc/{}/smaps", running.id())).unwrap();
    let private = maps.lines().filter(|line| line.starts_with("VmFlags:") && line.contains(" dd")).count();
    // Two of the kernel, the arena and the table image. The last two may be one mapping.
    assert!(private >= 3, "{private} mappings are excluded from dumps");
    running.stop();
}

struct Gateway<'a> {
    folder: &'a Path,
    running: Running,
}

impl Gateway<'_> {
    fn printed(&self, words: &[&str]) -> Finished {
        let mut command = godwit();
        command.arg("sa").args(words).args(["--function", "vpn", "--control"]).arg(self.folder.join("control"));
        let printed = run(&mut command);
        assert!(!printed.stdout.contains(KEY) && !printed.stderr.contains(KEY), "{printed:?}");
        printed
    }

    /// Runs a command with a file that holds this text.
    fn with_file(&self, command: &str, text: &str) -> Finished {
        let file = self.folder.join("file.toml");
        fs::write(&file, text).unwrap();
        self.printed(&[command, "--file", file.to_str().unwrap()])
    }

    fn list(&self, names: &[&str]) -> Value {
        let printed = self.printed(&[&["list", "--json", "-"], names].concat()).succeeded();
        serde_json::from_str(&printed.stdout).unwrap()
    }

    /// Waits until an SA has protected packets.
    fn protects(&self, name: &str) {
        while self.list(&[name])["sa"][0]["packets"] == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn sas_and_policies_change_while_packets_flow() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = folder.join("gateway.toml");
    fs::write(&config, GATEWAY.to_owned() + &sa("west", 0x1001, "").replace("[[sa]]", "[[function.sa]]")).unwrap();
    let gateway = Gateway { folder, running: Running::start(&config, &folder.join("control")) };
    gateway.protects("west");
    let remembers = |spi| found(gateway.running.id(), spi);
    // The first round key of AES is the key itself.
    assert_ne!(remembers(0x1001), Some(0));

    let lifetime = "lifetime = { soft_packets = 100000000 }";
    let printed = gateway.with_file("replace", &sa("west", 0x1002, lifetime)).succeeded();
    assert_eq!(printed.stdout, "1 SA replaced\n");
    gateway.protects("west");
    let printed = gateway.printed(&["list"]).succeeded();
    let row: Vec<&str> = printed.stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row[..7],
        ["west", "out", "0x1002", "192.0.2.1", "198.51.100.1", "tunnel", "cbc128_sha1"],
        "{printed:?}"
    );
    assert!(printed.stdout.contains("in use  soft packets 100000000, 1 policy"), "{printed:?}");
    match remembers(0x1001) {
        None => std::io::stderr().write_all(b"skipped: the memory of another process cannot be read here\n").unwrap(),
        Some(count) => assert_eq!(count, 0, "a key that was replaced is somewhere yet"),
    }

    let both = sa("east", 0x1003, "") + &sa("north", 0x1004, "");
    let printed = gateway.with_file("add", &both).succeeded();
    assert_eq!((printed.stdout.as_str(), printed.stderr.as_str()), ("2 SAs added\n", ""));
    let printed = gateway.with_file("add", &sa("low", 255, "")).succeeded();
    assert!(printed.stderr.starts_with("godwit: warning: spi = 255 of SA \"low\" is reserved"), "{printed:?}");
    gateway.printed(&["delete", "low"]).succeeded();
    assert!(gateway.with_file("add", &both).refused().contains("two SAs are called \"east\""));
    let short = sa("south", 0x1005, "").replace("01005\"", "01\"");
    assert!(gateway.with_file("add", &short).refused().contains("encryption_key of SA \"south\" must"));
    assert!(gateway.printed(&["delete", "west"]).refused().contains("used by a policy"));

    let policies = "[[policy]]\naction = \"bypass\"\nprotocol = \"udp\"\ndestination_ports = 500\n\n\
                    [[policy]]\naction = \"protect\"\ndestination = \"10.2.0.0/16\"\nsa = \"east\"\n";
    gateway.with_file("policies", policies).succeeded();
    gateway.protects("east");
    let printed = gateway.printed(&["policies"]).succeeded();
    let rows: Vec<Vec<&str>> = printed.stdout.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["1", "bypass", "any", "any", "udp", "any", "500"]);
    assert_eq!(rows[1], ["2", "protect", "any", "10.2.0.0/16", "any", "any", "any", "east"]);
    let wrong = policies.replace("\"east\"", "\"esat\"");
    assert!(gateway.with_file("policies", &wrong).refused().contains("policy 2: no SA is called \"esat\""));
    assert!(gateway.with_file("policies", &both).refused().contains("unknown key `sa`"));

    assert_eq!(gateway.printed(&["delete", "west", "north"]).succeeded().stdout, "2 SAs deleted\n");
    assert_eq!(gateway.list(&[])["sa"].as_array().unwrap().len(), 1);
    assert!(gateway.printed(&["list", "west"]).refused().contains("no SA is called \"west\""));
    for (spi, is_there) in [(0x1002, false), (0x1003, true), (0x1004, false), (0x1005, false)] {
        let count = remembers(spi).unwrap_or(usize::from(is_there));
        assert_eq!(count > 0, is_there, "the key of {spi:#x}: {count} times");
    }
    let mut client = godwit_test_support::ControlClient::connect(&folder.join("control"));
    client.request(&serde_json::json!({ "command": "stop" }));
    let (report, events) = gateway.running.finish_with_events();
    let events: Vec<&str> =
        events.iter().filter_map(|line| line.split_once(" level=info ")).map(|(_, rest)| rest).collect();
    assert_eq!(
        events,
        [
            "event=sa_rekeyed function=vpn message=\"function `vpn`: new keys for SA \\\"west\\\"\"",
            "event=sa_added function=vpn message=\"function `vpn`: added SA \\\"east\\\", SA \\\"north\\\"\"",
            "event=sa_added function=vpn message=\"function `vpn`: added SA \\\"low\\\"\"",
            "event=sa_deleted function=vpn message=\"function `vpn`: deleted SA \\\"low\\\"\"",
            "event=policies_replaced function=vpn message=\"function `vpn`: 2 policies are in use\"",
            "event=sa_deleted function=vpn message=\"function `vpn`: deleted SA \\\"north\\\", SA \\\"west\\\"\"",
        ]
    );
    let count = |name: &str| report["functions"][0]["verdicts"][name].as_u64().unwrap();
    assert_eq!(count("encrypted"), report["conservation"]["received"].as_u64().unwrap(), "{report}");
}
