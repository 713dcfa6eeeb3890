//! Sends fragments through the whole program. scapy fragments and reassembles them on the other
//! side.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{replay, run};
use godwit_test_support::capture::frames;
use godwit_test_support::{Peer, python, repository};
use serde_json::Value;

const PATH_MTU: &str = "1000";

/// A gateway with both tunnels of `tests/peers/fragments_scapy.py`.
fn gateway(folder: &Path, workers: usize, more: &str) -> PathBuf {
    let keys = r#"
        encryption = "aes-128-cbc"
        encryption_key = "000102030405060708090a0b0c0d0e0f"
        authentication = "hmac-sha1-96"
        authentication_key = "101112131415161718191a1b1c1d1e1f20212223"
    "#;
    let text = format!(
        r#"
        [engine]
        workers = {workers}
        [arena]
        frame_bytes_max = 4000
        [[port]]
        name = "lan"
        kind = "synthetic"
        [[port]]
        name = "wan"
        kind = "synthetic"
        [[function]]
        name = "tunnel"
        kind = "ipsec"
        {more}
        [[function.sa]]
        name = "out"
        spi = 0x1001
        direction = "out"
        source = "192.0.2.1"
        destination = "192.0.2.2"
        path_mtu = {PATH_MTU}
        {keys}
        [[function.sa]]
        name = "in"
        spi = 0x2001
        direction = "in"
        source = "192.0.2.2"
        destination = "192.0.2.1"
        replay_window = 1024
        {keys}
        [[function.policy]]
        action = "protect"
        source = "10.1.0.0/16"
        destination = "10.2.0.0/16"
        sa = "out"
        [[chain]]
        from = "lan"
        to = "tunnel"
        [[chain]]
        from = "tunnel"
        verdict = "too_big"
        to = "lan"
        [[chain]]
        from = "tunnel"
        to = "wan"
        "#
    );
    let path = folder.join(format!("gateway-{workers}.toml"));
    fs::write(&path, text).unwrap();
    path
}

fn scapy(python: &Peer, arguments: &[&str], folder: &Path) -> String {
    let script = repository().join("tests/peers/fragments_scapy.py");
    run(python.command().arg(script).args(arguments).current_dir(folder)).succeeded().stdout
}

fn count(report: &Value, name: &str) -> u64 {
    report["conservation"][name].as_u64().unwrap()
}

fn counted(report: &Value, name: &str) -> u64 {
    report["counters"][format!("ipsec_{name}{{function=\"tunnel\"}}")].as_u64().unwrap_or(0)
}

#[test]
fn scapy_reassembles_fragments_of_the_gateway() {
    let Some(python) = python("scapy") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    scapy(&python, &["make-outbound", "plain.pcap"], folder.path());
    for workers in [1, 3] {
        let report = replay(&gateway(folder.path(), workers, ""), &path("plain.pcap"), &path("esp.pcap"));
        assert_eq!((count(&report, "received"), count(&report, "dropped")), (200, 0));
        assert_eq!(count(&report, "sent"), 200 + count(&report, "created"));
        let printed = scapy(&python, &["check-outbound", "plain.pcap", "esp.pcap", PATH_MTU], folder.path());
        assert!(printed.contains("200 packets agree"), "{printed}");
    }
    // tshark reports no errors in the outer packets.
    if let Some(tshark) = Peer::find("tshark") {
        let mut command = tshark.command();
        command.args(["-o", "ip.check_checksum:TRUE", "-Y", "ip.checksum.status == 0 || _ws.malformed", "-r"]);
        let printed = run(command.arg(path("esp.pcap"))).succeeded();
        assert_eq!(printed.stdout, "");
    }
}

#[test]
fn the_gateway_reassembles_fragments_of_scapy() {
    let Some(python) = python("scapy") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    scapy(&python, &["make-inbound", "fragments.pcap", "expected.pcap"], folder.path());
    let mut expected: Vec<Vec<u8>> =
        frames(&path("expected.pcap")).unwrap().into_iter().map(|frame| frame.data).collect();
    expected.sort();
    for workers in [1, 3] {
        let config = gateway(folder.path(), workers, "[function.reassembly]");
        let report = replay(&config, &path("fragments.pcap"), &path("plain.pcap"));
        assert_eq!((count(&report, "sent"), count(&report, "dropped")), (200, 0), "{report:#}");
        assert_eq!(count(&report, "received"), 200 + count(&report, "merged"));
        assert!(count(&report, "merged") > 200);
        let mut found: Vec<Vec<u8>> =
            frames(&path("plain.pcap")).unwrap().into_iter().map(|frame| frame.data).collect();
        found.sort();
        assert_eq!(found, expected);
    }
    // Without the last fragment of each group, some packets stay incomplete. All are counted, and
    // none is held at the end.
    let report = replay(&gateway(folder.path(), 1, ""), &path("fragments.pcap"), &path("none.pcap"));
    assert_eq!(counted(&report, "dropped_fragment"), count(&report, "received") - count(&report, "sent"));
}

/// Fragments that do not fit together are counted, and none is forwarded.
#[test]
fn hostile_fragments_are_counted_drops() {
    let Some(python) = python("scapy") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    scapy(&python, &["make-hostile", "hostile.pcap"], folder.path());
    let limits = "[function.reassembly]\npackets = 16\nbytes = 65536\ntimeout_ms = 500";
    let report = replay(&gateway(folder.path(), 1, limits), &path("hostile.pcap"), &path("out.pcap"));
    assert_eq!((count(&report, "sent"), count(&report, "merged")), (0, 0), "{report:#}");
    assert_eq!(count(&report, "dropped"), count(&report, "received"));
    for reason in ["fragment_overlap", "fragment_limit", "fragment_timeout", "malformed"] {
        assert!(counted(&report, &format!("dropped_{reason}")) > 0, "{reason}: {:#}", report["counters"]);
    }
}
