//! Tests the acceptor with the client `openssl s_client`: versions, cipher suites, groups, server
//! names, ALPN, client certificates, OCSP and session tickets.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};

use godwit_test_support::Folder;
use godwit_test_support::certificate::openssl;
use godwit_tls::{ClientCertificates, Failure, Group, KeyFiles, Settings};

use crate::server::{Server, certify, text};

/// Connects with `openssl s_client`, sends a line, and expects the same line back. Returns the
/// output of the client, and whether it was successful.
fn s_client(folder: &Folder, server: &Server, worker: usize, arguments: &[&str]) -> (String, bool) {
    let address = server.addresses[worker].to_string();
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-ign_eof"])
        .args(arguments)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl starts");
    let mut input = client.stdin.take().expect("a pipe");
    // A client that fails may have ended.
    let _ = input.write_all(b"hello godwit\n");
    let (mut all, mut echoed) = (String::new(), false);
    // A failed client ends its output.
    for line in BufReader::new(client.stdout.take().expect("a pipe")).lines().map_while(Result::ok) {
        all += &format!("{line}\n");
        // The client may print about the session on the same line.
        if line.ends_with("hello godwit") {
            echoed = true;
            break;
        }
    }
    let _ = client.kill();
    let output = client.wait_with_output().expect("a child");
    (all + &String::from_utf8_lossy(&output.stderr), echoed)
}

fn keys(folder: &Folder, names: &[&str]) -> Option<Vec<KeyFiles>> {
    names.iter().map(|name| certify(folder, name, &["localhost"])).collect()
}

#[test]
fn every_version_suite_and_group_works() {
    let folder = Folder::new();
    let Some(files) = keys(&folder, &["rsa2048-0", "p256-0"]) else { return };
    let settings = Settings {
        groups: vec![Group::X25519MlKem768, Group::X25519, Group::P256, Group::P384],
        ..Settings::default()
    };
    let server = Server::start(&files, &settings, 1);
    let tls13 = ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];
    let tls12 = ["AES256-GCM-SHA384", "AES128-GCM-SHA256", "CHACHA20-POLY1305"];
    let name = ["-servername", "localhost"];
    for group in ["X25519", "P-256", "P-384"] {
        for suite in tls13 {
            let arguments = [&name[..], &["-tls1_3", "-ciphersuites", suite, "-groups", group]].concat();
            let (output, echoed) = s_client(&folder, &server, 0, &arguments);
            assert!(echoed && output.contains(&format!("Cipher is {suite}")), "{suite} {group}: {output}");
            assert_eq!(server.next().unwrap().version, "1.3");
        }
        for (key, suite) in ["RSA", "ECDSA"].into_iter().flat_map(|key| tls12.map(|suite| (key, suite))) {
            let suite = format!("ECDHE-{key}-{suite}");
            // OpenSSL accepts only ECDSA keys whose curve is among its groups.
            let groups = if group == "P-256" { group.to_owned() } else { format!("{group}:P-256") };
            let arguments = [&name[..], &["-tls1_2", "-cipher", &suite, "-groups", &groups]].concat();
            let (output, echoed) = s_client(&folder, &server, 0, &arguments);
            assert!(echoed && output.contains(&format!("Cipher is {suite}")), "{suite} {group}: {output}");
            assert_eq!(server.next().unwrap().version, "1.2");
        }
    }
    let counters = server.stop();
    assert_eq!((counters.received, counters.refused), (27, 0));
}

/// Every kind of key signs with every signature scheme that a client accepts.
#[test]
fn every_key_and_scheme_works() {
    let folder = Folder::new();
    let rsa = ["rsa_pss_rsae_sha256", "rsa_pss_rsae_sha384", "rsa_pss_rsae_sha512"];
    for (key, schemes) in [
        ("rsa2048-0", &rsa[..]),
        ("rsa3072-0", &rsa[..1]),
        ("rsa4096-0", &rsa[..1]),
        ("p256-0", &["ecdsa_secp256r1_sha256"]),
        ("p384-0", &["ecdsa_secp384r1_sha384"]),
        ("ed25519-0", &["ed25519"]),
    ] {
        let Some(files) = keys(&folder, &[key]) else { return };
        let server = Server::start(&files, &Settings::default(), 1);
        let authority = text(&files[0].certificate);
        for scheme in schemes {
            let verified = ["-CAfile", authority, "-verify_return_error", "-sigalgs", scheme];
            let (output, echoed) = s_client(&folder, &server, 0, &verified);
            assert!(echoed && output.contains("Verify return code: 0 (ok)"), "{key} {scheme}: {output}");
        }
        if key == "rsa2048-0" {
            for scheme in ["RSA+SHA256", "RSA+SHA384", "RSA+SHA512"] {
                let arguments = ["-tls1_2", "-sigalgs", scheme, "-CAfile", authority, "-verify_return_error"];
                let (output, echoed) = s_client(&folder, &server, 0, &arguments);
                assert!(echoed, "{key} {scheme}: {output}");
            }
        }
        assert_eq!(server.stop().refused, 0);
    }
}

#[test]
fn the_server_name_selects_the_certificate() {
    let folder = Folder::new();
    let find = || {
        Some([
            certify(&folder, "rsa2048-0", &["shop.example", "www.shop.example"])?,
            certify(&folder, "p256-0", &["shop.example"])?,
            certify(&folder, "rsa2048-1", &["*.shop.test"])?,
        ])
    };
    let Some(files) = find() else { return };
    let server = Server::start(&files, &Settings::default(), 1);
    for (name, subject, key) in [
        ("SHOP.example", "CN = shop.example", "ECDSA"),
        ("www.shop.example", "CN = shop.example", "RSA-PSS"),
        ("api.shop.test", "CN = *.shop.test", "RSA-PSS"),
        ("unknown.test", "CN = shop.example", "RSA-PSS"),
        ("deep.api.shop.test", "CN = shop.example", "RSA-PSS"),
    ] {
        let (output, echoed) = s_client(&folder, &server, 0, &["-servername", name]);
        assert!(echoed && output.contains(&format!("subject={subject}")), "{name}: {output}");
        assert!(output.contains(&format!("Peer signature type: {key}")), "{name}: {output}");
        assert_eq!(server.next().unwrap().server_name, Some(name.to_ascii_lowercase()));
    }
    // A client that does not support ECDSA receives the RSA certificate of the same name.
    let (output, echoed) =
        s_client(&folder, &server, 0, &["-servername", "shop.example", "-sigalgs", "rsa_pss_rsae_sha256"]);
    assert!(echoed && output.contains("Peer signature type: RSA-PSS"), "{output}");
    assert_eq!(server.stop().refused, 0);
}

#[test]
fn alpn_selects_a_protocol() {
    let folder = Folder::new();
    let Some(files) = keys(&folder, &["p256-0"]) else { return };
    let settings = Settings { alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()], ..Settings::default() };
    let server = Server::start(&files, &settings, 1);
    for (offer, expected) in [("http/1.1,h2", Some("h2")), ("http/1.1", Some("http/1.1"))] {
        let (output, _) = s_client(&folder, &server, 0, &["-alpn", offer]);
        assert_eq!(server.next().unwrap().alpn.as_deref(), expected.map(str::as_bytes), "{output}");
    }
    let (_, echoed) = s_client(&folder, &server, 0, &[]);
    assert!(echoed && server.next().unwrap().alpn.is_none());
    let (_, echoed) = s_client(&folder, &server, 0, &["-alpn", "smtp"]);
    assert!(!echoed);
    assert_eq!(server.next(), Err(Failure::Protocol));
    server.stop();
}

#[test]
fn client_certificates_are_optional_or_required() {
    let folder = Folder::new();
    let Some(files) = keys(&folder, &["p256-0"]) else { return };
    let (Some(client), Some(stranger)) =
        (certify(&folder, "p384-0", &["client"]), certify(&folder, "ed25519-0", &["stranger"]))
    else {
        return;
    };
    let authorities = client.certificate.clone();
    let own = ["-cert", text(&client.certificate), "-key", text(&client.key)];
    let foreign = ["-cert", text(&stranger.certificate), "-key", text(&stranger.key)];
    let optional = ClientCertificates::Optional { authorities: authorities.clone() };
    let required = ClientCertificates::Required { authorities };
    for (request, version) in [optional, required]
        .into_iter()
        .flat_map(|request| ["-tls1_2", "-tls1_3"].map(|version| (request.clone(), version)))
    {
        let settings = Settings { client_certificates: request.clone(), ..Settings::default() };
        let server = Server::start(&files, &settings, 1);
        let connect = |certificate: &[&str]| {
            let (_, echoed) = s_client(&folder, &server, 0, &[&[version][..], certificate].concat());
            let result = server.next();
            assert_eq!(echoed, result.is_ok());
            result.map(|fact| fact.client_certificate)
        };
        assert_eq!(connect(&own), Ok(true), "{version}");
        assert_eq!(connect(&foreign), Err(Failure::ClientCertificate), "{version}");
        let without = if matches!(request, ClientCertificates::Optional { .. }) {
            Ok(false)
        } else {
            Err(Failure::ClientCertificate)
        };
        assert_eq!(connect(&[]), without, "{version}");
        server.stop();
    }
}

/// A session that one worker created is resumed by another worker without a signature.
#[test]
fn tickets_are_shared_by_workers() {
    let folder = Folder::new();
    let Some(files) = keys(&folder, &["p256-0"]) else { return };
    for version in ["-tls1_3", "-tls1_2"] {
        let server = Server::start(&files, &Settings::default(), 2);
        let (output, _) = s_client(&folder, &server, 0, &[version, "-sess_out", "session"]);
        assert!(!server.next().unwrap().resumed, "{output}");
        let (output, echoed) = s_client(&folder, &server, 1, &[version, "-sess_in", "session"]);
        let fact = server.next().unwrap();
        assert!(echoed && fact.resumed && fact.worker == 1 && output.contains("Reused, "), "{output}");
        assert_eq!(server.stop().received, 1);
        let without = Server::start(&files, &Settings { tickets: false, ..Settings::default() }, 1);
        s_client(&folder, &without, 0, &[version, "-sess_in", "session"]);
        assert!(!without.next().unwrap().resumed);
        without.stop();
    }
}

#[test]
fn an_ocsp_response_is_stapled() {
    let folder = Folder::new();
    let Some(mut files) = keys(&folder, &["p256-0"]) else { return };
    let (certificate, key) = (text(&files[0].certificate).to_owned(), text(&files[0].key).to_owned());
    folder.write("index", "");
    let request = ["ocsp", "-issuer", &certificate, "-cert", &certificate, "-no_nonce", "-reqout", "request"];
    let response = ["-index", "index", "-rsigner", &certificate, "-rkey", &key, "-CA", &certificate];
    openssl(&folder, &request).unwrap();
    openssl(&folder, &[&["ocsp", "-reqin", "request", "-respout", "response", "-ndays", "1"], &response[..]].concat())
        .unwrap();
    files[0].ocsp = Some(folder.join("response"));
    let server = Server::start(&files, &Settings::default(), 1);
    let (output, echoed) = s_client(&folder, &server, 0, &["-status"]);
    assert!(echoed && output.contains("OCSP Response Status: successful (0x0)"), "{output}");
    server.stop();
}
