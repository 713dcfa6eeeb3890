//! scapy and tshark at the other end of the tunnel.

mod ipsec_common;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use ipsec_common::{
    Form, Random, Sa, build, ethernet, forms, hex, name, packet, process, protect_all, read_pcap, repository,
    set_checksum, write_pcap,
};

/// A directory of this test's own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("godwit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A Python that has scapy: the one found first, or the system's.
fn scapy() -> Option<&'static str> {
    let found = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let status = Command::new(python).args(["-c", "import scapy.layers.ipsec"]).output();
        status.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        println!("skipped: no python3 here has scapy (Debian: python3-scapy)");
    }
    found
}

fn tshark() -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        println!("skipped: tshark is not installed");
    }
    there
}

/// Packets of many lengths, without IP options: scapy takes some of those apart and puts them together differently.
fn plain() -> Vec<Vec<u8>> {
    let mut random = Random(99);
    let plain = |length: usize| {
        let mut packet = packet(&mut random, length);
        packet[0] = 0x45;
        // No fragment, and a protocol that no peer looks into (RFC 3692: for experiments).
        packet[6..8].fill(0);
        packet[9] = 253;
        set_checksum(&mut packet);
        ethernet(&packet, false)
    };
    (20..84).chain([128, 576, 1400, 1479, 1500]).map(plain).collect()
}

fn seal(sa: &Sa, form: Form, plain: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let function = build(&(sa.stanza() + &protect_all(&sa.name)));
    let sealed = process(&*function, form, plain);
    sealed.iter().for_each(|packet| assert_eq!(name(&*function, packet.outcome), "encrypted"));
    sealed.into_iter().map(|packet| packet.frame).collect()
}

fn run_scapy(python: &str, command: &str, sa: &Sa, first: &Path, second: &Path) -> String {
    let keys = (hex(&sa.encryption_key), hex(&sa.authentication_key));
    let (source, destination) = (Ipv4Addr::from(sa.source), Ipv4Addr::from(sa.destination));
    let association = format!("{},{source},{destination},{},{}", sa.spi, keys.0, keys.1);
    let script = repository("tests/peers/ipsec_scapy.py");
    let output =
        Command::new(python).arg(script).args([command, &association]).arg(first).arg(second).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "scapy: {said}{complained}");
    said.trim().to_owned()
}

#[test]
fn scapy_opens_what_we_seal() {
    let Some(python) = scapy() else { return };
    let directory = Directory::new("scapy-opens");
    let (sealed_path, plain_path) = (directory.0.join("esp.pcap"), directory.0.join("plain.pcap"));
    let sa = Sa::new("west", 0xdead_1001, "out", 7);
    let plain = plain();
    write_pcap(&plain_path, &plain);
    for form in forms() {
        write_pcap(&sealed_path, &seal(&sa, form, &plain));
        assert_eq!(run_scapy(python, "open", &sa, &sealed_path, &plain_path), plain.len().to_string(), "{form}");
    }
}

#[test]
fn we_open_what_scapy_seals() {
    let Some(python) = scapy() else { return };
    let directory = Directory::new("scapy-seals");
    let (sealed_path, plain_path) = (directory.0.join("esp.pcap"), directory.0.join("plain.pcap"));
    let sa = Sa::new("east", 0x2001, "in", 8);
    let plain = plain();
    write_pcap(&plain_path, &plain);
    assert_eq!(run_scapy(python, "seal", &sa, &plain_path, &sealed_path), plain.len().to_string());
    let sealed = read_pcap(&sealed_path);
    let function = build(&sa.stanza());
    for form in forms() {
        let opened = process(&*function, form, &sealed);
        assert_eq!(opened.len(), plain.len());
        for (opened, plain) in opened.iter().zip(&plain) {
            assert_eq!(name(&*function, opened.outcome), "decrypted", "{form}");
            assert_eq!(opened.frame[14..], plain[14..], "{form}");
        }
    }
}

#[test]
fn tshark_opens_what_we_seal() {
    if !tshark() {
        return;
    }
    let directory = Directory::new("tshark-opens");
    let path = directory.0.join("esp.pcap");
    let sa = Sa::new("west", 0x1001, "out", 9);
    let plain = plain();
    for form in forms() {
        write_pcap(&path, &seal(&sa, form, &plain));
        let association = format!(
            "uat:esp_sa:\"IPv4\",\"{}\",\"{}\",\"{:#010x}\",\"AES-CBC [RFC3602]\",\"0x{}\",\"HMAC-SHA-1-96 [RFC2404]\",\"0x{}\"",
            Ipv4Addr::from(sa.source),
            Ipv4Addr::from(sa.destination),
            sa.spi,
            hex(&sa.encryption_key),
            hex(&sa.authentication_key),
        );
        let output = Command::new("tshark")
            .args(["-n", "-o", "esp.enable_encryption_decode:TRUE", "-o", "esp.enable_authentication_check:TRUE"])
            .args(["-o", "ip.check_checksum:TRUE", "-o", &association, "-T", "fields", "-E", "separator=;", "-r"])
            .arg(&path)
            .args(["-e", "esp.icv_good", "-e", "ip.checksum.status", "-e", "esp.sequence", "-e", "esp.protocol"])
            .args(["-e", "esp.pad_len", "-e", "esp.decrypted_data"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), plain.len(), "{form}: {}", String::from_utf8_lossy(&output.stderr));
        for ((sequence, row), plain) in (1..).zip(rows).zip(&plain) {
            let inner = hex(&plain[14..]);
            let pad_bytes = (30 - (plain.len() - 14) % 16) % 16;
            let columns: Vec<&str> = row.split(';').collect();
            assert!(matches!(columns[0], "1" | "True"), "{form}: ICV of {row}");
            // Good for the outer header and the one inside.
            assert_eq!(columns[1], "1,1", "{form}: checksums of {row}");
            assert_eq!(columns[2], format!("{sequence}"), "{form}");
            assert!(matches!(columns[3], "4" | "0x04"), "{form}: next header of {row}");
            assert_eq!(columns[4], format!("{pad_bytes}"), "{form}");
            assert!(columns[5].replace(':', "").starts_with(&inner), "{form}: {row}");
        }
    }
}
