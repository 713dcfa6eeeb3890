//! Tests of the whole proxy with the clients `curl` and `openssl s_client`, and with TLS records
//! that no valid client sends.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use godwit_proxy::{Config, Running};
use godwit_test_support::{Folder, Peer, certificate};

use crate::backend::Backend;
use crate::client::Client;
use crate::setup::{Proxy, upstream};

const GROUPS: [&str; 3] = ["X25519", "P-256", "P-384"];
const TLS13: [&str; 3] = ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];
const TLS12: [&str; 3] = ["AES256-GCM-SHA384", "AES128-GCM-SHA256", "CHACHA20-POLY1305"];

/// Returns the stanza of a proxy in mode `http` that accepts all groups.
fn stanza(backend: &Backend) -> String {
    format!(
        "mode = \"http\"\n{}\ngroups = [\"x25519mlkem768\", \"x25519\", \"p256\", \"p384\"]",
        upstream(&[backend.address])
    )
}

/// `curl` receives a response with every version, suite and group, over HTTP/1.1 and HTTP/2.
#[test]
fn curl_works_with_every_suite_and_group() {
    let Some(curl) = Peer::find("curl") else { return };
    let backend = Backend::paths();
    let Some(proxy) = Proxy::start(&stanza(&backend)) else { return };
    let get = |arguments: &[&str]| {
        let mut command = curl.command();
        command.args(["-sS", "-w", " %{http_version}", "--cacert"]).arg(&proxy.certificate).args(arguments);
        let url = format!("https://localhost:{}/suite", proxy.address().port());
        let output = command.arg(url).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut count = 0;
    for group in GROUPS {
        for (protocol, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
            for suite in TLS13 {
                let arguments = ["--tlsv1.3", "--tls13-ciphers", suite, "--curves", group, protocol];
                assert_eq!(get(&arguments), format!("/suite {version}"), "{arguments:?}");
                count += 1;
            }
            for suite in TLS12 {
                let suite = format!("ECDHE-RSA-{suite}");
                let arguments = ["--tls-max", "1.2", "--ciphers", &suite, "--curves", group, protocol];
                assert_eq!(get(&arguments), format!("/suite {version}"), "{arguments:?}");
                count += 1;
            }
        }
    }
    let counters = &proxy.stop().proxies[0].counters;
    assert_eq!((counters["handshakes"], counters["responses_2xx"]), (count, count));
}

/// Old versions, suites without forward secrecy and unknown groups are refused and counted.
#[test]
fn weak_offers_are_refused() {
    let backend = Backend::paths();
    let Some(proxy) = Proxy::start(&stanza(&backend)) else { return };
    let address = proxy.address().to_string();
    let offers: [&[&str]; 5] = [
        &["-tls1_1", "-cipher", "ALL@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "AES128-GCM-SHA256"],
        &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA"],
        &["-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"],
        &["-tls1_3", "-groups", "P-521"],
    ];
    for (count, offer) in offers.iter().enumerate() {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &address]).args(*offer).stdin(Stdio::null());
        let output = command.output().expect("openssl is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!output.status.success() && text.contains("Cipher is (NONE)"), "{offer:?}: {text}");
        proxy.expect("handshake_failed_protocol", count as u64 + 1);
    }
    let report = proxy.stop();
    assert_eq!((report.proxies[0].counters["handshakes"], report.signer.received), (0, 0));
}

/// A client that asks to renegotiate receives the alert `no_renegotiation` (RFC 5246, section
/// 7.2.2), and no second handshake.
#[test]
fn renegotiation_is_refused() {
    let backend = Backend::paths();
    let Some(proxy) = Proxy::start(&stanza(&backend)) else { return };
    let address = proxy.address().to_string();
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-tls1_2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    // The client renegotiates when a line consists of the letter R.
    client.stdin.as_mut().expect("a pipe").write_all(b"R\n").unwrap();
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(text.contains("RENEGOTIATING") && text.contains("no renegotiation"), "{text}");
    proxy.expect("closed", 1);
    let report = proxy.stop();
    assert_eq!((report.proxies[0].counters["handshakes"], report.signer.received), (1, 1));
}

/// Records that are too long, or that no key of the connection protects, end the connection.
#[test]
fn invalid_records_after_the_handshake_end_the_connection() {
    let backend = Backend::paths();
    let Some(proxy) = Proxy::start(&stanza(&backend)) else { return };
    let records = [
        // Longer than 2^14 + 256 bytes (RFC 8446, section 5.2).
        [&[23, 3, 3, 0x41, 0x01][..], &[0; 0x4101]].concat(),
        [&[23, 3, 3, 0, 32][..], &[7; 32]].concat(),
        // A plain ClientHello, and an unknown type of record.
        vec![22, 3, 3, 0, 4, 1, 0, 0, 0],
        vec![99, 3, 3, 0, 1, 0],
    ];
    for (count, record) in records.iter().enumerate() {
        let mut client = Client::connect(&proxy);
        // The request also completes the handshake.
        assert_eq!(client.get("/first").unwrap().status, 200);
        client.stream.sock.write_all(record).unwrap();
        // A reset is also an end.
        let _ = client.stream.sock.read_to_end(&mut Vec::new());
        proxy.expect("closed", count as u64 + 1);
    }
    assert_eq!(Client::connect(&proxy).get("/other").unwrap().status, 200);
    assert_eq!(backend.requests().len(), records.len() + 1);
    proxy.stop();
}

/// The proxy does not start with a key that all users can read, that is weak, or that belongs to
/// another certificate. The error names the file and the reason.
#[test]
fn bad_keys_are_refused_at_start() {
    let folder = Folder::new();
    let certify = |key| certificate::certify(&folder, key, &["localhost"]);
    let (Some(_), Some(other), Some(_)) = (certify("rsa2048-0"), certify("rsa2048-1"), certify("rsa1024")) else {
        return;
    };
    let start = |certificate: &str, key: &str| {
        let text = format!(
            "workers = 1\n[signer]\n[[signer.key]]\nname = \"key\"\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n\
             [[proxy]]\nname = \"front\"\nlisten = \"127.0.0.1:0\"\nmode = \"tcp\"\nkeys = [\"key\"]\n\
             upstream = [{{ address = \"127.0.0.1:1\" }}]\n"
        );
        let config = Config::parse(&text, "p.toml", folder.path()).unwrap();
        Running::start(config).err().expect("a refusal").to_string()
    };
    let certificate = "rsa2048-0-localhost.crt";
    let expect = |key: &str, reason: &str| {
        let error = start(certificate, key);
        assert!(error.starts_with("proxy `front`: ") && error.contains(&format!("{key}: {reason}")), "{error}");
    };
    expect("rsa2048-1.key", "does not match the certificate");
    expect("rsa1024.key", "has an RSA key of 1024 bits, which is weak");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&other.key, 0o604);
    expect("rsa2048-1.key", "is accessible to all users (mode 0604): run chmod 600 on it");
}
